"""What commands print of the jobs of a service, and how they end with them."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from distrain.cli.jobs.place import at
from distrain.cli.output import clean_line, print_answer, print_remark, print_result
from distrain.errors import JobCancelled, JobError
from distrain.wording import UNKNOWN, count, scores

if TYPE_CHECKING:
    from distrain.client import Client, Event, Job
    from distrain.jobs import JobStatus

_EVERY_S = 5.0


def job_json(job: "Job") -> dict[str, Any]:
    """A job as the service told it; `job_id` is its id, as with a bare scheduler."""
    return {"job_id": job.id, **job.document}


def listing(job: "Job", now_s: float) -> "JobStatus":
    """A job as tables show it; a state that is not known is shown as it is."""
    from distrain.client import parse_time
    from distrain.jobs import JobStatus

    created = parse_time(job.created_at)
    return JobStatus(
        job_id=job.id,
        name=job.name,
        state=job.state,
        attempt=job.attempt,
        num_ranks=job.num_ranks,
        reason=job.reason,
        why_pending=job.why_pending,
        age_s=max(0.0, now_s - created.timestamp()) if created else None,
        priority=job.priority,
        **job.figures,
    )


def status_lines(job: "Job") -> list[str]:
    """The state of one job, for people."""
    from distrain.jobs import time_left

    state = job.state + (f", last known as {job.last_known}" if job.last_known else "")
    facts = {
        "job": job.id,
        "state": state + (f": {job.why_pending}" if job.why_pending else ""),
        "project": job.project,
        "owner": job.owner,
        "cluster": job.cluster,
        "submitted": job.created_at or UNKNOWN,
        "started": job.started_at,
        "ended": job.finished_at,
        "last heard": job.observed_at,
        "ranks": str(job.num_ranks),
        "attempt": str(job.attempt),
        "restarts": str(job.restarts),
        "step": f"{job.step}/{job.num_steps or '?'}",
        "rows/s": count(job.rows_per_s),
        "validation": scores(job.valid_loss, job.valid_auc),
        "training": scores(job.loss, job.auc),
        "ends in": left if (left := time_left(job.figures, 0)) != UNKNOWN else None,
        "priority": str(job.priority),
        "checkpoints": None if job.checkpoints is None else str(job.checkpoints),
        "run directory": job.run_dir,
        "clone of": job.parent,
        "tags": ", ".join(f"{name}={value}" for name, value in job.tags.items()),
        "reason": job.reason,
    }
    lines = [f"{name:15}{clean_line(value)}" for name, value in facts.items() if value]
    return [*lines, *(job.message or "").splitlines()]


def how_to_follow(job_id: str, address: str) -> str:
    """The commands that follow a job and stop it."""
    where = at(address)
    return f"follow it: distrain attach {job_id}{where}; stop it: distrain cancel {job_id}{where}"


def parse_tags(words: tuple[str, ...]) -> dict[str, str]:
    """Read `NAME=VALUE` words.

    Raises:
        click.UsageError: One is none.
    """
    pairs = [word.partition("=") for word in words]
    for word, (name, sign, _) in zip(words, pairs, strict=True):
        if not (name and sign):
            raise click.UsageError(f"--tag {word}: write NAME=VALUE.")
    return {name: value for name, _, value in pairs}


def parse_overrides(words: tuple[str, ...]) -> dict[str, Any]:
    """Read `--set` words, as JSON values by dotted path.

    Raises:
        click.UsageError: One is none.
    """
    from distrain.spec import parse_yaml

    found: dict[str, Any] = {}
    for word in words:
        name, sign, text = word.partition("=")
        if not (name and sign):
            raise click.UsageError(f"--set {word}: write SECTION.FIELD=VALUE.")
        try:
            found[name] = parse_yaml(text)
        except ValueError as error:
            raise click.UsageError(f"--set {word}: {error}") from None
    return found


def follow(client: "Client", job_id: str) -> "Job":
    """Print a job's states and progress as they come; returns it at its end."""
    told = _Told()
    for event in client.follow(job_id):
        told.tell(event, time.monotonic())
    return client.wait(job_id)


def tell_changes(job: "Job") -> None:
    """Print a job's state: for `wait`."""
    print_remark(_state_line(job.document))


class _Told:
    """What was printed last: a state is printed once, progress now and then."""

    def __init__(self) -> None:
        self._line, self._next_s = "", 0.0

    def tell(self, event: "Event", now_s: float) -> None:
        """Print what is new in an event."""
        line = _state_line(event.data)
        if line and line != self._line:
            print_remark(line)
            self._line = line
        step = event.data.get("step") or _inner(event.data).get("step")
        if step and now_s >= self._next_s:
            print_remark(_progress_line({**event.data, **_inner(event.data)}))
            self._next_s = now_s + _EVERY_S


def _inner(data: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = data.get("progress")
    return inner if isinstance(inner, dict) else {}


def _state_line(data: Mapping[str, Any]) -> str:
    state = data.get("state")
    why = data.get("why_pending") or data.get("reason") or ""
    return f"{clean_line(state)}{f': {clean_line(why)}' if why else ''}" if state else ""


def _progress_line(data: Mapping[str, Any]) -> str:
    names = ("rows_per_s", "loss", "auc", "valid_loss", "valid_auc")
    known = {name: data[name] for name in names if isinstance(data.get(name), (int, float))}
    words = [f"step {data.get('step')}/{data.get('num_steps') or '?'}"]
    words += [f"{count(known['rows_per_s'])} rows/s"] if "rows_per_s" in known else []
    for split, before in (("training", ""), ("validation", "valid_")):
        figures = known.get(f"{before}loss"), known.get(f"{before}auc")
        words += [f"{split} {scores(*figures)}"] if any(v is not None for v in figures) else []
    return "  " + ", ".join(words)


def print_end(job: "Job", address: str, *, as_json: bool) -> None:
    """Print how a job ended, and end the command accordingly.

    Raises:
        JobCancelled: Somebody cancelled it.
        JobError: It ended in another way than with success.
    """
    if as_json:
        print_answer(job=job_json(job))
    if job.state == "succeeded":
        print_result(f"job {job.id}: succeeded")
        return
    kind = JobCancelled if job.state == "cancelled" else JobError
    where = at(address)
    raise kind(
        job.message or f"job {job.id}: {job.state}",
        where={"job": job.id, "attempt": job.attempt, "reason": job.reason or job.state},
        hint=f"Its logs: distrain logs {job.id}{where}; go on: distrain resume {job.id}{where}",
    )
