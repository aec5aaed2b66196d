"""The places where workers come from, and which of them a request is for."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from distrain.cluster.connect import address_of, connect
from distrain.cluster.local import check_this_machine, local_cluster, local_threads


@dataclass(frozen=True)
class ClusterRequest:
    """The workers that a command wants.

    Attributes:
        scheduler: The address of an existing cluster's scheduler, its `distributed.Client`, or the
            cluster itself; `None` asks for a new cluster.
        threads_per_worker: Dask's threads in each.
        device: `cuda` gives each worker a GPU; `auto` does where there are enough of them.
        dashboard_address: A new cluster's; port 0 takes a free one.
        in_process: Whether threads of this process, one per worker, will do for a new cluster.
    """

    scheduler: Any = None
    num_workers: int = 2
    threads_per_worker: int = 1
    device: str = "cpu"
    dashboard_address: str = ":0"
    in_process: bool = False


class WorkerSource(Protocol):
    """A place where workers come from."""

    def serves(self, request: ClusterRequest) -> bool: ...

    def opening(self, request: ClusterRequest) -> str:
        """The progress text while it opens."""

    def check(self, request: ClusterRequest) -> None:
        """Raise `ClusterError` if the place cannot hold the workers, as far as known now."""

    def open(self, request: ClusterRequest) -> AbstractContextManager[Any]:
        """A context with a `distributed.Client`, whose exit ends what `open` started.

        Raises:
            ClusterError: The scheduler does not answer, or the place cannot hold the workers.
        """


class _SchedulerAtAddress:
    def serves(self, request: ClusterRequest) -> bool:
        return request.scheduler is not None

    def opening(self, request: ClusterRequest) -> str:
        return f"connecting to {address_of(request.scheduler)}"

    def check(self, request: ClusterRequest) -> None:
        pass  # only the scheduler knows its workers, for which jobs wait there

    def open(self, request: ClusterRequest) -> AbstractContextManager[Any]:
        return connect(request.scheduler)


class _ThisProcess:
    def serves(self, request: ClusterRequest) -> bool:
        return request.in_process

    def opening(self, request: ClusterRequest) -> str:
        return "starting threads"

    def check(self, request: ClusterRequest) -> None:
        pass  # this process runs

    def open(self, request: ClusterRequest) -> AbstractContextManager[Any]:
        return local_threads(request.num_workers * request.threads_per_worker)


class _ThisMachine:
    def serves(self, request: ClusterRequest) -> bool:
        return True

    def opening(self, request: ClusterRequest) -> str:
        return "starting the cluster"

    def check(self, request: ClusterRequest) -> None:
        check_this_machine(request.num_workers, request.device)

    def open(self, request: ClusterRequest) -> AbstractContextManager[Any]:
        return local_cluster(
            request.num_workers,
            request.threads_per_worker,
            request.device,
            request.dashboard_address,
        )


SOURCES: tuple[WorkerSource, ...] = (_SchedulerAtAddress(), _ThisProcess(), _ThisMachine())
"""The first that serves a request is asked; the last serves any."""


def source_of(request: ClusterRequest) -> WorkerSource:
    return next(source for source in SOURCES if source.serves(request))


@contextmanager
def open_cluster(
    request: ClusterRequest, say: Callable[[str], None] = lambda _: None
) -> Iterator[Any]:
    """Yield a `distributed.Client` of the cluster that a request is for; `say` reports progress.

    Raises:
        ClusterError: The scheduler does not answer, or the place cannot hold the workers.
    """
    source = source_of(request)
    say(source.opening(request))
    with source.open(request) as client:
        yield client


def check_cluster(request: ClusterRequest) -> None:
    """Raise `ClusterError` if the workers cannot be had, as far as that is known now."""
    source_of(request).check(request)
