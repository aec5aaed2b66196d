"""The progress of a preparation: finished tasks, rows, and bytes of inputs that are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from distrain.prep.parts import Part
from distrain.prep.text_files.byte_ranges import TextRange


@dataclass(frozen=True)
class PrepProgress:
    """The progress of one phase of a preparation."""

    phase: str  # `read`, `fit`, `history` or `write`
    tasks: int  # tasks that are done
    all_tasks: int  # tasks of the phase
    rows: int  # rows that the done tasks have handled
    # bytes of the input files, as stored, that are read so far; 0 in phases other than `read`
    size_bytes: int = 0
    all_bytes: int = 0  # total bytes of the input files


ProgressCallback = Callable[[PrepProgress], None]


class TaskSize(NamedTuple):
    """A file, its size, and what a task reads of it: a range, a part, or (`None`) the footer."""

    file: str
    file_bytes: int
    what: TextRange | Part | None


def bytes_of_tasks(tasks: Sequence[TaskSize]) -> list[int]:
    """Return, for each task, how many bytes it reads of its file; 0 if it reads only a footer.

    >>> cut = [TaskSize("a", 30, TextRange("a", start, start + 10)) for start in (0, 10, 20)]
    >>> bytes_of_tasks([*cut, TaskSize("b", 7, None)])
    [10, 10, 10, 0]
    """
    lengths = [_length(task) for task in tasks]
    of_file: dict[str, int] = {}
    for task, length in zip(tasks, lengths, strict=True):
        of_file[task.file] = of_file.get(task.file, 0) + length
    # Tasks on parts, or on ranges of compressed text, count as their share of the file's bytes.
    return [
        task.file_bytes * length // max(of_file[task.file], 1)
        for task, length in zip(tasks, lengths, strict=True)
    ]


def _length(task: TaskSize) -> int:
    if task.what is None:
        return 0
    if isinstance(task.what, Part):
        return task.what.num_rows
    stop = task.file_bytes if task.what.stop is None else task.what.stop
    return max(stop - task.what.start, 0)


class PhaseCounter:
    """Counts the finished tasks of a phase and their rows, and reports each change.

    `sizes` are the bytes that each task reads. `times_read` is the number of tasks that read each
    row: the rows of all tasks are divided by it, so that each row is counted once.
    """

    def __init__(
        self,
        phase: str,
        all_tasks: int,
        on_progress: ProgressCallback,
        sizes: Sequence[int] = (),
        times_read: int = 1,
    ):
        self._phase, self._all_tasks = phase, all_tasks
        self._on_progress = on_progress
        self._sizes, self._times_read = sizes, times_read
        self._tasks = self._rows = self._size_bytes = 0
        self._report()

    def add(self, place: int, rows: int) -> None:
        """Count a finished task of `rows` rows; `place` is its index in `sizes`."""
        self._tasks += 1
        self._rows += rows
        self._size_bytes += self._sizes[place] if self._sizes else 0
        self._report()

    def _report(self) -> None:
        done = (self._tasks, self._all_tasks, self._rows // self._times_read)
        self._on_progress(PrepProgress(self._phase, *done, self._size_bytes, sum(self._sizes)))
