"""Shows the progress of a job: a bar on a terminal, plain lines elsewhere."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from distrain.cli.interrupts import if_interrupted
from distrain.cli.outcome import how_to_follow
from distrain.cli.output import (
    json_wanted,
    print_answer,
    print_remark,
    print_result,
    progress_console,
    warning_console,
)
from distrain.launch.reporting import LoggedProgress

if TYPE_CHECKING:
    from rich.console import Console

    from distrain.jobs.job_view import JobView, Record
    from distrain.launch.run import RunRequest


_WIDE = 110  # columns of a terminal that fit a long bar beside its text


class JobProgress(LoggedProgress):
    """Shows views of one job as they arrive, with a bar if the console is a terminal.

    If Ctrl-C or SIGTERM ends the command after the first view, its message ends with `left`; after
    the job's end, with `ended` instead.
    """

    def __init__(self, console: "Console", left: str = "", ended: str = ""):
        super().__init__()
        self._left = left
        self._ended = ended or left
        self.console = console
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> "JobProgress":
        if self.console.is_terminal:
            from rich.progress import BarColumn, Progress, TextColumn
            from rich.table import Column

            width = self._bar_width = 24 if self.console.width >= _WIDE else 8
            self._bar = Progress(
                BarColumn(width, table_column=Column(no_wrap=True, min_width=width)),
                TextColumn(
                    "{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis")
                ),
                console=self.console,
                transient=True,  # the last line shows how the job ended
            )
            self._bar.start()
            self._task = self._bar.add_task("ranks are starting", total=None)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, text: str) -> None:
        """Print a line above the progress."""
        # Not wrapped, and without markup in a path's brackets. If the reader closes the pipe
        # (`| head`), rich falls silent and raises SystemExit, but the job must continue.
        console = self.console
        if console.quiet and text.startswith("warning: "):
            console = warning_console()
        with suppress(SystemExit):
            console.print(text, highlight=False, markup=False, soft_wrap=True)

    def show(self, view: "JobView") -> None:
        left = self._ended if view.state.is_final else self._left
        if left:
            if_interrupted(left)
        super().show(view)

    def show_step(self, view: "JobView", record: "Record") -> None:
        if self._bar is None:
            super().show_step(view, record)
        else:
            line = self.step_line(view, record)
            room = self.console.width - self._bar_width - 1
            while "  " in line and len(line) > room:
                line = line.rpartition("  ")[0]  # the least important part is the last one
            self._bar.update(
                self._task,
                description=line,
                total=view.num_steps,
                completed=record.step,
            )


def submit_detached(run: "RunRequest", *, waits: bool = False, checks: bool = False) -> None:
    """Submit a run to a scheduler; print its run folder and, unless `waits`, how to follow it.

    With `checks`, a worker checks the data first.
    """
    from distrain.launch.detached import submit  # late: it imports the client of the API

    follow = how_to_follow(run.job_id, run.scheduler)
    submit(
        run,
        JobProgress(progress_console()),
        lambda: if_interrupted(f"job {run.job_id} is submitted; {follow}"),
        checks_on_worker=checks,
    )
    root = run.run_dir.absolute()
    if json_wanted() and not waits:
        print_answer(job_id=run.job_id, run_dir=str(root), scheduler=run.scheduler)
    print_result(f"job {run.job_id} is submitted; its run folder is {root}")
    if not waits:
        print_remark(follow)
