"""The places where workers come from, such as an existing cluster, and which a request is for."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from distrain.errors import ClusterError
from distrain.workers.local import (
    check_dask_settings,
    check_this_machine,
    local_cluster,
    local_threads,
)

CONNECT_TIMEOUT_S = 15.0
SPEAKS_FIRST_S = 2.0
"""How long a scheduler may take to say its first bytes before it is asked whether it is one."""


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
    check_dask_settings()
    _check_certificates(address)
    try:
        # A Client that fails to connect closes itself noisily, much later: knock first. In a
        # thread, since notebooks have a running event loop in this one.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, _knock(address, timeout_s)).result()
        client = Client(address, timeout=timeout_s)
    except (OSError, TimeoutError, TypeError, ValueError) as error:
        raise ClusterError(
            f"cannot reach the Dask scheduler: {error or f'it is silent for {timeout_s:g} s'}",
            where={"scheduler": address},
            hint="Check the address; with TLS it begins with tls://. `dask scheduler --preload "
            "distrain.preload` starts a scheduler; without an address `distrain train` starts a "
            "local cluster.",
        ) from error
    with client:
        yield client


def address_of(scheduler: Any) -> str | None:
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
    from distributed.comm.addressing import parse_address, parse_host_port

    arguments = Security().get_connection_args("client")
    scheme, place = parse_address(address)
    if scheme in ("tcp", "tls"):
        tls = arguments.get("ssl_context") if scheme == "tls" else None
        host, port = parse_host_port(place, 8786)
        said = await asyncio.wait_for(_first_bytes(host, port, tls, timeout_s), timeout_s)
        if len(said) < 8 or any(said[5:8]):  # Dask begins with a length of 8 bytes, far below 2**40
            answer = said.partition(b"\n")[0].decode(errors="replace").strip()
            raise ClusterError(
                "what answers at this address is no Dask scheduler",
                where={"scheduler": address, "answer": answer or "it closed the connection"},
                hint="Give the scheduler's own address (port 8786 by default), not that of its "
                "dashboard, an alert's instance or a service; with TLS it begins with tls://.",
            )
    comm = await open_comm(address, timeout=timeout_s, **arguments)
    await comm.close()


async def _first_bytes(host: str, port: int, tls: Any, timeout_s: float) -> bytes:
    """Return what a server says first; b"" if it closes the connection.

    Dask's comm speaks first, HTTP servers wait. Dask would take an HTTP answer for the length of a
    message, and loop for ever over its parts; so does a scheduler with what it is sent, if that has
    8 bytes or more.
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
    scheduler: Any = None  # an address, a `distributed.Client` or a cluster; `None`: a new cluster
    num_workers: int = 2
    threads_per_worker: int = 1  # dask's threads in each
    device: str = "cpu"  # `cuda`: each worker has a GPU; `auto`: where there are enough
    dashboard_address: str = ":0"  # a new cluster's; port 0 takes a free one
    in_process: bool = False  # whether threads of this process will do for a new cluster


@dataclass(frozen=True)
class WorkerSource:
    serves: Callable[[ClusterRequest], bool]  # whether a request is for this place
    opening: Callable[[ClusterRequest], str]  # the progress text while it opens
    # a context with a `distributed.Client`, whose exit ends what it started; raises `ClusterError`
    # if the scheduler does not answer, or the place cannot hold the workers
    open: Callable[[ClusterRequest], AbstractContextManager[Any]]
    check: Callable[[ClusterRequest], object] = lambda request: None  # as `open`, as far as known


SOURCES: tuple[WorkerSource, ...] = (
    WorkerSource(  # only the scheduler knows its workers, for which jobs wait there
        serves=lambda request: request.scheduler is not None,
        opening=lambda request: f"connecting to {address_of(request.scheduler)}",
        open=lambda request: connect(request.scheduler),
    ),
    WorkerSource(
        serves=lambda request: request.in_process,
        opening=lambda request: "starting threads",
        open=lambda request: local_threads(request.num_workers * request.threads_per_worker),
    ),
    WorkerSource(
        serves=lambda request: True,
        opening=lambda request: "starting the cluster",
        open=lambda request: local_cluster(
            request.num_workers,
            request.threads_per_worker,
            request.device,
            request.dashboard_address,
        ),
        check=lambda request: check_this_machine(request.num_workers, request.device),
    ),
)
"""The first that serves a request is asked; the last serves any."""


def source_of(request: ClusterRequest) -> WorkerSource:
    return next(source for source in SOURCES if source.serves(request))


@contextmanager
def open_cluster(
    request: ClusterRequest, say: Callable[[str], None] = lambda _: None
) -> Iterator[Any]:
    source = source_of(request)
    say(source.opening(request))
    with ExitStack() as opened:
        client = opened.enter_context(source.open(request))
        try:
            yield client
        finally:
            # On a busy machine Dask may give up waiting for a worker's end, which is no error of
            # the work that was done, and must not stand in the place of one.
            with suppress(TimeoutError, OSError):
                opened.close()


def check_cluster(request: ClusterRequest) -> None:
    """Raise `ClusterError` if the workers cannot be had, as far as that is known now."""
    source_of(request).check(request)
