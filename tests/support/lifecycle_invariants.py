"""What must always hold of the lifecycle of jobs; tests look after every stimulus."""

from distrain.jobs.states import JobState
from distrain.scheduler.lifecycle.lifecycle import Lifecycle


def validate(lifecycle: Lifecycle) -> None:
    """Raise an `AssertionError` for a broken invariant."""
    live = [job for job in lifecycle.jobs.values() if not job.state.is_final]
    held = [p.slot for job in live for p in job.placements]
    assert len(held) == len(set(held)), "two ranks hold one worker"
    keys = [key for job in live for key in job.reserved]
    assert len(keys) == len(set(keys)), "two jobs reserve one worker"
    for job in lifecycle.jobs.values():
        allowed = job.allowed_ranks
        assert list(job.ranks) == list(range(len(job.ranks))), "a gang is not whole"
        assert not job.ranks or len(job.ranks) in allowed, "a gang of a size not allowed"
        if not job.state.is_final:
            assert bool(job.ranks) == job.state.holds_workers, "ranks in a state without"
        assert not job.reserved or job.state is JobState.RESTARTING, "an idle reservation"
        succeeded = job.state is JobState.SUCCEEDED
        assert job.is_finished or not succeeded, "a success without all ranks' work"
        bad = job.state in (JobState.STOPPING, JobState.FAILED, JobState.CANCELLED)
        assert bad == (job.culprit is not None), "an early end and its reason come together"
        for name in ("rank_failures", "worker_losses", "preemptions"):
            most = getattr(job.spec.restart, f"max_{name}")
            assert most is None or job.spent[name] <= most, "a budget is overdrawn"
