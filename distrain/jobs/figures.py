"""Declares the figures (numbers) of jobs: names, units and texts, and which screens show them.

A figure is a field of `JobFigures`, or of the longer document that a scheduler makes for its own
screens (`job_summary`). Each screen shows the figures of `SHOWN` whose `on` names the screen, in
that order. To show a new figure, add it to `SHOWN`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from distrain.formatting import count, duration, percent

Screen = Literal["status", "jobs", "line", "training", "card", "comparison"]
"""The screens: `distrain status`; the tables of `distrain jobs` and of the service's page; lines of
progress, as in `distrain top` and `submit --follow`; the Training page in Dask's dashboard; a job's
page in the service; the service's comparison of jobs."""


@dataclass(frozen=True)
class Figure:
    """A number in jobs' documents: its name, and how screens and Prometheus show it."""

    name: str  # the field in a job's document
    title: str  # as a heading, with its unit
    text: Callable[[float | None], str]
    on: tuple[Screen, ...]
    phrase: str = "{title} {text}"  # the figure in a line of text
    best: Callable[[Iterable[float]], float] | None = None  # chooses the best of several jobs
    metric: str = ""  # the Prometheus metric, `distrain_job_METRIC`; "": none
    is_counter: bool = False  # whether that metric only grows

    def of(self, job: Mapping[str, Any]) -> str:
        """Return this number of a job's document as text, `-` if it is unknown."""
        return self.text(job.get(self.name))


_WHOLE = partial(duration, decimals=0)
SHOWN = (
    Figure("step", "Steps", count, ("comparison",), metric="steps_done"),
    Figure("num_steps", "Planned steps", count, (), metric="steps_planned"),
    Figure(
        "rows_per_s",
        "Rows/s",
        count,
        ("status", "jobs", "line", "training", "comparison"),
        "{text} rows/s",
        max,
    ),
    Figure(
        "stall_mean_pct",
        "Waiting for data",
        percent,
        ("line", "training"),
        "waiting for data {text}",
    ),
    Figure("elapsed_s", "Training time", _WHOLE, ("training",), "{text} of training"),
    Figure(
        "eta_s",
        "Time left",
        _WHOLE,
        ("status", "line", "training"),
        "{text} left",
        metric="eta_seconds",
    ),
    Figure(
        "restarts",
        "Restarts",
        count,
        ("status", "line", "training"),
        metric="restarts",
        is_counter=True,
    ),
    Figure(
        "checkpoints",
        "Checkpoints",
        count,
        ("line", "training", "card"),
        metric="checkpoints",
        is_counter=True,
    ),
    Figure("model_step", "Saved step", count, ("comparison",)),
    Figure("refit_steps", "Refit steps", count, ("comparison",)),
)


def shown_on(screen: Screen) -> list[Figure]:
    """Return the numbers that a screen shows, in their order in `SHOWN`."""
    return [figure for figure in SHOWN if screen in figure.on]


def phrases(job: Mapping[str, Any], screen: Screen) -> list[str]:
    """Return the figures that a screen shows, as parts of a line.

    Figures that are missing, `None` or 0 in the document `job` are left out.

    >>> phrases({"rows_per_s": 1234.0, "restarts": 0, "eta_s": 90.0}, "line")
    ['1,234 rows/s', '1m30s left']
    """
    return [
        figure.phrase.format(title=figure.title.lower(), text=figure.of(job))
        for figure in shown_on(screen)
        if job.get(figure.name)
    ]
