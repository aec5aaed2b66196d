"""Shows a run's progress in a notebook: a bar, the last lines, and a chart of the loss."""

import sys
import time
from html import escape
from typing import Any

from distrain.jobs.job_view import JobView, Record
from distrain.launch.reporting import LoggedProgress, log
from distrain.runs.report.figures import loss_image
from distrain.runs.report.markup import pictures_of

_DRAW_EVERY_S = 0.5
_CHART_EVERY_S = 5.0  # a chart takes some tenths of a second
_LINES = 8


def default_progress() -> LoggedProgress:
    """Return the progress reporter that suits this process.

    It reports in the output of a notebook's cell, or on standard error. If that is not a terminal
    and the process has configured logging, it reports in the log.
    """
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if getattr(shell, "kernel", None) is not None:
        return NotebookProgress()
    if sys.stderr is not None and (sys.stderr.isatty() or not log.hasHandlers()):
        return LoggedProgress(lambda text: print(text, file=sys.stderr, flush=True))
    return LoggedProgress()


class NotebookProgress(LoggedProgress):
    """Shows a job in the output of the cell that trains it."""

    def __init__(self) -> None:
        super().__init__(self._add)
        self._lines: list[str] = []
        self._records: list[Record] = []
        self._bar = self._step = ""
        self._shown: Any = None
        self._drawn_s = self._charted_s = 0.0
        self._chart = ""

    def show(self, view: JobView) -> None:
        self._records += view.records
        super().show(view)
        if view.state.is_final or time.monotonic() - self._charted_s >= _CHART_EVERY_S:
            self._draw_chart()
        self._draw(at_once=view.state.is_final)

    def show_step(self, view: JobView, record: Record) -> None:
        self._step = self.step_line(view, record)
        self._bar = f'<progress value="{record.step}" max="{view.num_steps or 0}"></progress> '

    def _add(self, text: str) -> None:
        self._lines.append(text)
        self._draw(at_once=True)

    def _draw_chart(self) -> None:
        if sum(record.loss is not None for record in self._records) > 1:
            self._chart = pictures_of([loss_image(self._records)], "Loss")
            self._charted_s = time.monotonic()

    def _draw(self, *, at_once: bool) -> None:
        from IPython.display import HTML, display

        now_s = time.monotonic()
        if not at_once and now_s - self._drawn_s < _DRAW_EVERY_S:
            return
        self._drawn_s = now_s
        lines = "\n".join(self._lines[-_LINES:])
        html = HTML(  # type: ignore[no-untyped-call]
            f"<pre>{escape(lines)}</pre><div>{self._bar}<code>{escape(self._step)}</code></div>"
            f"{self._chart}"
        )
        if self._shown is None:
            self._shown = display(html, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._shown.update(html)
