"""Reports a run's progress as text, on a screen or in a log."""

import logging
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol

from distrain.formatting import (
    count,
    duration,
    main_metrics,
    number,
    own_metric_rows,
    percent,
    steps,
)
from distrain.jobs.job_view import AttemptStarted, JobView, Notice, Record
from distrain.jobs.spec.training import RETRIEVAL_METRIC
from distrain.jobs.target_names import LABEL, with_own_name

LINE_EVERY_S = 5.0
"""Seconds between two lines about a job's steps."""

log = logging.getLogger("distrain")


class Progress(Protocol):
    """Reports a run's progress to the user; the interface of `fit(progress=)`.

    `say` gets lines about the job, also before the `with` block. Within the block the job runs, and
    `show` gets each of its views.
    """

    def __enter__(self) -> object: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

    def say(self, text: str) -> None:
        """Report a line about the job to the user."""
        ...

    def show(self, view: JobView) -> None:
        """Report a view (the job's state and progress) to the user."""
        ...


class LoggedProgress(AbstractContextManager["LoggedProgress"]):
    """Reports lines of text to `write`, or to the log `distrain`."""

    _write: Callable[[str], None] | None = None
    _shown_state = ""
    _shown_restarts = 0
    _last_line_s = 0.0
    _validated: tuple[Record, ...] = ()
    target = LABEL  # the name of the first target

    def __init__(self, write: Callable[[str], None] | None = None):
        self._write = write

    def __exit__(self, *_: object) -> None:
        pass

    def say(self, text: str) -> None:
        if self._write is None:
            log.info("%s", text)
        else:
            self._write(text)

    def show(self, view: JobView) -> None:
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
                    self.say(f"{'warning' if entry.is_warning else 'note'}: {entry.text}")
                case Record(split="valid"):
                    self._validated += (entry,)
                    self.say(f"validated at step {entry.step}: {_scores(entry, self.target)}")
                case Record(split="next_window"):
                    self.say(
                        f"window {entry.window} before it is trained: {_scores(entry, self.target)}"
                    )
        train = [record for record in view.records if record.split == "train"]
        if train:
            self.show_step(view, train[-1])
        if view.state.is_final:  # after the entries that explain it
            # In a resumed run, the validation may have been shown before the resume.
            of_model = [one for one in self._validated if one.step == view.model_step]
            chosen = of_model[-1] if view.refit and of_model else None
            if chosen is not None:
                scores = _scores(chosen, self.target)
                self.say(f"validated at step {chosen.step}, before the refit: {scores}")
            self._show_state(view)

    def show_step(self, view: JobView, record: Record) -> None:
        """Show a training record, unless one was shown in the last `LINE_EVERY_S` seconds.

        The record of the job's last step is always shown.
        """
        now_s = time.monotonic()
        if record.step == view.num_steps or now_s - self._last_line_s >= LINE_EVERY_S:
            self._last_line_s = now_s
            self.say(self.step_line(view, record))

    def step_line(self, view: JobView, record: Record) -> str:
        """Return a line on a training record, the main figures first, since screens may be narrow.

        A refit has no metrics but its loss: its training rows include the validation rows. For a
        regression this is the RMSE.
        """
        parts = [f"step {steps(record.step, view.num_steps)}"]
        if view.total_rows and record.elapsed_s > 0 and record.rows_total:
            remaining = view.total_rows - record.rows_total
            parts.append(f"{duration(remaining * record.elapsed_s / record.rows_total, 0)} left")
        scores = _scores(record, self.target)
        if view.refit and record.step > view.refit["step"]:
            losses = _losses(record) or _metrics(record, self.target)
            scores = ", ".join(["refit", *(f"training {loss}" for loss in losses[:1])])
        speed = f"{count(record.rows_per_s or 0.0)} rows/s"
        waiting = f"waiting for data {percent(record.stall_mean_pct or 0.0, 0)}"
        return "  ".join([*parts, scores, speed, waiting])

    def _show_state(self, view: JobView) -> None:
        state = f"{view.state.value}: {view.why_pending}" if view.why_pending else view.state.value
        without_numbers = re.sub(r"\d[\d.]*", "#", state)  # such as remaining seconds
        if without_numbers != self._shown_state:
            self._shown_state = without_numbers
            self.say(f"job {view.job_id}: {state}")


def _scores(record: Record, target: str) -> str:
    return "  ".join([*_losses(record), *_metrics(record, target)])


def _losses(record: Record) -> list[str]:
    """Return the loss of the first target with a log loss as text; none for a regression."""
    of_targets = (figures.get("log_loss") for figures in (record.targets or {}).values())
    losses = [loss for loss in (record.loss, *of_targets) if loss is not None]
    return [f"loss {number(loss, 4)}" for loss in losses[:1]]


def _metrics(record: Record, target: str) -> list[str]:
    """Return the metrics of all targets as texts; a model for retrieval has a recall, not an AUC.

    Metrics without a value are left out, such as the AUC of rows with one label.
    """
    targets, own = with_own_name(record.targets, target), record.own or {}
    has_auc = record.auc is not None and RETRIEVAL_METRIC not in own
    auc = [f"AUC {number(record.auc, 4)}"] if has_auc else []
    more = [f"{one} {name} {value}" for one, name, value in main_metrics(targets)]
    return [*auc, *more, *(f"{name} {value}" for name, value in own_metric_rows(own))]
