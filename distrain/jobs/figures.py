"""Declares the figures of jobs: names, units and texts, and which screens show them.

A figure is a field of `JobFigures`, or of the longer document that a scheduler makes for its own
screens. Each screen shows the figures that name it, in this order, so a new figure needs no change
in any screen.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Flag, auto
from functools import partial
from typing import Any

from distrain.formatting import UNKNOWN, count, duration, percent


class Screen(Flag):
    STATUS = auto()  # `distrain status`
    JOBS = auto()  # the tables of `distrain jobs` and of the service's page
    LINE = auto()  # lines of progress: `top` without a terminal, `submit --follow`
    TRAINING = auto()  # the Training page in Dask's dashboard
    CARD = auto()  # a job's page in the service
    COMPARISON = auto()  # the service's comparison of jobs


@dataclass(frozen=True)
class Figure:
    name: str  # the field in a job's document
    title: str  # as a heading, with its unit
    text: Callable[[float | None], str]
    on: Screen
    phrase: str = "{title} {text}"  # the figure in a line of text
    best: Callable[[Sequence[float]], float] | None = None  # chooses the best of several jobs
    metric: str = ""  # the Prometheus metric, `distrain_job_METRIC`; "": none
    is_counter: bool = False  # whether that metric only grows

    def of(self, job: Mapping[str, Any]) -> str:
        """Return the figure of a job's document as a text, `-` if it is unknown."""
        return self.text(job.get(self.name))


_WHOLE = partial(duration, decimals=0)
SHOWN = (
    Figure("step", "Steps", count, Screen.COMPARISON, metric="steps_done"),
    Figure("num_steps", "Planned steps", count, Screen(0), metric="steps_planned"),
    Figure(
        "rows_per_s", "Rows/s", count, ~Screen.CARD, "{text} rows/s", max,
    ),
    Figure(
        "stall_mean_pct", "Waits for data", percent, Screen.LINE | Screen.TRAINING,
        "waits for data {text}",
    ),
    Figure("elapsed_s", "So far", _WHOLE, Screen.TRAINING, "{text} so far"),
    Figure(
        "eta_s", "Time left", _WHOLE, Screen.STATUS | Screen.LINE | Screen.TRAINING, "{text} left",
        metric="eta_seconds",
    ),
    Figure(
        "restarts", "Restarts", count, Screen.STATUS | Screen.LINE | Screen.TRAINING,
        metric="restarts", is_counter=True,
    ),
    Figure(
        "checkpoints", "Checkpoints", count, Screen.TRAINING | Screen.CARD,
        metric="checkpoints", is_counter=True,
    ),
    Figure("model_step", "Best step", count, Screen.COMPARISON),
    Figure("refit_steps", "Refit steps", count, Screen.COMPARISON),
)  # fmt: skip


def shown_on(screen: Screen) -> list[Figure]:
    """Return the figures of a screen, in their order."""
    return [figure for figure in SHOWN if screen in figure.on]


def phrases(job: Mapping[str, Any], screen: Screen) -> list[str]:
    """Return a job's figures as parts of a line, without unknown ones and zeros.

    >>> phrases({"rows_per_s": 1234.0, "restarts": 0, "eta_s": 90.0}, Screen.LINE)
    ['1,234 rows/s', '1m30s left']
    """
    known = [figure for figure in shown_on(screen) if job.get(figure.name)]
    texts = [(figure, figure.of(job)) for figure in known]
    return [
        figure.phrase.format(title=figure.title.lower(), text=text)
        for figure, text in texts
        if text != UNKNOWN
    ]
