"""The places where workers come from, and which of them a request is for."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from distrain.cluster.connect import address_of, connect
from distrain.cluster.local import check_this_machine, local_cluster, local_threads


@dataclass(frozen=True)
class ClusterRequest:
    # the address of an existing cluster's scheduler, its `distributed.Client`, or the cluster
    # itself; `None` asks for a new cluster
    scheduler: Any = None
    num_workers: int = 2
    threads_per_worker: int = 1  # dask's threads in each
    # `cuda` gives each worker a GPU; `auto` does where there are enough of them
    device: str = "cpu"
    dashboard_address: str = ":0"  # a new cluster's; port 0 takes a free one
    # whether threads of this process, one per worker, will do for a new cluster
    in_process: bool = False


@dataclass(frozen=True)
class WorkerSource:
    serves: Callable[[ClusterRequest], bool]  # whether a request is for this place
    opening: Callable[[ClusterRequest], str]  # the progress text while it opens
    # a context with a `distributed.Client`, whose exit ends what it started; raises `ClusterError`
    # if the scheduler does not answer, or the place cannot hold the workers
    open: Callable[[ClusterRequest], AbstractContextManager[Any]]
    # raises `ClusterError` if the place cannot hold the workers, as far as known now
    check: Callable[[ClusterRequest], object] = lambda request: None


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
    with source.open(request) as client:
        yield client


def check_cluster(request: ClusterRequest) -> None:
    """Raise `ClusterError` if the workers cannot be had, as far as that is known now."""
    source_of(request).check(request)
