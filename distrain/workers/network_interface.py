"""Chooses the network interface through which ranks communicate."""

import ipaddress
import os
import socket
from collections.abc import Mapping

import psutil

from distrain.errors import ClusterError
from distrain.workers.serve_slurm import INTERFACE_VARIABLE

_OF_GLOO = "GLOO_SOCKET_IFNAME"
"""gloo's own environment variable for the interface, which takes precedence in gloo.

With a wrong name, gloo waits without an error.
"""


def choose_interface(address: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the network interface for the ranks of a Dask worker, such as `eth0`.

    This is the interface in `DISTRAIN_INTERFACE`, or else the one that has `address`. `None` if no
    interface has it; gloo and NCCL then choose. gloo's choice is the address of the host's own
    name, which on many machines is 127.0.0.1.

    Args:
        address: The worker's IP address or host name, which other hosts can reach.
        environ: The worker's environment.

    Raises:
        ClusterError: An interface in `DISTRAIN_INTERFACE` or `GLOO_SOCKET_IFNAME` does not exist,
            or has no IP address.
    """
    for name in environ.get(_OF_GLOO, "").split(","):
        _check(_OF_GLOO, name.strip())
    requested = environ.get(INTERFACE_VARIABLE, "").strip()
    _check(INTERFACE_VARIABLE, requested)
    return requested or interface_of(address)


def _check(variable: str, requested: str) -> None:
    interfaces = ip_addresses()
    if not requested or interfaces.get(requested):
        return
    problem = "has no IP address" if requested in interfaces else "is not an interface of this host"
    listed = ", ".join(
        f"{name} ({', '.join(addresses) or 'no address'})" for name, addresses in interfaces.items()
    )
    raise ClusterError(
        f"{variable} is {requested!r}, which {problem}",
        where={"host": socket.gethostname(), "interfaces": listed},
        hint=f"Start the Dask worker there with {variable} set to one of them, or without it: "
        "ranks then use the interface of the worker's address (`dask worker --host`).",
    )


def interface_of(address: str) -> str | None:
    """Return the interface of this host that has an IP address; `None` if there is none.

    >>> interface_of("127.0.0.1")
    'lo'
    """
    wanted = _parsed(address)
    for name, addresses in psutil.net_if_addrs().items():
        if wanted is not None and any(_parsed(one.address) == wanted for one in addresses):
            return name
    return None


def ip_addresses() -> dict[str, list[str]]:
    """Return the IP addresses of this host by interface, without IPv6 link-local addresses.

    Other hosts cannot use link-local addresses. An interface without others has an empty list.
    """
    interfaces: dict[str, list[str]] = {}
    for name, addresses in psutil.net_if_addrs().items():
        ips = [one.address for one in addresses if one.family in (socket.AF_INET, socket.AF_INET6)]
        interfaces[name] = [ip for ip in ips if not _is_link_local(ip)]
    return interfaces


def is_ipv6(address: str) -> bool:
    """Return True if a text is an IPv6 address.

    >>> is_ipv6("fd00::2"), is_ipv6("10.0.0.2"), is_ipv6("node-2")
    (True, False, False)
    """
    return isinstance(_parsed(address), ipaddress.IPv6Address)


def speaks_ipv6(interface: str | None, address: str) -> bool:
    """Return True if ranks use IPv6, given the result of `choose_interface` for `address`.

    They do if the worker's address is an IPv6 address, and the chosen interface, if any, has one.
    """
    if not is_ipv6(address):
        return False
    if interface in (None, interface_of(address)):
        return True
    return any(is_ipv6(ip) for ip in ip_addresses().get(interface or "", ()))


def _is_link_local(address: str) -> bool:
    return is_ipv6(address) and ipaddress.ip_address(address.partition("%")[0]).is_link_local


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # a host name
        return None
