"""Shows the progress of a command's own work: bars on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from distrain.formatting import count, duration

if TYPE_CHECKING:
    from rich.console import Console

    from distrain.prep.progress import PrepProgress

WORK_LINE_EVERY_S = 10.0
"""Seconds between two lines of a phase without a terminal."""


_PREP_PHASES = {"read": "reading", "fit": "fitting", "history": "listing", "write": "writing"}


class WorkProgress:
    """Shows the phases of some work, one after another or at the same time.

    On a terminal each phase has a bar. Elsewhere, a phase prints a line every `WORK_LINE_EVERY_S`
    and, if it takes longer than that, at its end. With `from_start`, each phase prints a line at
    its start and end.

    Args:
        now_s: The clock, in seconds.
    """

    def __init__(
        self,
        console: "Console",
        now_s: Callable[[], float] = time.monotonic,
        *,
        from_start: bool = False,
    ):
        self._console = console
        self._from_start = from_start
        self._now_s = now_s
        self._bars: Any = None
        self._tasks: dict[str, Any] = {}
        self._began_s: dict[str, float] = {}
        self._last_line_s: dict[str, float] = {}

    def __enter__(self) -> "WorkProgress":
        self._entered_s = self._now_s()
        if self._console.is_terminal:
            from rich.progress import BarColumn, Progress, TextColumn

            words = [TextColumn("{task.description:8}"), BarColumn(24)]
            words.append(TextColumn("{task.fields[facts]}", markup=False))
            self._bars = Progress(*words, console=self._console)
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def show(
        self,
        phase: str,
        done: int,
        total: int,
        rows: int,
        unit: str = "tasks",
    ) -> None:
        """Show the progress of a phase.

        Args:
            phase: The phase's name.
            done: The number of finished units of `total`.
            rows: The number of processed rows.
            unit: The name of the units.
        """
        now_s = self._now_s()
        if not self._began_s:  # the first phase is timed from the start of all work
            self._began_s[phase] = self._entered_s
        elapsed_s = now_s - self._began_s.setdefault(phase, now_s)
        facts = _work_line(done, total, rows, elapsed_s, unit)
        if self._bars is not None:
            if phase not in self._tasks:
                self._tasks[phase] = self._bars.add_task(phase, total=total, facts=facts)
            self._bars.update(self._tasks[phase], completed=done, facts=facts)
        elif self._is_due(phase, done, total, now_s):
            self._last_line_s[phase] = now_s
            self._console.print(f"{phase}: {facts}", markup=False, highlight=False)

    def show_prep(self, at: "PrepProgress", rows: str = "") -> None:
        """Show the progress `at` of preparing rows.

        `rows` says which rows, if there are several sets.
        """
        self.show(f"{rows}{_PREP_PHASES[at.phase]}", at.tasks, at.all_tasks, at.rows)

    def _is_due(self, phase: str, done: int, total: int, now_s: float) -> bool:
        begun = phase in self._last_line_s or self._from_start
        last_s = self._last_line_s.get(phase, self._began_s[phase])
        return (begun and done in (0, total)) or now_s - last_s >= WORK_LINE_EVERY_S


def _work_line(done: int, total: int, rows: int, elapsed_s: float, unit: str) -> str:
    """Describe the progress of work, with its rates and the remaining time, as one line.

    The arguments are those of `WorkProgress.show`.

    >>> _work_line(3, 12, 1_200_000, 10.0, "tasks")
    '3/12 tasks, 1,200,000 rows, 120,000 rows/s, 30s left'
    >>> _work_line(0, 12, 0, 0.0, "tasks")
    '0/12 tasks, 0 rows'
    """
    parts = [f"{done:,}/{total:,} {unit}"]
    if unit != "rows":
        parts.append(f"{count(rows)} rows")
    if rows and elapsed_s > 0:
        parts.append(f"{count(rows / elapsed_s)} rows/s")
    if 0 < done < total:
        parts.append(f"{duration(elapsed_s * (total - done) / done, 0)} left")
    elif done == total and elapsed_s > 0:
        parts.append(f"in {duration(elapsed_s, 0)}")
    return ", ".join(parts)
