"""The work of an epoch; loads row groups ahead of the current step, also for the next epoch.

A *load* is the reading of those rows of one chunk that the rank needs (`filling.schedule.Load`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from distrain.loader.batch import Batch
from distrain.loader.filling.batch_memory import OpenBatch, OpenBatches
from distrain.loader.filling.schedule import (
    Load,
    LoadSteps,
    LookAhead,
    RowAssigner,
    RowAssignment,
    plan_loads,
)
from distrain.loader.options import LoaderOptions
from distrain.loader.partition.epoch_plan import EpochPlan
from distrain.loader.partition.row_order import Chunks
from distrain.loader.partition.table import RowGroup
from distrain.loader.reading.reader import Expected


class Backend(Protocol):
    """Loads row groups into batches, in host memory or on a GPU, for one epoch or window.

    `new_block` returns memory for the flat columns of a batch, `[columns, rows]`. `finish` returns
    a filled batch. `num_lists` is the number of list columns.
    """

    num_lists: int

    def new_block(self, num_rows: int) -> Any: ...

    def load(
        self, group: RowGroup, assignment: RowAssignment, batches: Sequence[OpenBatch[Any]]
    ) -> None:
        """Read a row group, and write its rows to batches as `assignment` says. Thread-safe.

        `batches` has the batch for each run of `assignment`.
        """
        ...

    def finish(self, batch: OpenBatch[Any]) -> Batch: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class EpochWork:
    """Everything that is needed to make the batches of some steps of an epoch or window."""

    plan: EpochPlan
    chunks: Chunks
    row_groups: Sequence[RowGroup]
    options: LoaderOptions
    epoch: int
    steps: range  # of the plan
    open_steps: int  # steps whose batches may be open, from the current one on
    new_backend: Callable[[], Backend]  # called in the producer's thread
    # Runs before the first batch, if set. Returns the work and the backend to use instead; `None`
    # if it was cancelled.
    first_pass: Preparation | None = None
    # Returns the order of a chunk's rows by the chunk's number; by default `row_permutation`.
    order_of: Callable[[int], NDArray[np.int64]] | None = None
    # Announces the row groups that will be loaded to the reader (see `Reader.expect`), when the
    # backend is open. `None` if all files are local: that costs as much as decoding a hundred rows.
    expect: Callable[[Iterator[RowGroup | None]], Expected] | None = None

    @property
    def lanes(self) -> range:
        return self.plan.lanes_of_rank(self.options.rank, self.options.num_ranks)

    def rows_in(self, step: int) -> int:
        return self.plan.rank_rows(step, self.options.rank, self.options.num_ranks)

    def announced(self, groups: Iterator[RowGroup | None]) -> Expected:
        return Expected() if self.expect is None else self.expect(groups)


Preparation = Callable[
    [EpochWork, Any, ThreadPoolExecutor, Callable[[], bool]], tuple[EpochWork, Backend] | None
]


BeginWork = Callable[[EpochWork], tuple[EpochWork, Backend] | None]
"""Returns the work, and a backend for it.

If the rows go through buckets, it first fills the buckets, and both results are for reading them.
Returns `None` if that was cancelled.
"""


class _Task(NamedTuple):
    epoch: _OpenEpoch
    steps: LoadSteps  # counted over all epochs
    assigner: RowAssigner
    number: int  # of the row group in its chunk
    group: RowGroup

    def run(self) -> None:
        assignment = self.assigner.assign(self.number)
        if len(assignment.rows):
            batches = self.epoch.batches.at(assignment.steps.tolist())
            self.epoch.backend.load(self.group, assignment, batches)


class _OpenEpoch:
    """An epoch or window whose loads have begun and whose batches are not all delivered.

    `first` is the number of its first step, counted over all epochs.
    """

    def __init__(self, work: EpochWork, backend: Backend, first: int):
        self.work = work
        self.backend = backend
        self.batches: OpenBatches[Any] = OpenBatches(
            work.rows_in, backend.new_block, backend.num_lists
        )
        self.end = first + len(work.steps)
        self._offset = first - work.steps.start  # added to a step of `work.plan`
        self._loads = plan_loads(work.plan, work.chunks, work.lanes, work.steps.start)
        self._expected = work.announced(_groups(work, self._loads))
        self._num_done = 0

    def tasks(self) -> Generator[_Task, None, None]:
        """Yield a task for each row group to load, ordered by the first step that needs it."""
        work = self.work
        seed = None if work.options.shuffle == "none" else work.options.seed
        for load in _needed(work, self._loads):
            chunk = work.chunks[load.chunk]
            sizes = [chunk.num_rows]
            if len(chunk.row_groups) > 1:
                sizes = [work.row_groups[group].num_rows for group in chunk.row_groups]
            order = work.order_of and partial(work.order_of, load.chunk)
            assigner = RowAssigner(
                work.plan, work.lanes, chunk, load, sizes, seed, work.epoch, order
            )
            steps = LoadSteps.of(work.plan, load, work.open_steps, self._offset)
            for number, group in enumerate(chunk.row_groups):
                yield _Task(self, steps, assigner, number, work.row_groups[group])

    def count_done(self) -> None:
        self._num_done += 1
        self._expected.passed(self._num_done)

    def rows_in(self, step: int) -> int:
        return self.work.rows_in(step - self._offset)

    def finished(self, step: int) -> Batch:
        return self.backend.finish(self.batches.take(step - self._offset))

    def expect_no_more(self) -> None:
        self._expected.close()

    def close(self) -> None:
        self.expect_no_more()
        self.backend.close()


# It takes the work, not the `_OpenEpoch`: a reference cycle would keep the epoch's batches alive.
def _needed(work: EpochWork, loads: Iterable[Load]) -> Iterator[Load]:
    return takewhile(lambda load: load.step < work.steps.stop, loads)


def _groups(work: EpochWork, loads: Iterable[Load]) -> Iterator[RowGroup]:
    numbers = (n for load in _needed(work, loads) for n in work.chunks[load.chunk].row_groups)
    return (work.row_groups[number] for number in numbers)


class LoadsAhead:
    """Loads row groups, ordered by the first step that needs them, within the available memory.

    Steps are counted over all epochs, from 0. Which loads begin depends on the current step (see
    `LookAhead`), and not on the order in which other loads finish. Threads continue with the next
    epoch while batches of the current one remain. The batches of both epochs share the memory.
    """

    def __init__(
        self,
        works: Iterator[EpochWork],
        begin: BeginWork,
        pool: ThreadPoolExecutor,
        look_ahead: LookAhead,
    ):
        self._works = works
        self._look_ahead = look_ahead
        self._begin = begin
        self._pool = pool
        self._epochs: deque[_OpenEpoch] = deque()
        self._following: EpochWork | None = None  # the next work, taken from `works` by `_peek`
        # why the next work could not begin; raised after the remaining batches
        self._error: Exception | None = None
        self._tasks: Generator[_Task, None, None] | None = None  # of the last open epoch
        self._task: _Task | None = None  # the next task of `_tasks`, which has not begun
        self._in_flight: deque[tuple[_Task, Future[None]]] = deque()

    def epoch_at(self, step: int) -> _OpenEpoch | None:
        """Close finished epochs, and return the epoch of a step.

        Returns `None` if no step is left, or if the first pass of the next epoch was cancelled.
        Raises the error of the next epoch if that epoch could not begin.
        """
        while self._epochs and self._epochs[0].end <= step:
            self._epochs.popleft().close()
        if not self._epochs:
            if self._error is not None:
                raise self._error
            self._open_following(step)
        return self._epochs[0] if self._epochs else None

    def begin_loads(self, step: int) -> None:
        """Begin all loads that may begin at the current step, `step` (see `LookAhead`)."""
        while task := self._next_task(step):
            if not self._look_ahead.may_begin(task.steps, step):
                return
            self._task = None
            self._in_flight.append((task, self._pool.submit(task.run)))

    def wait_for(self, step: int) -> None:
        """Sleep until all rows of a step are in its batch; raises the error of a failed load."""
        while self._in_flight and self._in_flight[0][0].steps.first <= step:
            task, result = self._in_flight.popleft()
            result.result()
            task.epoch.count_done()

    def drop(self) -> None:
        """Drop the loads that have not begun, and stop prefetching.

        Their reference cycles would keep batches alive. Loads that the thread pool has received are
        not cancelled here.
        """
        if self._tasks is not None:
            self._tasks.close()
        self._task = None
        self._in_flight.clear()
        for epoch in self._epochs:
            epoch.expect_no_more()

    def close(self) -> None:
        """Close the files; no thread may load meanwhile."""
        while self._epochs:
            self._epochs.popleft().close()

    def _next_task(self, step: int) -> _Task | None:
        while self._task is None:
            if self._tasks is not None:
                self._task = next(self._tasks, None)
            if self._task is None and not self._open_early(step):
                return None
        return self._task

    def _open_early(self, step: int) -> bool:
        """Open the next epoch, if its loads may begin already; return True if it was opened."""
        last = self._epochs[-1]
        is_too_early = len(self._epochs) > 1 or last.end >= step + last.work.open_steps
        if is_too_early or self._error is not None:
            return False
        try:
            work = self._peek()
            # A first pass waits for the current epoch: it uses all threads, and as much memory.
            return work is not None and work.first_pass is None and self._open_following(last.end)
        except Exception as error:  # raised after the remaining batches
            self._error = error
            return False

    def _open_following(self, first: int) -> bool:
        work, self._following = self._peek(), None
        work_and_backend = None if work is None else self._begin(work)
        if work_and_backend is None:
            return False
        work, backend = work_and_backend
        try:
            self._epochs.append(_OpenEpoch(work, backend, first))
        except BaseException:
            backend.close()
            raise
        self._tasks = self._epochs[-1].tasks()
        return True

    def _peek(self) -> EpochWork | None:
        if self._following is None:
            self._following = next(self._works, None)
        return self._following
