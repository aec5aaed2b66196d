"""Decides which job starts on which workers, and which jobs are preempted; no I/O.

Jobs that restart come first, since their workers stayed reserved. Pending jobs follow, by priority
and then by age. If the first pending job cannot start, the pending jobs behind it do not start
either, so that a small job does not overtake a large one. If the first pending job could start
without jobs of lower priority, some of these are preempted: first those of the lowest priority and,
among equals, the youngest. Jobs whose workers do not help are not preempted.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from distrain.jobs.assignment import RankPlacement, Slot, World
from distrain.jobs.states import JobState
from distrain.scheduler.lifecycle.job import Job, slot_key

FEWER_AFTER_S = 5.0
"""How long a job waits for workers for all its ranks before it may start with fewer ranks.

The time suffices for a nanny to restart its worker, which takes 2 s.
"""


@dataclass(frozen=True)
class Shortage:
    """Why too few workers are available for a gang."""

    reason: str  # the numbers needed and available, in words


@dataclass(frozen=True)
class Start:
    """Launch a job's next attempt on the workers of `placements`."""

    job: Job
    placements: tuple[RankPlacement, ...]


@dataclass(frozen=True)
class Preempt:
    """Stop the victims; the job may start once they have stopped."""

    job: Job
    victims: tuple[Job, ...]


@dataclass(frozen=True)
class Wait:
    """A job has to wait, and why."""

    job: Job
    why: str  # what it waits for, in words


class QueueView:
    """The workers and jobs on which decisions are based.

    Args:
        slots: All usable workers, busy or free.
        jobs: All jobs that have not ended.
        avoided: Hosts that are used only if other hosts do not have enough workers, each with the
            reason.
        now_s: The lifecycle's time.
        others: Why further workers cannot be used, which is added to the reasons for waiting; ""
            if there are none.
    """

    def __init__(
        self,
        slots: Collection[Slot],
        jobs: Collection[Job],
        avoided: Mapping[str, str],
        now_s: float,
        others: str = "",
    ):
        self.slots = frozenset(slots)
        self.jobs = list(jobs)
        self.avoided = avoided
        self.now_s = now_s
        self.others = others

    def busy(self, without: Collection[str] = ()) -> set[Slot]:
        """Return the workers that hold a rank of a job whose id is not in `without`."""
        return {
            placement.slot
            for job in self.jobs
            if job.state.holds_workers and job.job_id not in without
            for placement in job.placements
        }

    def reserved(self, for_others_than: Job, without: Collection[str] = ()) -> set[Slot]:
        """Return the workers that are reserved for the next attempts of other jobs.

        These are jobs other than `for_others_than`. Jobs with ids in `without` reserve nothing.
        """
        keys = {
            key
            for job in self.jobs
            if job.state is JobState.RESTARTING
            and job is not for_others_than
            and job.job_id not in without
            for key in job.reserved
        }
        return {slot for slot in self.slots if slot_key(slot) in keys}

    def place(
        self, job: Job, *, fewer: bool, without: Collection[str] = ()
    ) -> tuple[RankPlacement, ...] | Shortage:
        """Return placements for the ranks of a job, or why there are too few workers.

        With `fewer`, the smaller numbers of ranks that the job allows are tried, too, the largest
        first. Workers of jobs whose ids are in `without` count as free.
        """
        busy = self.busy(without)
        taken = busy | self.reserved(job, without)
        allowed = job.allowed_ranks
        shortage: Shortage | None = None
        for num_ranks in allowed if fewer else allowed[:1]:
            placed = self._place(num_ranks, taken, busy)
            if not isinstance(placed, Shortage):
                return placed
            shortage = shortage or placed
        assert shortage is not None
        return Shortage(f"{shortage.reason}; {self.others}") if self.others else shortage

    def _place(
        self, num_ranks: int, taken: set[Slot], busy: set[Slot]
    ) -> tuple[RankPlacement, ...] | Shortage:
        liked = {slot for slot in self.slots if slot.host not in self.avoided}
        if len(liked) < num_ranks:  # the job could never start without avoided hosts
            return place_gang(num_ranks, self.slots, taken)
        placed = place_gang(num_ranks, liked, taken)
        if isinstance(placed, Shortage) and len(liked) < len(self.slots):
            if not liked & busy:  # waiting jobs have reserved the rest: no worker would become free
                anywhere = place_gang(num_ranks, self.slots, taken)
                if not isinstance(anywhere, Shortage):
                    return anywhere
            hosts = ", ".join(f"{host} ({why})" for host, why in sorted(self.avoided.items()))
            return Shortage(f"{placed.reason}; avoided for now: {hosts}")
        return placed


def place_gang(
    num_ranks: int, slots: Collection[Slot], busy: Collection[Slot] = ()
) -> tuple[RankPlacement, ...] | Shortage:
    """Return placements for all ranks of a gang, or why there are too few free slots.

    The free slots are those of `slots` that are not in `busy`. Hosts with the most free slots are
    used first; of equals, the first by name.

    >>> slots = [Slot("b", "tcp://b:1"), Slot("a", "tcp://a:1"), Slot("b", "tcp://b:2")]
    >>> [p.slot.worker for p in place_gang(2, slots)]
    ['tcp://b:1', 'tcp://b:2']
    >>> place_gang(4, slots).reason
    'needs 4 workers, the cluster has 3'
    """
    slots = set(slots)
    free = sorted(slots - set(busy))
    if len(free) < num_ranks:
        needs = f"needs {num_ranks} worker{'s' if num_ranks > 1 else ''}"
        if len(slots) < num_ranks:
            return Shortage(f"{needs}, the cluster has {len(slots)}")
        return Shortage(f"{needs}, {len(free)} of {len(slots)} are free, others run jobs")
    by_host = Counter(slot.host for slot in free)
    chosen = sorted(free, key=lambda slot: (-by_host[slot.host], slot))[:num_ranks]
    ranks_per_host = Counter(slot.host for slot in chosen)
    return tuple(
        RankPlacement(slot, World(rank, num_ranks, ranks_per_host[slot.host]))
        for rank, slot in enumerate(chosen)
    )


def decide(cluster: QueueView) -> list[Start | Preempt | Wait]:
    """Return `Wait`s for jobs that have to wait, and at most one `Preempt` or `Start`.

    The caller carries out the `Preempt` or `Start`, and calls again. If there is neither, every
    waiting job has a `Wait`, which is valid at `now_s` until workers or jobs change.
    """
    answers: list[Start | Preempt | Wait] = []
    for job in _in_order(cluster.jobs, JobState.RESTARTING):
        again = _restart(cluster, job)
        answers.append(again)
        if isinstance(again, Start):
            return answers
    queue = _in_order(cluster.jobs, JobState.PENDING)
    for place, job in enumerate(queue):
        answer = _admit(cluster, job)
        answers.append(answer)
        if isinstance(answer, Start):
            return answers
        why = answer.why if isinstance(answer, Wait) else "waits for other jobs to stop"
        behind = f"waits behind {job.job_id}, which {why}"
        answers += [Wait(later, behind) for later in queue[place + 1 :]]
        break
    return answers


def could_grow(cluster: QueueView, job: Job) -> int:
    """Return the larger number of ranks with which a running job could restart.

    0 if it cannot have more ranks than now, or if other jobs are pending.
    """
    if len(job.ranks) >= job.num_ranks or _in_order(cluster.jobs, JobState.PENDING):
        return 0
    placed = cluster.place(job, fewer=True, without=(job.job_id,))
    more = 0 if isinstance(placed, Shortage) else len(placed)
    return more if more > len(job.ranks) else 0


def _in_order(jobs: Iterable[Job], state: JobState) -> list[Job]:
    waiting = [job for job in jobs if job.state is state]
    return sorted(waiting, key=lambda job: (-job.request.priority, job.order))


def _restart(cluster: QueueView, job: Job) -> Start | Wait:
    if cluster.now_s < job.not_before_s:
        left_s = job.not_before_s - cluster.now_s
        why = f", after {job.why_so_long}" if job.why_so_long else ""
        return Wait(job, f"waits {left_s:.1f} s before its next attempt{why}")
    return _start_or_wait(cluster, job)


def _start_or_wait(cluster: QueueView, job: Job) -> Start | Wait:
    fewer = cluster.now_s >= job.fewer_from_s
    placed = cluster.place(job, fewer=fewer)
    if not isinstance(placed, Shortage):
        return Start(job, placed)
    smaller = cluster.place(job, fewer=True)
    if isinstance(smaller, Shortage):
        return Wait(job, placed.reason)
    return Wait(job, f"{placed.reason}; starts with {len(smaller)} after {FEWER_AFTER_S:g} s")


def _admit(cluster: QueueView, job: Job) -> Start | Preempt | Wait:
    answer = _start_or_wait(cluster, job)
    if isinstance(answer, Start):
        return answer
    # Workers of gangs that are already being preempted will become free.
    stopping = (other for other in cluster.jobs if other.state is JobState.STOPPING)
    leaving = [other.job_id for other in stopping if other.queue_again]
    may_be_fewer = cluster.now_s >= job.fewer_from_s
    for fewer in (False, True) if may_be_fewer else (False,):
        if room := _make_room(cluster, job, leaving, fewer=fewer):
            return room
    return answer


def _make_room(
    cluster: QueueView, job: Job, leaving: Sequence[str], *, fewer: bool
) -> Preempt | Wait | None:
    def fits(*without: str) -> bool:
        return not isinstance(cluster.place(job, fewer=fewer, without=without), Shortage)

    if leaving and fits(*leaving):
        return Wait(job, f"waits for {', '.join(leaving)} to stop")
    victims: list[Job] = []
    for victim in _victims(cluster.jobs, job):
        victims.append(victim)
        if fits(*leaving, *(v.job_id for v in victims)):
            needed = list(victims)
            for one in victims:
                if fits(*leaving, *(v.job_id for v in needed if v is not one)):
                    needed.remove(one)
            return Preempt(job, tuple(needed))
    return None


def _victims(jobs: Iterable[Job], by: Job) -> list[Job]:
    states = (JobState.STARTING, JobState.RUNNING, JobState.RESTARTING)
    lower = [
        job
        for job in jobs
        if job.state in states
        and job.request.priority < by.request.priority
        and not (job.is_finished or job.settle_at_s is not None)
    ]
    return sorted(lower, key=lambda job: (job.request.priority, -job.order))


AVOID_AFTER_FAILURES = 2  # a host with this many failures within `AVOID_S` is avoided
AVOID_S = 600.0  # after this time, a failure no longer counts


class HostFailures:
    """The recent failures of hosts, and the hosts to avoid because of them.

    `blame` records that a rank on a host caused the failure of an attempt. A host with
    `AVOID_AFTER_FAILURES` failures in the last `AVOID_S` is avoided; `avoided` returns these hosts,
    each with the reason.

    >>> failures = HostFailures()
    >>> for at_s in (0.0, 60.0):
    ...     failures.blame("node-7", at_s)
    >>> failures.avoided(100.0)
    {'node-7': '2 failures, for another 500 s'}
    >>> failures.avoided(600.0)
    {}
    """

    def __init__(self) -> None:
        self._times: defaultdict[str, list[float]] = defaultdict(list)

    def blame(self, host: str, now_s: float) -> None:
        self._times[host] = [*self._recent(host, now_s), now_s]

    def avoided(self, now_s: float) -> dict[str, str]:
        avoided = {}
        for host in list(self._times):
            recent = self._recent(host, now_s)
            if len(recent) >= AVOID_AFTER_FAILURES:
                left_s = recent[-AVOID_AFTER_FAILURES] + AVOID_S - now_s
                avoided[host] = f"{len(recent)} failures, for another {left_s:.0f} s"
        return avoided

    def _recent(self, host: str, now_s: float) -> list[float]:
        return [at_s for at_s in self._times[host] if now_s - at_s < AVOID_S]
