"""Which network interface ranks talk over."""

import psutil


def interface_of(address: str) -> str | None:
    """The name of the interface that has an address, on this host; `None` if none has.

    gloo listens at the address of the host's own name, which on many machines is 127.0.0.1. A Dask
    worker knows better: other hosts reach it, and the interface of that address they reach as well.

    >>> interface_of("127.0.0.1")
    'lo'
    """
    for name, addresses in psutil.net_if_addrs().items():
        if any(found.address.partition("%")[0] == address for found in addresses):
            return name
    return None
