"""Tasks that score, on a Dask cluster, a bounded number at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import Any

from distributed.client import FutureCancelledError
from distributed.scheduler import KilledWorker

from distrain.errors import ClusterError

_TASKS_PER_THREAD = 3
_FEWEST_IN_FLIGHT = 4


def results(
    client: Any, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]
) -> Generator[tuple[int, Any], None, None]:
    """Each task's place and the result of `function`, as they come.

    The scheduler holds a few tasks for each thread of a worker, so no more for ten thousand
    than for
    ten, and a failure leaves little to cancel. Raises `ClusterError` if workers died, or the
    cluster
    gave the tasks up.
    """
    from distributed import as_completed

    waiting = enumerate(tasks)
    window = max(_FEWEST_IN_FLIGHT, _TASKS_PER_THREAD * sum(client.nthreads().values()))
    in_flight: dict[Any, int] = {}

    def submit(place: int, task: tuple[Any, ...]) -> Any:
        future = client.submit(function, *task, pure=False)
        in_flight[future] = place
        return future

    completed = as_completed([submit(*one) for one in islice(waiting, window)])
    try:
        for future in completed:
            found = _result(future)
            yield in_flight.pop(future), found
            for one in islice(waiting, 1):
                completed.add(submit(*one))
    finally:
        client.cancel(list(in_flight))


def _result(future: Any) -> Any:
    try:
        return future.result()
    except KilledWorker as error:
        raise ClusterError(
            "workers died again and again while they scored",
            where={"last worker": getattr(error.last_worker, "address", "unknown")},
            hint="Most often for want of memory: give them more, or a smaller --batch-size.",
        ) from None
    except FutureCancelledError:
        raise ClusterError(
            "the cluster gave up tasks that score",
            hint="The scheduler may have been restarted; start again.",
        ) from None
