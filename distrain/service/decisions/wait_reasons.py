"""Texts that explain to a job's owner why the job waits, and for which job or limit."""

from collections.abc import Sequence

from distrain.formatting import join_names
from distrain.jobs.api_answers import utc
from distrain.service.decisions.cluster_state import ClusterNow
from distrain.service.decisions.freed_ranks import freed_ranks
from distrain.service.values import Job

_MOST_NAMED = 4
_ROUND_S = 300  # coarse, so that a queue's rows are not rewritten every minute


def not_answering(cluster: ClusterNow) -> str:
    since = "" if cluster.since_s is None else f" since {utc(cluster.since_s, 'seconds')}"
    if cluster.starting:
        return f"cluster {cluster.name} is starting{since}"
    trouble = f": {cluster.trouble}" if cluster.trouble else ""
    return f"cluster {cluster.name} has not been reachable{since or ' yet'}{trouble}"


def not_configured(cluster: str) -> str:
    return f"cluster {cluster} is no longer configured"


def too_small(needs: int, cluster: ClusterNow) -> str:
    most = cluster.most_workers
    if most is not None and needs > most:
        return (
            f"cluster {cluster.name} gets {_workers(most)} at most, and the job needs {needs}: "
            "it cannot start; lower resources.num_ranks"
        )
    total, usable = cluster.workers.total, cluster.workers.usable
    bad = f", of which {_count(usable, 'is', 'are')} usable" if usable < total else ""
    growth = f": {cluster.growth}" if cluster.growth else ""
    if most is not None and not growth:
        growth = "; more workers were requested"
    if not growth:
        more = _count(needs - usable, "more worker joins", "more workers join")
        growth = f": it cannot start until {more}; or lower resources.num_ranks"
    return f"cluster {cluster.name} has {_workers(total)}{bad}, and the job needs {needs}{growth}"


def quota_too_small(job: Job, max_ranks: int) -> str:
    return (
        f"the quota of project {job.project} allows {_ranks(max_ranks)}, and the job needs "
        f"{job.num_ranks}: it cannot start; lower resources.num_ranks"
    )


def quota_in_use(
    job: Job, max_ranks: int, used: int, holders: Sequence[Job], elsewhere: int, now_s: float
) -> str:
    by = [join_names([holder.id for holder in holders], _MOST_NAMED)] if holders else []
    if elsewhere:
        by.append(f"its jobs on other clusters ({elsewhere})")
    room = used + job.num_ranks - max_ranks
    when = "" if elsewhere else free_ranks_from(room, holders, now_s)
    return (
        f"quota of project {job.project}: {used} of {_ranks(max_ranks)} in use by "
        f"{' and '.join(by)}, and the job needs {job.num_ranks}{when}"
    )


def behind(blocker: Job, needs: int, cluster: ClusterNow) -> str:
    return (
        f"behind {blocker.id} (priority {blocker.priority}), which waits for {_workers(needs)} of "
        f"cluster {cluster.name}"
    )


def behind_in_project(blocker: Job) -> str:
    return f"behind {blocker.id}, which waits for the quota of project {blocker.project}"


def free_ranks_from(ranks: int, holders: Sequence[Job], now_s: float) -> str:
    """Return a text with the time when the jobs `holders` will have freed `ranks` ranks.

    Returns "" if too few of the jobs have an estimate, as in `freed_ranks`.

    >>> free_ranks_from(1, [], 0.0)
    ''
    """
    for left_s, freed in freed_ranks(holders):
        ranks -= freed
        if ranks <= 0:
            at_s = -(-(now_s + left_s) // _ROUND_S) * _ROUND_S
            return f"; free from about {utc(at_s, 'seconds')}"
    return ""


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _workers(number: int) -> str:
    return _count(number, "worker", "workers")


def _ranks(number: int) -> str:
    return _count(number, "rank", "ranks")
