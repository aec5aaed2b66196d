"""Opens the cluster for a request: an existing cluster, threads, or a new local cluster."""

import asyncio
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from distrain.errors import ClusterError
from distrain.workers.local import (
    check_this_machine,
    local_cluster,
    local_threads,
)

CONNECT_TIMEOUT_S = 15.0
SPEAKS_FIRST_S = 2.0
"""Seconds to wait for a server's first bytes. A scheduler sends first; other servers may not."""


@contextmanager
def connect(scheduler: Any, *, timeout_s: float = CONNECT_TIMEOUT_S) -> Iterator[Any]:
    """Yield a client of a running scheduler.

    Afterwards the cluster keeps running, and a given client stays open.

    Args:
        scheduler: The scheduler's address, a `distributed.Client`, or a Dask cluster.
        timeout_s: How long to wait for the scheduler at an address.

    Raises:
        ClusterError: The scheduler does not answer in time; the server at the address is not a
            Dask scheduler; no certificate is configured for a `tls://` address; or `scheduler` is
            closed, asynchronous, or not one of the above.
    """
    from distributed import Client

    if not isinstance(scheduler, str):
        if getattr(scheduler, "asynchronous", False) or address_of(scheduler) is None:
            raise ClusterError(
                f"not a Dask cluster: {scheduler!r}",
                hint="Use a scheduler's address, or a Client or cluster that is open and not "
                "asynchronous.",
            )
        with nullcontext(scheduler) if isinstance(scheduler, Client) else Client(scheduler) as own:
            yield own
        return
    address = scheduler
    _check_certificates(address)
    try:
        # Checked first, since a Client that fails to connect logs errors much later. In a thread,
        # since notebooks have a running event loop in this one.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, _check_is_scheduler(address, timeout_s)).result()
        client = Client(address, timeout=timeout_s)
    except (OSError, TimeoutError, TypeError, ValueError) as error:
        hint = (
            "Check the address; with TLS it begins with tls://. `dask scheduler --preload "
            "distrain.preload` starts a scheduler; without an address `distrain train` starts a "
            "local cluster."
        )
        if isinstance(error, ssl.SSLError):
            hint = (
                "--tls-ca-file must be the cluster's CA, and --tls-cert a client "
                "certificate that it signed. Neither may have expired, nor the scheduler's: "
                "`openssl x509 -in FILE -noout -issuer -enddate`."
            )
        raise ClusterError(
            f"cannot reach the Dask scheduler: {error or f'no answer for {timeout_s:g} s'}",
            where={"scheduler": address},
            hint=hint,
        ) from error
    with client:
        yield client


def address_of(scheduler: Any) -> str | None:
    """Return the address of a scheduler, which is given as in `connect`; `None` if it has none."""
    if isinstance(scheduler, str):
        return scheduler
    # A closed client has no scheduler.
    address = getattr(getattr(scheduler, "scheduler", None), "address", None)
    scheduler_address = getattr(scheduler, "scheduler_address", address)
    return scheduler_address if isinstance(scheduler_address, str) else None


def _check_certificates(address: str) -> None:
    """Raise `ClusterError` if an address begins with `tls://`, and no certificate is configured.

    Dask's own error is unclear.
    """
    from distributed import Security

    if not address.startswith("tls://"):
        return
    tls = Security().get_tls_config_for_role("client")
    if not (tls.get("ca_file") and tls.get("cert")):
        raise ClusterError(
            "a scheduler at tls:// requires a certificate, but none is configured",
            where={"scheduler": address},
            hint="Pass --tls-ca-file, --tls-cert and --tls-key, or set "
            "distributed.comm.tls.ca-file and distributed.comm.tls.client in Dask's configuration.",
        )


async def _check_is_scheduler(address: str, timeout_s: float) -> None:
    from distributed import Security
    from distributed.comm import connect as open_comm
    from distributed.comm.addressing import parse_address, parse_host_port

    arguments = Security().get_connection_args("client")
    scheme, place = parse_address(address)
    if scheme in ("tcp", "tls"):
        tls = arguments.get("ssl_context") if scheme == "tls" else None
        host, port = parse_host_port(place, 8786)
        first_bytes = await asyncio.wait_for(_first_bytes(host, port, tls, timeout_s), timeout_s)
        # Dask begins with a length of 8 bytes, far below 2**40.
        if len(first_bytes) < 8 or any(first_bytes[5:8]):
            answer = first_bytes.partition(b"\n")[0].decode(errors="replace").strip()
            raise ClusterError(
                "the server at this address is not a Dask scheduler",
                where={"scheduler": address, "answer": answer or "it closed the connection"},
                hint="Use the scheduler's own address (port 8786 by default), not that of its "
                "dashboard, an alert's instance or a service; with TLS it begins with tls://.",
            )
    comm = await open_comm(address, timeout=timeout_s, **arguments)
    await comm.close()


async def _first_bytes(host: str, port: int, tls: Any, timeout_s: float) -> bytes:
    """Return the first bytes that a server sends; b"" if it closes the connection.

    A scheduler sends first. If nothing arrives within `SPEAKS_FIRST_S`, a probe is sent, to which
    HTTP servers answer. Dask's client must not connect to these: it would interpret the answer as
    the length of a message, and loop forever. A scheduler would do the same with a probe of 8 bytes
    or more.
    """
    name = host if tls is not None else None
    reader, writer = await asyncio.open_connection(host, port, ssl=tls, server_hostname=name)
    try:
        with suppress(TimeoutError):
            return await asyncio.wait_for(reader.read(64), min(SPEAKS_FIRST_S, timeout_s / 2))
        writer.write(b"?\r\n\r\n")
        return await reader.read(64)
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()


@dataclass(frozen=True)
class ClusterRequest:
    """The cluster that a command or a job needs."""

    scheduler: Any = None  # an address, a `distributed.Client` or a cluster; `None`: a new one
    num_workers: int = 2  # worker processes of a new cluster
    threads_per_worker: int = 1  # Dask threads of each of them
    device: str = "cpu"  # `cuda`: a GPU for each worker; `auto`: the same if there are enough GPUs
    dashboard_address: str = ":0"  # for a new cluster; port 0 means any free port
    in_process: bool = False  # whether a new cluster consists of threads of this process


@contextmanager
def open_cluster(
    request: ClusterRequest, say: Callable[[str], None] = lambda _: None
) -> Iterator[Any]:
    """Yield a client of the cluster for a request; afterwards stop a cluster started for it.

    `say` is called with a text on what is done. Raises `ClusterError` if the cluster does not
    answer or start.
    """
    with ExitStack() as opened:
        client = opened.enter_context(_cluster_for(request, say))
        try:
            yield client
        finally:
            # On a busy machine Dask may time out waiting for a worker's end. That is not an error
            # of the finished work, and must not replace one.
            with suppress(TimeoutError, OSError):
                opened.close()


def _cluster_for(
    request: ClusterRequest, say: Callable[[str], None]
) -> AbstractContextManager[Any]:
    if request.scheduler is not None:
        say(f"connecting to {address_of(request.scheduler)}")
        return connect(request.scheduler)
    if request.in_process:
        say("starting threads")
        return local_threads(request.num_workers * request.threads_per_worker)
    say("starting the cluster")
    return local_cluster(
        request.num_workers,
        request.threads_per_worker,
        request.device,
        request.dashboard_address,
    )


def check_cluster(request: ClusterRequest) -> None:
    """Raise `ClusterError` if the request needs a local cluster that this machine cannot start.

    Starts nothing.
    """
    if request.scheduler is None and not request.in_process:
        check_this_machine(request.num_workers, request.device)
