"""Shows a run's progress in a notebook: a bar, the last lines, and a chart of the loss."""

import sys
import time
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from distrain.jobs.view import JobView, Record
from distrain.launch.reporting import LoggedProgress, step_line
from distrain.runs.report import colours

_DRAW_EVERY_S = 0.5
_LINES = 8
_WIDTH, _HEIGHT, _MARGIN = 560, 180, 44
_COLOURS = {"train": colours.TRAIN, "valid": colours.VALID}


def progress_here() -> LoggedProgress:
    """Return the progress for this process: for a notebook, a terminal or the log."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if getattr(shell, "kernel", None) is not None:
        return NotebookProgress()
    if sys.stderr is not None and sys.stderr.isatty():
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
        self._drawn_s = 0.0

    def show(self, view: JobView) -> None:
        self._records += view.records
        super().show(view)
        self._draw(at_once=view.state.is_final)

    def show_step(self, view: JobView, record: Record) -> None:
        self._step = step_line(view, record)
        self._bar = f'<progress value="{record.step}" max="{view.num_steps or 0}"></progress> '

    def _add(self, text: str) -> None:
        self._lines.append(text)
        self._draw(at_once=True)

    def _draw(self, *, at_once: bool) -> None:
        from IPython.display import HTML, display

        now_s = time.monotonic()
        if not at_once and now_s - self._drawn_s < _DRAW_EVERY_S:
            return
        self._drawn_s = now_s
        lines = "\n".join(self._lines[-_LINES:])
        html = HTML(  # type: ignore[no-untyped-call]
            f"<pre>{escape(lines)}</pre><div>{self._bar}<code>{escape(self._step)}</code></div>"
            f"{loss_chart(self._records)}"
        )
        if self._shown is None:
            self._shown = display(html, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._shown.update(html)


def loss_chart(records: Sequence[Record]) -> str:
    """Return a chart of training and validation log loss as SVG; "" for fewer than two points."""
    lines = {
        split: [(r.step, r.loss) for r in records if r.split == split and r.loss is not None]
        for split in _COLOURS
    }
    points = [point for line in lines.values() for point in line]
    if len(points) < 2:
        return ""
    last = max(step for step, _ in points)
    low, high = min(loss for _, loss in points), max(loss for _, loss in points)
    span = (high - low) or 1.0

    def at(step: float, loss: float) -> tuple[float, float]:
        x = _MARGIN + (_WIDTH - 2 * _MARGIN) * step / last
        return round(x, 1), round(_HEIGHT - 24 - (_HEIGHT - 48) * (loss - low) / span, 1)

    drawn = [
        _text(_MARGIN - 6, at(0, high)[1], f"{high:.3f}", "end"),
        _text(_MARGIN - 6, at(0, low)[1], f"{low:.3f}", "end"),
        _text(_WIDTH - _MARGIN, _HEIGHT - 6, f"step {last}", "end"),
    ]
    for place, (split, line) in enumerate(lines.items()):
        if line:
            path = [at(*point) for point in line]
            drawn.append(_line(path, _COLOURS[split]))
            name = f"log loss, {split}"
            drawn.append(_text(_MARGIN + 130 * place, 14, name, "start", _COLOURS[split]))
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'role="img" aria-label="log loss by step">{"".join(drawn)}</svg>'
    )


def _line(path: Iterable[tuple[float, float]], colour: str) -> str:
    path = list(path)
    dots = "".join(f'<circle cx="{x}" cy="{y}" r="2" fill="{colour}"/>' for x, y in path)
    corners = " ".join(f"{x},{y}" for x, y in path)
    return f'<polyline points="{corners}" fill="none" stroke="{colour}"/>{dots}'


def _text(x: float, y: float, text: str, anchor: str, colour: str = "gray") -> str:
    place = f'x="{x}" y="{y}" text-anchor="{anchor}"'
    return f'<text {place} font-size="11" fill="{colour}">{text}</text>'
