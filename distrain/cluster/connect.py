"""An existing Dask cluster, at its scheduler's address."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any

from distrain.errors import ClusterError

CONNECT_TIMEOUT_S = 15.0


@contextmanager
def connect(scheduler: Any, *, timeout_s: float = CONNECT_TIMEOUT_S) -> Iterator[Any]:
    """Yield a client of a scheduler, given by its address, a `distributed.Client` or a cluster.

    The cluster stays, and a given client stays open.
    """
    from distributed import Client

    if not isinstance(scheduler, str):
        if getattr(scheduler, "asynchronous", False) or address_of(scheduler) is None:
            raise ClusterError(
                f"no Dask cluster: {scheduler!r}",
                hint="Give a scheduler's address, or a Client or cluster that is open and not "
                "asynchronous.",
            )
        with nullcontext(scheduler) if isinstance(scheduler, Client) else Client(scheduler) as own:
            yield own
        return
    address = scheduler
    _check_certificates(address)
    try:
        # A Client that fails to connect closes itself noisily, much later: knock first. In a
        # thread, since notebooks have a running event loop in this one.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, _knock(address, timeout_s)).result()
        client = Client(address, timeout=timeout_s)
    except MemoryError:  # bytes of another protocol are read as the length of a message
        raise ClusterError(
            "what answers at this address is no Dask scheduler",
            where={"scheduler": address},
            hint="Give the address of the scheduler, not that of its dashboard or of a service.",
        ) from None
    except (OSError, TimeoutError, TypeError, ValueError) as error:
        raise ClusterError(
            f"cannot reach the Dask scheduler: {error}",
            where={"scheduler": address},
            hint="Check the address; with TLS it begins with tls://. `dask scheduler --preload "
            "distrain.preload` starts a scheduler; without an address `distrain train` starts a "
            "local cluster.",
        ) from error
    with client:
        yield client


def address_of(scheduler: Any) -> str | None:
    """The address of a scheduler, given as an address, a client or a cluster."""
    if isinstance(scheduler, str):
        return scheduler
    # A client that is closed has none.
    address = getattr(getattr(scheduler, "scheduler", None), "address", None)
    found = getattr(scheduler, "scheduler_address", address)
    return found if isinstance(found, str) else None


def _check_certificates(address: str) -> None:
    """Refuse `tls://` without a certificate: Dask would say that it expects an ssl_context."""
    from distributed import Security

    if not address.startswith("tls://"):
        return
    tls = Security().get_tls_config_for_role("client")
    if not (tls.get("ca_file") and tls.get("cert")):
        raise ClusterError(
            "a scheduler at tls:// wants a certificate, and there is none",
            where={"scheduler": address},
            hint="Pass --tls-ca-file, --tls-cert and --tls-key, or set "
            "distributed.comm.tls.ca-file and distributed.comm.tls.client in Dask's configuration.",
        )


async def _knock(address: str, timeout_s: float) -> None:
    from distributed import Security
    from distributed.comm import connect as open_comm

    comm = await open_comm(address, timeout=timeout_s, **Security().get_connection_args("client"))
    await comm.close()
