"""The rows of a job's attempts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from distrain.service.store import Attempt
from distrain.service.values import Job


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
