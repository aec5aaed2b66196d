"""Describes one job in lines, for `distrain status`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from distrain.cli.output import clean_line
from distrain.formatting import count, kept_step, scores

if TYPE_CHECKING:
    from distrain.jobs.api_answers import Job

LINES = (
    "job", "state", "project", "owner", "cluster", "submitted", "started", "ended", "last heard",
    "ranks", "attempt", "restarts", "step", "rows/s", "validation", "training", "ends in",
    "kept", "priority", "checkpoints", "run directory", "clone of", "tags", "model", "reason",
)  # fmt: skip


def status_lines(job: "Job", more: Mapping[str, str | None]) -> list[str]:
    """Return the lines about a job, in the order of `LINES`, without empty ones.

    `more` has values by name that are added to those of the job, or replace them.
    """
    facts: dict[str, str | None] = {
        "job": job.job_id,
        "state": f"{job.state}: {job.why_pending}" if job.why_pending else job.state,
        "ranks": str(job.num_ranks),
        "attempt": str(job.attempt),
        "step": f"{job.step or 0}/{job.num_steps or '?'}",
        "rows/s": count(job.rows_per_s),
        "validation": scores(job.valid_loss, job.valid_auc, targets=job.valid_targets),
        "training": scores(job.loss, job.auc, targets=job.targets),
        "kept": None
        if job.model_step is None
        else kept_step(job.model_step, job.step, refit_steps=job.refit_steps),
        "priority": str(job.priority),
        "run directory": job.run_dir,
        "tags": ", ".join(f"{name}={value}" for name, value in job.tags.items()),
        "reason": job.reason,
        **more,
    }
    return [f"{name:15}{clean_line(facts[name])}" for name in LINES if facts.get(name)]
