"""A scheduler's answers as values of `decide`, and the rows of attempts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from distrain.service.clusters import FIGURES, Changes, SeenJob, is_figure
from distrain.service.decide import Sighting, Told, Workers
from distrain.service.store import Attempt
from distrain.service.values import Job

MOST_CHARACTERS = 8000
"""Of one text in a row: each change of a job copies its message into an event."""

_STATE_CHARACTERS, _REASON_CHARACTERS = 32, 64  # of their columns


def storable(text: str, most: int = MOST_CHARACTERS) -> str:
    r"""A text that every database can hold: not all hold NUL, and none holds half a character.

    What users' code raises becomes a job's message. One that could not be written would keep all
    rows of its pass from being written, again and again.

    >>> storable("a\0b\udcff"), storable("abcdef", 4)
    ('a\\0b?', 'abc…')
    """
    if len(text) <= most and text.isascii() and "\0" not in text:
        return text
    plain = text.replace("\0", "\\0").encode(errors="replace").decode()
    return plain if len(plain) <= most else plain[: most - 1] + "…"


def told_of(answer: Changes) -> Told:
    """A scheduler's answer."""
    counts = answer.workers
    workers = Workers(counts.total, counts.usable, counts.free, counts.gpus)
    jobs = tuple(map(sighting_of, answer.jobs))
    return Told(answer.epoch, answer.revision, answer.more, workers, jobs)


def sighting_of(job: SeenJob) -> Sighting:
    """A job in it."""
    view = job.view
    shown: Mapping[str, Any] = job.document.get("view") or {}
    return Sighting(
        job.job_id,
        job.service or "",
        job.first_attempt,
        storable(str(job.state), _STATE_CHARACTERS),
        job.attempt,
        job.priority,
        _storable(view.reason if view else shown.get("reason"), _REASON_CHARACTERS),
        _storable(view.message if view else shown.get("message")),
        storable(view.why_pending if view else str(shown.get("why_pending") or "")),
        _progress(job),
        view,
    )


def _storable(text: object, most: int = MOST_CHARACTERS) -> str | None:
    return None if text is None else storable(str(text), most)


def _progress(job: SeenJob) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for name in FIGURES:
        value = getattr(job, name)
        if value is not None:  # that they are numbers was seen when they were read
            figures[name] = value
    if job.view is not None:
        if job.view.num_steps is not None:
            figures["num_steps"] = job.view.num_steps
        figures["restarts"] = len(job.view.restarts)
        if is_figure(job.view.checkpoints.count):
            figures["checkpoints"] = job.view.checkpoints.count
    return figures


def attempts_of(job: Job, columns: Mapping[str, Any]) -> tuple[Attempt, ...]:
    """The rows of a job's attempts that a change of its row begins or ends."""
    epoch = str(columns.get("epoch") or job.epoch or "")
    now_s = float(columns.get("observed_at_s") or 0.0)
    number = int(columns.get("attempt") or 0)
    step = columns.get("progress", job.progress).get("step")
    reason = columns.get("reason", job.reason)
    message = columns.get("message", job.message)
    rows = []
    if number > job.attempt > 0:
        ended = Attempt(job.id, job.attempt, epoch, job.started_at_s or now_s, now_s)
        rows.append(ended)
    if number and (number != job.attempt or columns.get("finished_at_s")):
        began_s = now_s if number != job.attempt else job.started_at_s or now_s
        now = Attempt(job.id, number, epoch, began_s, step=step)
        if ended_s := columns.get("finished_at_s"):
            now = replace(now, ended_at_s=ended_s, reason=reason, message=message)
        rows.append(now)
    return tuple(rows)
