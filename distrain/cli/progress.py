"""How far a command is: bars on a terminal, a line now and then elsewhere; with rate and ETA."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from distrain.cli.live import duration

if TYPE_CHECKING:
    from rich.console import Console

LINE_EVERY_S = 10.0
"""Seconds between two lines of one phase where there is no terminal."""


class WorkProgress:
    """Shows the phases of some work, one after another or at the same time.

    Args:
        console: Where to.
        now_s: Tells the time, in seconds.
        from_start: Whether a phase has a line at its start and its end where there is no terminal,
            and not only while it takes long.
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
        self._told_s: dict[str, float] = {}

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

    def show(self, phase: str, done: int, total: int, rows: int, unit: str = "tasks") -> None:
        """Show how far a phase is.

        Args:
            phase: What is being done, as people should read it.
            done: Units that are done.
            total: Units in all.
            rows: Rows that are done.
            unit: What is counted.
        """
        now_s = self._now_s()
        if not self._began_s:  # the first phase began with the work
            self._began_s[phase] = self._entered_s
        elapsed_s = now_s - self._began_s.setdefault(phase, now_s)
        facts = progress_text(done, total, rows, elapsed_s, unit)
        if self._bars is not None:
            if phase not in self._tasks:
                self._tasks[phase] = self._bars.add_task(phase, total=total, facts=facts)
            self._bars.update(self._tasks[phase], completed=done, facts=facts)
        elif self._is_due(phase, done, total, now_s):
            self._told_s[phase] = now_s
            self._console.print(f"{phase}: {facts}", markup=False, highlight=False)

    def _is_due(self, phase: str, done: int, total: int, now_s: float) -> bool:
        told = phase in self._told_s or self._from_start
        last_s = self._told_s.get(phase, self._began_s[phase])
        return (told and done in (0, total)) or now_s - last_s >= LINE_EVERY_S


def progress_text(done: int, total: int, rows: int, elapsed_s: float, unit: str) -> str:
    """How far something is, how fast, and how long it will take at the same speed.

    >>> progress_text(3, 12, 1_200_000, 10.0, "tasks")
    '3/12 tasks, 1,200,000 rows, 120,000 rows/s, ETA 30s'
    >>> progress_text(0, 12, 0, 0.0, "tasks")
    '0/12 tasks, 0 rows'
    """
    counted = f"{done:,}/{total:,} rows" if unit == "rows" else f"{done:,}/{total:,} {unit}"
    parts = [counted] if unit == "rows" else [counted, f"{rows:,} rows"]
    if rows and elapsed_s > 0:
        parts.append(f"{rows / elapsed_s:,.0f} rows/s")
    if 0 < done < total:
        parts.append(f"ETA {duration(elapsed_s * (total - done) / done)}")
    elif done == total and elapsed_s > 0:
        parts.append(f"in {duration(elapsed_s)}")
    return ", ".join(parts)
