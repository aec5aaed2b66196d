"""A service's world for model checks: rows, leases, a scheduler that forgets, a net that loses.

It looks after what must always hold wherever that could break: when an attempt starts, and when a
row is written.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from service_jobs import a_job

from distrain.jobs.status import JobStatus
from distrain.service.decide.world import (
    Accepted,
    Change,
    JobOrder,
    Outcome,
    Refusal,
    SchedulerAnswer,
    Silence,
    Workers,
)
from distrain.service.values import Intent, Job, Phase

SERVICE = "s1"
TTL_S = 15.0


class LeaseLost(Exception):
    """The lease has another owner or generation."""


@dataclass
class Order:
    """A PUT on its way."""

    job_id: str
    first_attempt: int
    epoch: str | None
    generation: int
    priority: int


@dataclass
class Scheduler:
    """One boot of a scheduler."""

    epoch: str
    slots: int
    jobs: dict[str, JobStatus] = field(default_factory=dict)
    tombstones: dict[str, JobStatus] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)
    revision: int = 0
    acknowledged: int = 0
    generation: int = 0

    def stamp(self, seen: JobStatus) -> None:
        self.revision += 1
        self.jobs[seen.job_id] = seen
        self.changed[seen.job_id] = self.revision

    @property
    def workers(self) -> Workers:
        used = sum(seen.state == "running" for seen in self.jobs.values())
        return Workers(self.slots, self.slots, self.slots - used)


@dataclass
class World:
    """Everything outside of the reconcilers' processes."""

    slots: int = 2
    now_s: float = 1000.0
    boots: int = 1
    rows: dict[str, Job] = field(default_factory=dict)
    owner: str = ""
    generation: int = 0
    expires_s: float = 0.0
    answers: bool = True
    under_way: list[Order] = field(default_factory=list)
    attempts: Counter[str] = field(default_factory=Counter)
    started: Counter[tuple[str, int]] = field(default_factory=Counter)
    scheduler: Scheduler = field(init=False)

    def __post_init__(self) -> None:
        self.scheduler = Scheduler("boot-1", self.slots)

    # --- users

    def submit(self, priority: int) -> None:
        job = a_job(len(self.rows) + 1, priority=priority)
        self.rows[job.id] = job

    def cancel(self, job_id: str) -> None:
        job = self.rows[job_id]
        if job.phase is Phase.FINAL:
            return
        changes: dict[str, Any] = {"intent": Intent.CANCEL, "cancel_why": "asked"}
        if job.phase is Phase.QUEUED:
            changes |= {"phase": Phase.FINAL, "state": "cancelled"}
        self._change(job, changes)

    def resume(self, job_id: str) -> None:
        job = self.rows[job_id]
        if job.phase is Phase.FINAL:
            fresh = {"intent": Intent.RUN, "phase": Phase.QUEUED, "state": "queued", "epoch": None}
            follows = {"first_attempt": max(job.attempt + 1, job.first_attempt)}
            again = {"resumes": job.resumes + 1, "scheduler_losses": 0, "cancel_why": ""}
            self._change(job, fresh | follows | again)

    def set_priority(self, job_id: str, priority: int) -> None:
        job = self.rows[job_id]
        if job.phase is not Phase.FINAL and job.state != "running":
            self._change(job, {"priority": priority})

    def _change(self, job: Job, changes: dict[str, Any]) -> None:
        self.rows[job.id] = replace(job, rev=job.rev + 1, **changes)

    # --- leases

    def take_lease(self, owner: str) -> int | None:
        if self.owner != owner and self.now_s < self.expires_s:
            return None
        if self.owner != owner or self.now_s >= self.expires_s:
            self.generation += 1
        self.owner, self.expires_s = owner, self.now_s + TTL_S
        return self.generation

    def newer_lease(self, owner: str, generation: int) -> int:
        self.must_hold(owner, generation)
        self.generation += 1
        return self.generation

    def must_hold(self, owner: str, generation: int) -> None:
        if (owner, generation) != (self.owner, self.generation):
            raise LeaseLost

    # --- what becomes of jobs at the scheduler

    def start(self, job_id: str) -> None:
        seen = self.scheduler.jobs[job_id]
        if seen.state == "pending" and self.scheduler.workers.free:
            self._attempt(seen, max(seen.attempt + 1, seen.first_attempt))

    def restart(self, job_id: str) -> None:
        seen = self.scheduler.jobs[job_id]
        if seen.state == "running":
            self._attempt(seen, seen.attempt + 1)

    def end(self, job_id: str, state: str) -> None:
        seen = self.scheduler.jobs[job_id]
        if seen.state == "running":
            self.attempts[job_id] = max(seen.attempt, self.attempts[job_id])
            self.scheduler.stamp(replace(seen, state=state))

    def forget(self) -> None:
        """Ended jobs become tombstones once the service has asked for what came after their end."""
        scheduler = self.scheduler
        for seen in [seen for seen in scheduler.jobs.values() if seen.is_final]:
            if scheduler.changed[seen.job_id] > scheduler.acknowledged:
                continue
            scheduler.tombstones[seen.job_id] = seen
            del scheduler.jobs[seen.job_id], scheduler.changed[seen.job_id]

    def boot(self) -> None:
        self.boots += 1
        self.scheduler = Scheduler(f"boot-{self.boots}", self.slots)

    def _attempt(self, seen: JobStatus, attempt: int) -> None:
        row = self.rows[seen.job_id]
        assert row.phase in (Phase.HANDING_OVER, Phase.HANDED_OVER), f"{row} starts again"
        self.started[seen.job_id, attempt] += 1
        assert self.started[seen.job_id, attempt] == 1, f"{seen.job_id}.{attempt} starts twice"
        # Ranks make their first file a while after they were started; a restart, which follows
        # an attempt that did, is taken to be seen at once.
        if attempt > seen.first_attempt:
            self.attempts[seen.job_id] = max(attempt, self.attempts[seen.job_id])
        self.scheduler.stamp(replace(seen, state="running", attempt=attempt))

    # --- commands

    def put(self, order: Order) -> Accepted | Refusal:
        """The scheduler gets a PUT, now or late."""
        scheduler = self.scheduler
        if order.generation < scheduler.generation:
            return Refusal("stale_generation")
        scheduler.generation = order.generation
        if order.epoch != scheduler.epoch:
            return Refusal("epoch_changed")
        live = scheduler.jobs.get(order.job_id)
        if live is not None and not live.is_final:
            return Accepted(order.generation)
        ended = live or scheduler.tombstones.get(order.job_id)
        if ended is not None and order.first_attempt <= max(ended.attempt, ended.first_attempt):
            return self._ended(ended, order.generation)
        seen = JobStatus(
            order.job_id,
            state="pending",
            service=SERVICE,
            first_attempt=order.first_attempt,
            priority=order.priority,
        )
        scheduler.stamp(seen)
        return Accepted(order.generation)

    def _ended(self, seen: JobStatus, generation: int) -> Refusal:
        last = max(seen.attempt, seen.first_attempt)
        tombstone = JobStatus(seen.job_id, state=seen.state, reason=seen.reason, attempt=last)
        return Refusal("ended", ended=tombstone, generation=generation)

    def _cancelled(self, job_id: str, generation: int) -> Accepted | Refusal:
        scheduler = self.scheduler
        if generation < scheduler.generation:
            return Refusal("stale_generation", generation=generation)
        scheduler.generation = generation
        seen = scheduler.jobs.get(job_id)
        ended = seen if seen is not None and seen.is_final else scheduler.tombstones.get(job_id)
        if seen is None or seen.is_final:
            return (
                self._ended(ended, generation)
                if ended
                else Refusal("unknown", generation=generation)
            )
        scheduler.stamp(replace(seen, state="cancelled", reason="Cancelled"))
        return Accepted(generation)

    # --- what passes ask

    def poll(self, epoch: str | None, since: int) -> SchedulerAnswer | Silence:
        if not self.answers:
            return Silence("no answer")
        scheduler = self.scheduler
        since = since if epoch == scheduler.epoch else 0
        scheduler.acknowledged = max(since, scheduler.acknowledged)
        told = [i for i, changed in scheduler.changed.items() if changed > since]
        told.sort(key=scheduler.changed.__getitem__)
        more, told = len(told) > 2, told[:2]
        revision = scheduler.changed[told[-1]] if more else scheduler.revision
        jobs = tuple(scheduler.jobs[job_id] for job_id in told)
        return SchedulerAnswer(scheduler.epoch, revision, more, scheduler.workers, jobs)

    def commit(self, changes: Sequence[Change], generation: int) -> set[str]:
        skipped = set()
        for change in changes:
            row = self.rows[change.job.id]
            if row.rev != change.job.rev:
                skipped.add(row.id)
                continue
            assert row.phase is not Phase.FINAL, "a job that has ended changes"
            columns: dict[str, Any] = dict(change.columns)
            over = columns.get("phase") is Phase.HANDING_OVER
            assert not over or row.intent is Intent.RUN, "a cancelled job is handed over"
            losses = columns.get("scheduler_losses", 0)
            assert losses < self.boots, "a loss that was none"
            self._change(replace(row, generation=generation), columns)
        return skipped

    def order(self, job_id: str, order: JobOrder, generation: int) -> Accepted | Refusal:
        """The scheduler gets an order about a job."""
        if order.name == "cancel":
            return self._cancelled(job_id, generation)
        if job_id in self.scheduler.jobs:
            seen = self.scheduler.jobs[job_id]
            self.scheduler.stamp(replace(seen, **order.words))
        return Accepted(generation)


@dataclass
class Seat:
    """The `World` of one process, with a fate for each of its commands.

    Attributes:
        fate: Of the next command: it `arrives`, is `lost`, its `answer lost`, or it is `late`; of a
            question with `no poll` the scheduler hears nothing.
    """

    world: World
    owner: str
    generation: int
    fate: str = "arrives"

    def alive(self) -> list[Job]:
        return [job for job in self.world.rows.values() if job.phase is not Phase.FINAL]

    def job(self, job_id: str) -> Job | None:
        return self.world.rows.get(job_id)

    def commit(self, changes: Sequence[Change]) -> set[str]:
        self.world.must_hold(self.owner, self.generation)
        return self.world.commit(changes, self.generation)

    def ranks_in_use(self, projects: Sequence[str]) -> dict[str, int]:
        return dict.fromkeys(projects, 0)

    def changes(self, epoch: str | None, since: int) -> SchedulerAnswer | Silence:
        return Silence("no answer") if self.fate == "no poll" else self.world.poll(epoch, since)

    def put(self, job: Job) -> Outcome:
        order = Order(job.id, job.first_attempt, job.epoch, self.generation, job.priority)
        if self.fate == "late":
            self.world.under_way.append(order)
        return self._command(lambda: self.world.put(order))

    def send(self, job_id: str, order: JobOrder) -> Outcome:
        if order.newer_generation:
            self.generation = self.world.newer_lease(self.owner, self.generation)
        return self._command(lambda: self.world.order(job_id, order, self.generation))

    def attempts(self, job: Job) -> int:
        return self.world.attempts[job.id]

    def begin(self, job: Job) -> None:
        return None

    def record(self, job: Job, seen: JobStatus) -> None:
        return None

    def finish(self, job: Job, columns: Mapping[str, Any], seen: JobStatus | None) -> bool:
        return True

    def _command(self, arrive: Callable[[], Outcome]) -> Outcome:
        if not self.world.answers or self.fate in ("lost", "late"):
            return Silence("no answer")
        answer = arrive()
        return Silence("no answer") if self.fate == "answer lost" else answer
