"""`distrain status`: the state of one job."""

from typing import TYPE_CHECKING

import click

from distrain.cli.jobs.place import READ_S, Place, job_options
from distrain.cli.options import json_option
from distrain.cli.output import clean_line, print_answer, print_result
from distrain.wording import count, duration, scores

if TYPE_CHECKING:
    from distrain.jobs import JobStatus, JobView


@click.command("status")
@click.argument("job")
@job_options
@json_option("Print the job as JSON.")
def command(job: str, place: Place, as_json: bool) -> None:
    """Show the state of JOB: its step, restarts, checkpoints, and why it waits or failed.

    JOB is a job's id, or its beginning. The exit code is 0 also for a job that failed.

    \b
    Examples:
      distrain status dlrm-20260301-123000-ab12 --scheduler tcp://10.0.0.5:8786
      distrain status dlrm --json
      distrain status dlrm --server https://jobs.example
    """
    with place.jobs(READ_S) as jobs:
        document, lines = jobs.status(job)
    if as_json:
        print_answer(**document)
    for line in lines:
        print_result(line)


def status_lines(job: "JobStatus", view: "JobView") -> list[str]:
    facts: dict[str, str] = {
        "job": job.job_id,
        "state": job.state + (f": {view.why_pending}" if view.why_pending else ""),
        "submitted": f"{duration(job.age_s, 0)} ago",
        "ranks": str(job.num_ranks),
        "attempt": str(view.attempt),
        "step": f"{job.step or 0}/{job.num_steps or '?'}",
        "rows/s": count(job.rows_per_s),
        "validation": scores(job.valid_loss, job.valid_auc),
        "training": scores(job.loss, job.auc),
        "priority": str(job.priority),
        "checkpoints": _checkpoints(view),
        "run directory": job.run_dir,
    }
    if job.tags:
        facts["tags"] = ", ".join(f"{name}={value}" for name, value in job.tags.items())
    if view.model_path:
        facts["model"] = view.model_path
    if view.reason:
        facts["reason"] = view.reason
    lines = [f"{name:15}{clean_line(value)}" for name, value in facts.items()]
    lines += [
        f"{'restart':15}attempt {restart.attempt} ended after step {restart.step}: "
        f"{restart.reason}: {clean_line(restart.message)}"
        for restart in view.restarts
    ]
    return [*lines, *(view.message or "").splitlines()]


def _checkpoints(view: "JobView") -> str:
    saved = view.checkpoints
    return f"{saved.count}, the last of step {saved.step}: {saved.path}" if saved.count else "none"
