"""Progress of a job, or of a command's own work: bars on a terminal, plain lines elsewhere."""

import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from distrain.cli.interrupts import if_interrupted
from distrain.cli.output import warning_console
from distrain.wording import byte_size, count, duration, number, percent

if TYPE_CHECKING:
    from rich.console import Console

    from distrain.jobs import JobView, Record

JOB_LINE_EVERY_S = 5.0
"""Seconds between two lines about a job's steps where there is no terminal."""

WORK_LINE_EVERY_S = 10.0
"""Seconds between two lines of one phase of work where there is no terminal."""


class JobProgress:
    """Shows views of one job as they come.

    Args:
        console: Where to write; whether it is a terminal decides the form.
        left: What an interrupted command leaves behind after the first view, in words.
        ended: The same after the last view.
    """

    def __init__(self, console: "Console", left: str = "", ended: str = ""):
        self._left = left
        self._ended = ended or left
        self.console = console
        self._bar: Any = None
        self._task: Any = None
        self._shown_state = ""
        self._shown_restarts = 0
        self._last_line_s = 0.0

    def __enter__(self) -> "JobProgress":
        if self.console.is_terminal:
            from rich.progress import BarColumn, Progress, TextColumn

            self._bar = Progress(
                TextColumn("{task.description}"), BarColumn(24), console=self.console
            )
            self._bar.start()
            self._task = self._bar.add_task("ranks are starting", total=None)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, text: str) -> None:
        """Print a line above the progress."""
        # As it is: not wrapped, and a path's brackets are no markup. Whoever reads may have had
        # enough (`| head`): rich then falls silent and wants to exit, but the job goes on.
        console = self.console
        if console.quiet and text.startswith("warning: "):
            console = warning_console()
        with suppress(SystemExit):
            console.print(text, highlight=False, markup=False, soft_wrap=True)

    def show(self, view: "JobView") -> None:
        """Show a view of the job."""
        from distrain.jobs import AttemptStarted, Notice, Record

        left = self._ended if view.state.is_final else self._left
        if left:
            if_interrupted(left)
        for restart in view.restarts[self._shown_restarts :]:
            first_line = restart.message.splitlines()[0]
            self.say(
                f"attempt {restart.attempt} ended after step {restart.step}: "
                f"{restart.reason}: {first_line}"
            )
        self._shown_restarts = len(view.restarts)
        if not view.state.is_final:
            self._show_state(view)
        for entry in view.progress:
            match entry:
                case AttemptStarted(step=0, attempt=1):
                    pass
                case AttemptStarted():
                    ranks = f"{entry.num_ranks} rank{'s' if entry.num_ranks > 1 else ''}"
                    self.say(f"attempt {entry.attempt} trains on {ranks} from step {entry.step} on")
                case Notice():
                    self.say(f"warning: {entry.text}")
                case Record(split="valid"):
                    self.say(f"validated at step {entry.step}: {_scores(entry)}")
        train = [record for record in view.records if record.split == "train"]
        if train:
            self._show_step(view, train[-1])
        if view.state.is_final:  # after what led there
            self._show_state(view)

    def _show_state(self, view: "JobView") -> None:
        state = f"{view.state.value}: {view.why_pending}" if view.why_pending else view.state.value
        without_numbers = re.sub(r"\d[\d.]*", "#", state)  # seconds left, say
        if without_numbers != self._shown_state:
            self._shown_state = without_numbers
            self.say(f"job {view.job_id}: {state}")

    def _show_step(self, view: "JobView", record: "Record") -> None:
        line = _step_line(record, view.num_steps, view.total_rows)
        if self._bar is not None:
            self._bar.update(
                self._task, description=line, total=view.num_steps, completed=record.step
            )
        now_s = time.monotonic()
        last = record.step == view.num_steps
        if self._bar is None and (last or now_s - self._last_line_s >= JOB_LINE_EVERY_S):
            self._last_line_s = now_s
            self.say(line)


def _step_line(record: "Record", num_steps: int | None, total_rows: int | None) -> str:
    """One line: step, rows/s, loss, AUC, stall, time left."""
    parts = [
        f"step {record.step}/{num_steps or '?'}",
        f"{count(record.rows_per_s or 0.0)} rows/s",
        _scores(record),
        f"stall max {percent(record.stall_max_pct or 0.0, 0)}",
    ]
    if total_rows and record.elapsed_s > 0 and record.rows_total:
        remaining = total_rows - record.rows_total
        parts.append(f"ETA {duration(remaining * record.elapsed_s / record.rows_total, 0)}")
    return "  ".join(parts)


def _scores(record: "Record") -> str:
    return f"loss {number(record.loss, 4)}  AUC {number(record.auc, 4)}"


class WorkProgress:
    """Shows the phases of some work, one after another or at the same time.

    Args:
        console: Where to write; whether it is a terminal decides the form.
        now_s: A clock, in seconds.
        from_start: Without a terminal, whether each phase gets a line at its start and its end,
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
        size: tuple[int, int] = (0, 0),
    ) -> None:
        """Show how far a phase is: `done` of `total` units, and `rows` rows.

        `size` are the bytes that are done, and those of all, where they are known.
        """
        now_s = self._now_s()
        if not self._began_s:  # the first phase began with the work
            self._began_s[phase] = self._entered_s
        elapsed_s = now_s - self._began_s.setdefault(phase, now_s)
        facts = _work_line(done, total, rows, elapsed_s, unit, size)
        if self._bars is not None:
            if phase not in self._tasks:
                self._tasks[phase] = self._bars.add_task(phase, total=total, facts=facts)
            self._bars.update(self._tasks[phase], completed=done, facts=facts)
        elif self._is_due(phase, done, total, now_s):
            self._last_line_s[phase] = now_s
            self._console.print(f"{phase}: {facts}", markup=False, highlight=False)

    def _is_due(self, phase: str, done: int, total: int, now_s: float) -> bool:
        begun = phase in self._last_line_s or self._from_start
        last_s = self._last_line_s.get(phase, self._began_s[phase])
        return (begun and done in (0, total)) or now_s - last_s >= WORK_LINE_EVERY_S


def _work_line(
    done: int,
    total: int,
    rows: int,
    elapsed_s: float,
    unit: str,
    size: tuple[int, int] = (0, 0),
) -> str:
    """How far some work is, its rates, and the time left at these.

    >>> _work_line(3, 12, 1_200_000, 10.0, "tasks")
    '3/12 tasks, 1,200,000 rows, 120,000 rows/s, ETA 30s'
    >>> _work_line(3, 4, 1_200_000, 10.0, "tasks", (5 << 29, 10 << 30))
    '3/4 tasks, 2.50 GiB of 10.00 GiB, 256.00 MiB/s, 1,200,000 rows, 120,000 rows/s, ETA 30s'
    >>> _work_line(0, 12, 0, 0.0, "tasks")
    '0/12 tasks, 0 rows'
    """
    parts = [f"{done:,}/{total:,} {unit}"]
    done_bytes, all_bytes = size
    if all_bytes:
        parts.append(f"{byte_size(done_bytes)} of {byte_size(all_bytes)}")
        if done_bytes and elapsed_s > 0:
            parts.append(f"{byte_size(done_bytes / elapsed_s)}/s")
    if unit != "rows":
        parts.append(f"{count(rows)} rows")
    if rows and elapsed_s > 0:
        parts.append(f"{count(rows / elapsed_s)} rows/s")
    if 0 < done < total:
        # Tasks may be of very different sizes.
        share = done_bytes / all_bytes if done_bytes else done / total
        parts.append(f"ETA {duration(elapsed_s * (1 - share) / share, 0)}")
    elif done == total and elapsed_s > 0:
        parts.append(f"in {duration(elapsed_s, 0)}")
    return ", ".join(parts)
