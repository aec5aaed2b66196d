"""A job's progress on the screen: one live line on a terminal, plain lines elsewhere."""

import re
import time
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from distrain.cli.interrupts import if_interrupted
from distrain.cli.output import warning_console

if TYPE_CHECKING:
    from rich.console import Console

    from distrain.coordinator.view import JobView, Record

PLAIN_INTERVAL_S = 5.0


class LiveProgress:
    """Shows views of one job as they come.

    Args:
        console: Where to write; whether it is a terminal decides the form.
        left: What a command leaves behind that is told to end after the first view.
        ended: The same after the last view.
    """

    def __init__(self, console: "Console", left: str = "", ended: str = ""):
        self._left = left
        self._ended = ended or left
        self.console = console
        self._bar: Any = None
        self._task: Any = None
        self._told_state = ""
        self._told_setbacks = 0
        self._last_line_s = 0.0

    def __enter__(self) -> "LiveProgress":
        if self.console.is_terminal:
            from rich.progress import BarColumn, Progress, TextColumn

            self._bar = Progress(
                TextColumn("{task.description}"), BarColumn(24), console=self.console
            )
            self._bar.start()
            self._task = self._bar.add_task("ranks are starting", total=None)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
        from distrain.coordinator.view import Notice, Record, Resumed

        left = self._ended if view.state.is_final else self._left
        if left:
            if_interrupted(left)
        for setback in view.restarts[self._told_setbacks :]:
            first_line = setback.message.splitlines()[0]
            self.say(
                f"attempt {setback.attempt} ended after step {setback.step}: "
                f"{setback.reason}: {first_line}"
            )
        self._told_setbacks = len(view.restarts)
        if not view.state.is_final:
            self._show_state(view)
        for entry in view.progress:
            match entry:
                case Resumed(step=0, attempt=1):
                    pass
                case Resumed():
                    ranks = f"{entry.num_ranks} rank{'s' if entry.num_ranks > 1 else ''}"
                    self.say(f"attempt {entry.attempt} trains on {ranks} from step {entry.step} on")
                case Notice():
                    self.say(f"warning: {entry.text}")
                case Record(split="valid"):
                    self.say(f"validated at step {entry.step}: {_scores(entry)}")
        train = [record for record in view.records if record.split == "train"]
        if train:
            self._show_progress(view, train[-1])
        if view.state.is_final:  # said last, after what led there
            self._show_state(view)

    def _show_state(self, view: "JobView") -> None:
        state = f"{view.state.value}: {view.why_pending}" if view.why_pending else view.state.value
        without_numbers = re.sub(r"\d[\d.]*", "#", state)  # seconds left, say
        if without_numbers != self._told_state:
            self._told_state = without_numbers
            self.say(f"job {view.job_id}: {state}")

    def _show_progress(self, view: "JobView", record: "Record") -> None:
        line = progress_line(record, view.num_steps, view.total_rows)
        if self._bar is not None:
            self._bar.update(
                self._task, description=line, total=view.num_steps, completed=record.step
            )
        now_s = time.monotonic()
        last = record.step == view.num_steps
        if self._bar is None and (last or now_s - self._last_line_s >= PLAIN_INTERVAL_S):
            self._last_line_s = now_s
            self.say(line)


def progress_line(record: "Record", num_steps: int | None, total_rows: int | None) -> str:
    """One line: step, rows/s, loss, AUC, stall, time left."""
    speed = record.rows_per_s or 0.0
    parts = [
        f"step {record.step}/{num_steps or '?'}",
        f"{speed:,.0f} rows/s",
        _scores(record),
        f"stall {record.stall_max_pct or 0.0:.0f} %",
    ]
    if total_rows and record.elapsed_s > 0:
        remaining = total_rows - record.rows_total
        mean_speed = record.rows_total / record.elapsed_s
        parts.append(f"ETA {duration(remaining / mean_speed)}" if mean_speed else "")
    return "  ".join(part for part in parts if part)


def duration(seconds: float) -> str:
    """A time span for people.

    >>> duration(75), duration(3700), duration(4.2)
    ('1m15s', '1h01m', '4s')
    """
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 60}m{whole % 60:02d}s" if whole >= 60 else f"{whole}s"


def _scores(record: "Record") -> str:
    loss = "-" if record.loss is None else f"{record.loss:.4f}"
    auc = "-" if record.auc is None else f"{record.auc:.4f}"
    return f"loss {loss}  AUC {auc}"
