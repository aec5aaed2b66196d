"""Estimates when waiting jobs start, from the remaining time of running jobs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf

from distrain.service.decisions.freed_ranks import freed_ranks
from distrain.service.values import Job, Phase, Quota


def starts_in_s(
    waiting: Sequence[Job],
    holding: Sequence[Job],
    free: int,
    quotas: Mapping[str, Quota],
    elsewhere: Mapping[str, int],
    min_ranks: Mapping[str, int],
) -> dict[str, float]:
    """Return the estimated seconds until waiting jobs get their workers, by job id.

    The estimate assumes that jobs start in the order of `waiting`, and keep their workers, since
    their durations are unknown. These jobs are left out:

    - queued jobs that need more ranks than there are workers, free or held, or than the quota of
      their project
    - jobs with more ranks than the quota still allows; they still count towards the quota
    - the first job whose workers cannot be estimated, since they belong to a job without an
      estimate of its remaining time (`eta_s`) or are too few, and all jobs after it

    Args:
        holding: The jobs that hold workers.
        free: The number of free workers.
        elsewhere: The ranks in use on other clusters, by project.
        min_ranks: By job id, the fewest ranks that a job starts with; 0 or absent: all its ranks.
    """
    used = Counter(elsewhere)
    for job in holding:
        used[job.project] += job.num_ranks
    ends = freed_ranks(holding)[::-1]
    found, now_s = {}, 0.0
    workers = free + sum(job.num_ranks for job in holding)
    for job in waiting:
        most = quotas.get(job.project, Quota()).max_ranks
        quota = inf if most is None else most
        needs = min_ranks.get(job.id) or job.num_ranks
        if job.phase is Phase.QUEUED and (needs > workers or job.num_ranks > quota):
            continue
        used[job.project] += job.num_ranks
        if used[job.project] > quota:
            continue
        while free < needs and ends:
            now_s, ranks = ends.pop()
            free += ranks
        if free < needs:
            break
        free -= min(job.num_ranks, free)
        found[job.id] = now_s
    return found
