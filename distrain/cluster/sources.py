"""The places where workers come from, such as an existing cluster, and which a request is for."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from distrain.cluster.local import check_this_machine, local_cluster, local_threads
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
