"""The progress of a preparation: finished tasks, and their rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class PrepProgress:
    """The progress of one phase of a preparation."""

    phase: str  # `read`, `fit`, `history` or `write`
    tasks: int  # tasks that are done
    all_tasks: int  # tasks of the phase
    rows: int  # rows that the done tasks have handled


ProgressCallback = Callable[[PrepProgress], None]


class PhaseCounter:
    """Counts the finished tasks of a phase and their rows, and reports each change.

    `times_read` is the number of tasks that read each row: the rows of all tasks are divided by it,
    so that each row is counted once.
    """

    def __init__(
        self, phase: str, all_tasks: int, on_progress: ProgressCallback, times_read: int = 1
    ):
        self._phase, self._all_tasks = phase, all_tasks
        self._on_progress = on_progress
        self._times_read = times_read
        self._tasks = self._rows = 0
        self._report()

    def add(self, rows: int) -> None:
        """Count a finished task of `rows` rows."""
        self._tasks += 1
        self._rows += rows
        self._report()

    def _report(self) -> None:
        rows = self._rows // self._times_read
        self._on_progress(PrepProgress(self._phase, self._tasks, self._all_tasks, rows))
