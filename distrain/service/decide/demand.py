"""The wanted number of a cluster's workers, where the service sets it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from distrain.service.decide.admission import admit
from distrain.service.decide.seen import ClusterNow, Workers
from distrain.service.values import Job, Quota


def workers_wanted(
    queue: Sequence[Job],
    active: Sequence[Job],
    quotas: Mapping[str, Quota],
    cluster: ClusterNow,
    now_s: float,
    *,
    most: int,
    min_ranks: Mapping[str, int] | None = None,
    elsewhere: Mapping[str, int] | None = None,
) -> int:
    """The workers that would all be used, at most `most`.

    Those are the ranks of the active jobs, and of the waiting ones that a cluster with `most`
    workers would get now: not of jobs that wait for a quota, nor of any that `most` cannot hold.
    """
    used = sum(job.num_ranks for job in active)
    free = max(0, most - used)
    large = replace(
        cluster,
        epoch=cluster.epoch or "",  # workers may come before the scheduler answers
        workers=Workers(most, most, free),
        most_workers=None,
    )
    running = [
        replace(job, state="running", attempt=max(job.attempt, job.first_attempt), why_pending="")
        for job in active
    ]
    chosen, _ = admit(
        queue, running, quotas, large, now_s, min_ranks=min_ranks, elsewhere=elsewhere
    )
    return min(most, used + sum(job.num_ranks for job in chosen))
