"""Estimates when running jobs free their ranks."""

from collections.abc import Iterable

from distrain.service.values import Job


def freed_ranks(jobs: Iterable[Job]) -> list[tuple[float, int]]:
    """Return when jobs will free their ranks: (seconds from now, number of ranks), soonest first.

    The times are the jobs' own estimates of their remaining time (`eta_s`). Jobs without an
    estimate are left out.
    """
    return sorted(
        (max(0.0, float(left_s)), job.num_ranks)
        for job in jobs
        if (left_s := job.progress.get("eta_s")) is not None
    )
