"""Jobs of the service and what schedulers tell of them, for tests of what decides."""

from typing import Any

from distrain.jobs.api_answers import Job as SeenJob
from distrain.service.decisions.cluster_state import ClusterNow
from distrain.service.decisions.world import Workers
from distrain.service.values import Job, Phase

NOW_S = 1_800_000_000.0


def a_job(number: int = 1, **fields: Any) -> Job:
    """A job of project `ads`, with one rank, that was submitted just now."""
    job_id = f"job-{number}"
    values: dict[str, Any] = {
        "id": job_id,
        "seq": number,
        "project": "ads",
        "owner": "alice",
        "name": "ctr",
        "cluster": "east",
        "priority": 0,
        "num_ranks": 1,
        "run_dir": f"/runs/ads/{job_id}",
        "created_at_s": NOW_S,
    }
    return Job(**(values | fields))


def running(number: int, **fields: Any) -> Job:
    """A job whose ranks run."""
    return a_job(number, phase=Phase.HANDED_OVER, state="running", attempt=1, **fields)


def stuck(number: int, **fields: Any) -> Job:
    """A job that waits at its scheduler for workers."""
    return a_job(
        number, phase=Phase.HANDED_OVER, state="pending", why_pending="no workers", **fields
    )


def a_sighting(job: Job, state: str, **fields: Any) -> SeenJob:
    """What the scheduler tells of a job's current submission."""
    values: dict[str, Any] = {
        "service": "s1",
        "first_attempt": job.first_attempt,
        "priority": job.priority,
    }
    return SeenJob(id=job.id, **(values | {"state": state} | fields))


def a_cluster(free: int = 4, total: int = 4, **fields: Any) -> ClusterNow:
    """A cluster that answers."""
    values: dict[str, Any] = {"epoch": "boot-1"}
    return ClusterNow("east", **(values | {"workers": Workers(total, total, free)} | fields))
