"""Runs many tasks on a Dask cluster, and checks that all workers see a folder.

A bounded number of tasks is in flight. Tasks return expected errors as values, since a task that
raises makes its worker print a traceback. The calling process then raises them.
"""

from __future__ import annotations

import functools
import os
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distrain.errors import ClusterError, DistrainError, OutputError
from distrain.formatting import join_names
from distrain.storage.outputs import translated_errors
from distrain.storage.urls import is_remote

if TYPE_CHECKING:  # ranks that read raw rows import `prep`, and load no Dask
    from distributed import Client, Future

_TASKS_PER_THREAD = 3
_FEWEST_IN_FLIGHT = 4
_MOST_NAMED = 5
_BYTES_TOGETHER = 8 << 20


class TaskRunner:
    """Runs the tasks of one preparation, about three per worker thread at a time."""

    def __init__(self, client: Client):
        self._client = client
        self._run = uuid.uuid4().hex[:8]

    def run(
        self,
        name: str,
        function: Callable[..., Any],
        arguments: Sequence[tuple[Any, ...]],
        on_done: Callable[[int, Any], None] | None = None,
        sizes_bytes: Sequence[int] | None = None,
    ) -> list[Any]:
        """Call `function(*a)` on workers for each `a` of `arguments`.

        Returns the results in this order. `name` is the tasks' name in Dask's dashboard; `on_done`
        gets a call's index and its result. Without `sizes_bytes`, each call is a task. With
        `sizes_bytes`, the bytes that each call reads, consecutive small calls share a task of up to
        8 MiB: a task costs the scheduler as much time as thousands of values.

        Raises the error of a call, and a `ClusterError` if workers died or the cluster went away.
        """
        results: list[Any] = [None] * len(arguments)
        guarded = functools.partial(_guarded, function)

        def submit(first: int, arguments: tuple[Any, ...]) -> Future:
            key = f"prep-{name}-{self._run}-{uuid.uuid4().hex[:8]}-{first}"
            return self._client.submit(guarded, arguments, key=key, pure=False)

        tasks = _neighbours(arguments, sizes_bytes or [_BYTES_TOGETHER] * len(arguments))
        with closing(as_they_end(self._client, submit, tasks)) as ended:
            for first, future in ended:
                for place, result in enumerate(_results(future, name), first):
                    results[place] = result
                    if on_done:
                        on_done(place, result)
        return results


def _neighbours(
    arguments: Sequence[tuple[Any, ...]], sizes_bytes: Sequence[int]
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield, for each task, the index of its first call and the arguments of its calls.

    A task has consecutive calls of at most `_BYTES_TOGETHER` bytes of input, but at least one.
    `sizes_bytes` has the input of each call.
    """
    first, size = 0, 0
    for place, more in enumerate(sizes_bytes):
        if place > first and size + more > _BYTES_TOGETHER:
            yield first, tuple(arguments[first:place])
            first, size = place, 0
        size += more
    if arguments:
        yield first, tuple(arguments[first:])


def as_they_end(
    client: Client,
    submit: Callable[[int, tuple[Any, ...]], Future],
    tasks: Iterable[tuple[int, tuple[Any, ...]]],
) -> Generator[tuple[int, Future], None, None]:
    """Yield each task's index and its future, in order of completion; cancel the others on exit.

    `tasks` are the arguments of `submit`: pairs of an index and a task's arguments. About three
    tasks per worker thread are submitted at a time. So the scheduler's memory does not grow with
    the number of tasks.
    """
    from distributed import as_completed

    waiting = iter(tasks)
    in_flight: dict[Future, int] = {}
    window = max(_FEWEST_IN_FLIGHT, _TASKS_PER_THREAD * sum(client.nthreads().values()))

    def begin(place: int, arguments: tuple[Any, ...]) -> Future:
        future = submit(place, arguments)
        in_flight[future] = place
        return future

    first = [begin(*task) for task in islice(waiting, window)]
    completed = as_completed(first, loop=client.loop)  # its default is another client's loop
    try:
        for future in completed:
            yield in_flight.pop(future), future
            for task in islice(waiting, 1):
                completed.add(begin(*task))
    finally:
        if in_flight:  # avoids a request to a lost scheduler if there is nothing to cancel
            client.cancel(list(in_flight))


def result_of(future: Future, doing: str, tasks: str, smaller: str) -> Any:
    """Return a future's result.

    Raises a `ClusterError` if workers died or the cluster gave the task up. `doing` and `tasks`
    name the work in its message; `smaller` is its hint to need less memory.
    """
    from distributed.client import FutureCancelledError
    from distributed.scheduler import KilledWorker

    try:
        return future.result()
    except KilledWorker as error:
        raise ClusterError(
            f"workers died repeatedly while they {doing}",
            where={"last worker": getattr(error.last_worker, "address", "unknown")},
            hint="Usually workers run out of memory: give them more memory, or use a smaller "
            f"{smaller}.",
        ) from None
    except FutureCancelledError:
        raise ClusterError(
            f"the cluster cancelled {tasks}",
            hint="The scheduler may have been restarted; start again.",
        ) from None


def _guarded(function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> Any:
    try:
        return [function(*arguments) for arguments in calls]
    except DistrainError as error:
        # The traceback's frames would keep files open on the worker, so they are removed.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        return error


def _results(future: Future, name: str) -> list[Any]:
    results: list[Any] | DistrainError = result_of(
        future, f"ran {name!r} tasks", f"{name!r} tasks", "--block-mib"
    )
    if isinstance(results, DistrainError):
        raise results
    return results


def check_shared(places: Sequence[str], client: Client) -> None:
    """Raise an `OutputError` if a worker does not see one of these folders; URLs are skipped.

    This process creates a new file in each folder, looks for it on all workers, and removes it: a
    worker may have another folder of the same name. An `OutputError` is also raised if the file
    cannot be created. Dask's errors are raised unchanged.
    """
    for place in dict.fromkeys(place for place in places if not is_remote(place)):
        probe = Path(place) / f".shared-{uuid.uuid4().hex}"
        with translated_errors(place):
            probe.touch()
        try:
            answers = client.run(_sees, str(probe))
        finally:
            with suppress(OSError):
                probe.unlink()
        blind = sorted({host for host, sees in answers.values() if not sees})
        if blind:
            raise OutputError(
                "workers cannot access this folder, which they need to exchange files",
                where={"path": place, "workers on": join_names(blind, _MOST_NAMED)},
                hint="Name a folder on a filesystem that all workers share, or an object store: "
                "--staging s3://BUCKET/PATH of `distrain prep` for temporary files, "
                "--out for the rest. `predict` prepares raw rows next to --out, and `evaluate` in "
                "TMPDIR.",
            )


def _sees(path: str) -> tuple[str, bool]:
    with suppress(OSError):
        os.listdir(os.path.dirname(path))  # avoids a stale cache of a network filesystem
    return os.uname().nodename, os.path.exists(path)
