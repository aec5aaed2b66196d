"""A job's spec and a Dask worker in the words of the lifecycle."""

from collections.abc import Mapping
from typing import Any

from distrain.jobs import Slot
from distrain.lifecycle import Budgets, Submit
from distrain.spec import JobSpec
from distrain.version import build


def request_of(job_id: str, spec: JobSpec, first_attempt: int) -> Submit:
    restart, deadlines = spec.restart, spec.deadlines
    return Submit(
        job_id,
        spec.resources.num_ranks,
        deadlines.start_s,
        deadlines.total_s,
        allowed_ranks=spec.allowed_ranks,
        priority=spec.queue.priority,
        budgets=Budgets(
            restart.max_rank_failures, restart.max_worker_losses, restart.max_preemptions
        ),
        backoff_s=restart.backoff_s,
        progress_s=deadlines.progress_s,
        stop_grace_s=deadlines.stop_grace_s,
        checkpoint_every_s=spec.checkpoint.every_s,
        first_attempt=first_attempt,
        queue_deadline_s=deadlines.queue_s,
    )


def slot_of(state: Any) -> Slot:
    """A worker as a slot, with a name that outlives a restart by its nanny."""
    named = state.name is not None and state.name != state.address
    return Slot(state.host, state.address, str(state.name) if named else state.nanny or "")


def other_builds(builds: Mapping[str, str]) -> str:
    """Why workers with another build of distrain get no ranks; "" without such."""
    others = {worker: theirs for worker, theirs in builds.items() if theirs}
    if others:
        worker, theirs = min(others.items())
        return (
            f"{len(others)} more run another build of distrain than the scheduler's {build()}, "
            f"such as {worker} ({theirs}): install the same there, and start them again"
        )
    if builds:
        return (
            f"{len(builds)} more have not told their build of distrain yet, such as {min(builds)}; "
            f"one that is older than this version never does: install {build()} there"
        )
    return ""
