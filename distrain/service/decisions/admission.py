"""Decides which queued jobs to hand over to a cluster's scheduler now, and why the others wait.

Jobs are ordered by priority; then by project, the one with the fewest ranks in use first; then by
owner in the same way; then by age. The first job without enough free workers is still handed over,
since the scheduler may preempt running jobs for it. It then blocks jobs of the same or a lower
priority. So the scheduler's own queue stays short, and the priorities of jobs that wait in the
service can still be changed. A job that its project's quota holds back blocks only jobs of its
project. A job that is larger than the cluster, or than its project's quota, blocks no other.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from distrain.service.decisions import wait_reasons
from distrain.service.decisions.cluster_state import ClusterNow
from distrain.service.decisions.world import Workers
from distrain.service.values import Intent, Job, Phase, Quota

_NO_QUOTA = Quota()


def admit(
    queue: Iterable[Job],
    active: Iterable[Job],
    quotas: Mapping[str, Quota],
    cluster: ClusterNow,
    now_s: float,
    *,
    min_ranks: Mapping[str, int] | None = None,
    elsewhere: Mapping[str, int] | None = None,
) -> tuple[list[Job], dict[str, str]]:
    """Return the jobs to hand over, in order; and by job id, why the other jobs wait.

    `queue` are the cluster's queued jobs, and `quotas` the limits of their projects. Jobs that are
    being cancelled are in neither result. `active` are the jobs that are handed over, or being
    handed over, to the cluster. `min_ranks` has by job id the fewest ranks with which a job can
    start; by default all its ranks. `elsewhere` has the ranks in use on other clusters, by project.
    """
    waiters = [job for job in queue if job.phase is Phase.QUEUED and job.intent is Intent.RUN]
    if not cluster.answers:
        why = wait_reasons.not_answering(cluster)
        return [], {job.id: why for job in waiters}
    return _Admission(list(active), quotas, cluster, now_s, min_ranks or {}, elsewhere or {}).run(
        waiters
    )


def in_order(
    queue: Iterable[Job], active: Iterable[Job], elsewhere: Mapping[str, int]
) -> list[Job]:
    """Return the jobs of a queue in the order in which they start once there are enough workers.

    `active` are the jobs that hold ranks on the cluster, and `elsewhere` the ranks in use on other
    clusters by project, for a fair order.
    """
    shares = _Shares(elsewhere)
    for job in active:
        shares.count(job)
    found = []
    for job in _Order(queue, shares):
        shares.count(job)
        found.append(job)
    return found


def ranks_elsewhere(everywhere: Mapping[str, int], here: Iterable[Job]) -> dict[str, int]:
    """Return the ranks in use on other clusters, by project.

    `everywhere` has those on all clusters, and `here` are the jobs that hold ranks on this one.
    """
    used = Counter[str]()
    for job in here:
        used[job.project] += job.num_ranks
    # The two were read one after the other, so a difference may be below 0.
    return {name: max(0, ranks - used[name]) for name, ranks in everywhere.items()}


class _Shares:
    """The ranks in use on the cluster, by project and by owner, for a fair order."""

    def __init__(self, elsewhere: Mapping[str, int]):
        self.of_project = Counter(elsewhere)
        self.of_owner: Counter[str] = Counter()

    def count(self, job: Job) -> None:
        self.of_project[job.project] += job.num_ranks
        self.of_owner[job.owner] += job.num_ranks


class _Admission:
    def __init__(
        self,
        active: list[Job],
        quotas: Mapping[str, Quota],
        cluster: ClusterNow,
        now_s: float,
        min_ranks: Mapping[str, int],
        elsewhere: Mapping[str, int],
    ):
        self.quotas, self.cluster, self.now_s = quotas, cluster, now_s
        self.min_ranks, self.elsewhere = min_ranks, elsewhere
        self.holders: defaultdict[str, list[Job]] = defaultdict(list)
        self.shares = _Shares(elsewhere)
        self.free = cluster.workers.free
        self.blocker: Job | None = None
        for job in sorted(active, key=lambda job: (-job.priority, job.seq)):
            self._count(job)
            if job.attempt < job.first_attempt or job.state in ("queued", "pending"):
                self._reserve(job, stuck=bool(job.phase is Phase.HANDED_OVER and job.why_pending))

    def run(self, waiters: Sequence[Job]) -> tuple[list[Job], dict[str, str]]:
        chosen: list[Job] = []
        why: dict[str, str] = {}
        held_back: dict[str, Job] = {}  # by project
        for job in _Order(waiters, self.shares):
            reason = self._why_not(job, held_back)
            if reason:
                why[job.id] = reason
                continue
            chosen.append(job)
            self._count(job)
            self._reserve(job)
        return chosen, why

    def _why_not(self, job: Job, held_back: dict[str, Job]) -> str:
        needs, workers = self.needs(job), self.cluster.workers
        quota = self.quotas.get(job.project, _NO_QUOTA).max_ranks
        if quota is not None and job.num_ranks > quota:
            return wait_reasons.quota_too_small(job, quota)
        if needs > workers.usable:
            return wait_reasons.too_small(needs, self.cluster)
        if job.project in held_back:
            return wait_reasons.behind_in_project(held_back[job.project])
        used = self.shares.of_project[job.project]
        if quota is not None and used + job.num_ranks > quota:
            held_back[job.project] = job
            others = self.elsewhere.get(job.project, 0)
            holders = self.holders[job.project]
            return wait_reasons.quota_in_use(job, quota, used, holders, others, self.now_s)
        blocker = self.blocker
        if blocker is not None and blocker.priority >= job.priority:
            return wait_reasons.behind(blocker, self.needs(blocker), self.cluster)
        return ""

    def needs(self, job: Job) -> int:
        return self.min_ranks.get(job.id, job.num_ranks)

    def _count(self, job: Job) -> None:
        self.shares.count(job)
        self.holders[job.project].append(job)

    def _reserve(self, job: Job, *, stuck: bool = False) -> None:
        # Counts workers that the scheduler will assign to the job.
        if stuck or self.needs(job) > self.free:
            if self.blocker is None or job.priority > self.blocker.priority:
                self.blocker = job
        else:
            self.free -= min(job.num_ranks, self.free)


class _Order:
    """Iterates over a queue in a fair order; see the module docstring.

    The caller adds each job that starts to `used` before it requests the next job, since the ranks
    in use decide the order.
    """

    def __init__(self, waiters: Iterable[Job], used: _Shares):
        self._used = used
        self._lines: dict[int, dict[tuple[str, str], deque[Job]]] = {}
        for job in sorted(waiters, key=lambda job: job.seq):
            line = self._lines.setdefault(job.priority, {})
            line.setdefault((job.project, job.owner), deque()).append(job)

    def __iter__(self) -> Iterator[Job]:
        for priority in sorted(self._lines, reverse=True):
            lines = self._lines[priority]
            while lines:
                first = min(lines, key=lambda line: (*self._shares(line), lines[line][0].seq))
                yield lines[first].popleft()
                if not lines[first]:
                    del lines[first]

    def _shares(self, line: tuple[str, str]) -> tuple[int, int]:
        project, owner = line
        return self._used.of_project[project], self._used.of_owner[owner]


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
    """Return how many workers, at most `most`, a cluster should have.

    It needs one worker for each rank of its active jobs, and of the queued jobs that `admit` would
    choose if the cluster had `most` workers. The other arguments are those of `admit`.
    """
    used = sum(job.num_ranks for job in active)
    free = max(0, most - used)
    large = replace(
        cluster,
        epoch=cluster.epoch or "",  # workers may start before the scheduler answers
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
