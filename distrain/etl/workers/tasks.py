"""Running many tasks on a Dask cluster, a bounded number at a time.

Errors that are expected travel as values, for a task that raises makes its worker print a
traceback. A task given an error passes it on; here it is raised in the calling process.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from distributed import Client, Future, as_completed
from distributed.client import FutureCancelledError
from distributed.scheduler import KilledWorker

from distrain.errors import ClusterError, DistrainError

_TASKS_PER_THREAD = 3
_FEWEST_IN_FLIGHT = 4


class TaskRunner:
    """Runs tasks for one run, at most three per worker thread at a time."""

    def __init__(self, client: Client):
        self._client = client
        self._run = uuid.uuid4().hex[:8]

    def run(
        self,
        name: str,
        function: Callable[..., Any],
        arguments: Sequence[tuple[Any, ...]],
        on_done: Callable[[int, Any], None] | None = None,
    ) -> list[Any]:
        """The results of `function(*a)` on workers for each `a` of `arguments`, in their order.

        `name` is the tasks' name in Dask's dashboard; `on_done` gets a task's place and its result.
        Raises what a task raised, and a `ClusterError` if workers died or the cluster went away.
        """
        results: list[Any] = [None] * len(arguments)

        def keep(place: int, future: Future) -> None:
            results[place] = _result(future, name)
            if on_done:
                on_done(place, results[place])

        self._run_windowed(name, function, enumerate(arguments), keep)
        return results

    def run_on_workers(
        self,
        name: str,
        function: Callable[..., Any],
        arguments: Sequence[tuple[Any, ...]],
        on_done: Callable[[int], None] | None = None,
    ) -> list[Future]:
        """Like `run`, but large results stay on the workers; an error shows up downstream."""
        futures: list[Future] = [None] * len(arguments)

        def keep(place: int, future: Future) -> None:
            if future.status != "finished":
                _result(future, name)
            futures[place] = future
            if on_done:
                on_done(place)

        self._run_windowed(name, function, enumerate(arguments), keep)
        return futures

    def _run_windowed(
        self,
        name: str,
        function: Callable[..., Any],
        tasks: Iterable[tuple[int, tuple[Any, ...]]],
        keep: Callable[[int, Future], None],
    ) -> None:
        waiting = iter(tasks)
        in_flight: dict[Future, int] = {}
        guarded = functools.partial(_guarded, function)

        def submit(place: int, arguments: tuple[Any, ...]) -> Future:
            key = f"prep-{name}-{self._run}-{uuid.uuid4().hex[:8]}-{place}"
            future = self._client.submit(guarded, *arguments, key=key, pure=False)
            in_flight[future] = place
            return future

        completed = as_completed([submit(*task) for task in islice(waiting, self._window())])
        try:
            for future in completed:
                keep(in_flight.pop(future), future)
                for task in islice(waiting, 1):
                    completed.add(submit(*task))
        finally:
            if in_flight:
                self._client.cancel(list(in_flight))

    def _window(self) -> int:
        threads: int = sum(self._client.nthreads().values())
        return max(_FEWEST_IN_FLIGHT, _TASKS_PER_THREAD * threads)


def _guarded(function: Callable[..., Any], *arguments: Any) -> Any:
    for argument in arguments:
        found = argument if isinstance(argument, list) else [argument]
        for value in found:
            if isinstance(value, DistrainError):
                return value
    try:
        return function(*arguments)
    except DistrainError as error:
        # Without the frames that it came through, which would hold files open on the worker.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        return error


def _result(future: Future, name: str) -> Any:
    try:
        result = future.result()
    except KilledWorker as error:
        raise ClusterError(
            f"workers died again and again while they ran {name!r} tasks",
            where={"last worker": getattr(error.last_worker, "address", "unknown")},
            hint="Most often for want of memory: give them more, or a smaller --block-mib.",
        ) from None
    except FutureCancelledError:
        raise ClusterError(
            f"the cluster gave up {name!r} tasks",
            hint="The scheduler may have been restarted; start again.",
        ) from None
    if isinstance(result, DistrainError):
        raise result
    return result
