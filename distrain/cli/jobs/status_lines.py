"""Describes a job in lines of text: its state, its progress, or all its facts."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from distrain.cli.output import clean_line
from distrain.formatting import UNKNOWN, count, model_step_text, scores, steps
from distrain.jobs.figures import phrases, shown_on
from distrain.jobs.status import figures_in, is_number, restart_in

if TYPE_CHECKING:
    from distrain.jobs.api_answers import Job


def state_line(job: "Job") -> str:
    """Return a job's state and, if known, why it waits or failed, as one line."""
    return f"{clean_line(job.state)}{f': {clean_line(job.why)}' if job.why else ''}"


def progress_line(document: Mapping[str, Any]) -> str:
    """Describe the progress of a job in one line: its step, speed and metrics.

    `document` is the API's JSON of the job, or of an event about its progress.
    """
    numbers = figures_in(document)
    words = [f"step {steps(numbers.get('step'), numbers.get('num_steps'))}"]
    words += phrases({n: v for n, v in document.items() if is_number(v)}, "line")
    for split, before in (("training", ""), ("validation", "valid_")):
        figures = [numbers.get(f"{before}{name}") for name in ("loss", "auc", "targets")]
        if any(value is not None for value in figures):
            words.append(f"{split} {scores(figures[0], figures[1], targets=figures[2])}")
    return ", ".join(words)


def job_lines(job: "Job") -> list[str]:
    """Return all known facts of a job as lines for people: one per fact, restart and message."""
    more = job.document
    state = job.state + (f", last known as {job.last_known}" if job.last_known else "")
    facts = {
        "job": job.id,
        "state": state + (f": {job.why_pending}" if job.why_pending else ""),
        "project": job.project,
        "owner": job.owner,
        "cluster": job.cluster,
        "submitted": _whole_s(job.created_at),
        "started": _whole_s(job.started_at),
        "ended": _whole_s(job.finished_at),
        "last heard": _whole_s(job.observed_at),
        "ranks": str(job.num_ranks),
        "attempt": str(job.attempt),
        "step": steps(job.step, job.num_steps),
        **{one.title.lower(): one.of(job.figures) for one in shown_on("status")},
        "validation": scores(job.valid_loss, job.valid_auc, targets=job.valid_targets),
        "training": scores(job.loss, job.auc, targets=job.targets),
        "saved step": model_step_text(
            job.model_step,
            job.step,
            stopped_early=job.stopped_early_step is not None,
            refit_steps=job.refit_steps,
        ),
        "priority": str(job.priority),
        "checkpoints": _checkpoints(job, more.get("last_checkpoint") or {}),
        "run folder": job.run_dir,
        "clone of": job.parent,
        "tags": ", ".join(f"{name}={value}" for name, value in job.tags.items()),
        "model": more.get("model_path"),
        "reason": job.reason,
    }
    lines = [
        f"{name:15}{clean_line(text)}" for name, text in facts.items() if text and text != UNKNOWN
    ]
    lines += [
        f"{'restart':15}attempt {setback['attempt']} ended after step {count(setback['step'])}: "
        f"{setback['reason']}: {clean_line(setback['message'])}"
        for setback in map(restart_in, more.get("setbacks") or [job.last_restart])
        if setback
    ]
    return [*lines, *(job.message or "").splitlines()]


def _whole_s(time: str | None) -> str:
    """Return a time of the API without fractions of seconds; "" for `None`."""
    return re.sub(r"\.\d+", "", time or "")


def _checkpoints(job: "Job", last: Mapping[str, Any]) -> str | None:
    if not (job.checkpoints and last.get("path")):
        return None if job.checkpoints is None else str(job.checkpoints)
    return f"{job.checkpoints}, the last of step {count(last['step'])}: {last['path']}"
