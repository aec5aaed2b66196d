"""A service's world for model checks: rows, a scheduler that forgets, a net that loses.

It looks after what must always hold wherever that could break: when an attempt starts, and when a
row is written.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from service_jobs import a_job

from distrain.jobs.api_answers import Job as SeenJob
from distrain.service.decisions.cluster_pass import ALL_AFTER_S
from distrain.service.decisions.world import (
    JobOrder,
    Refused,
    SchedulerAnswer,
    Unreachable,
    Workers,
)
from distrain.service.values import Change, Intent, Job, Phase

SERVICE = "s1"


@dataclass
class Order:
    """A PUT on its way."""

    job_id: str
    first_attempt: int
    epoch: str | None
    priority: int


@dataclass
class Scheduler:
    """One boot of a scheduler."""

    epoch: str
    slots: int
    jobs: dict[str, SeenJob] = field(default_factory=dict)
    tombstones: dict[str, SeenJob] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)
    changed_s: dict[str, float] = field(default_factory=dict)
    revision: int = 0

    def stamp(self, seen: SeenJob, now_s: float) -> None:
        self.revision += 1
        self.jobs[seen.id] = seen
        self.changed[seen.id] = self.revision
        self.changed_s[seen.id] = now_s

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
    answers: bool = True
    # commands that arrive later, or never
    under_way: list[Callable[[], object]] = field(default_factory=list)
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
            self.scheduler.stamp(seen.model_copy(update={"state": state}), self.now_s)

    def record(self, job_id: str) -> None:
        """A worker has written the summary of a job that has ended."""
        seen = self.scheduler.jobs[job_id]
        if seen.is_final and not seen.recorded:
            self.scheduler.stamp(seen.model_copy(update={"recorded": True}), self.now_s)

    def forget(self) -> None:
        """Jobs that ended a while ago become tombstones, even if no reconciler saw their end."""
        scheduler = self.scheduler
        for seen in [seen for seen in scheduler.jobs.values() if seen.is_final]:
            if self.now_s - scheduler.changed_s[seen.id] < ALL_AFTER_S:
                continue
            scheduler.tombstones[seen.id] = seen
            del scheduler.jobs[seen.id], scheduler.changed[seen.id], scheduler.changed_s[seen.id]

    def boot(self) -> None:
        self.boots += 1
        self.scheduler = Scheduler(f"boot-{self.boots}", self.slots)

    def _attempt(self, seen: SeenJob, attempt: int) -> None:
        row = self.rows[seen.id]
        assert row.phase in (Phase.HANDING_OVER, Phase.HANDED_OVER), f"{row} starts again"
        self.started[seen.id, attempt] += 1
        assert self.started[seen.id, attempt] == 1, f"{seen.id}.{attempt} starts twice"
        # Ranks make their first file a while after they were started; a restart, which follows
        # an attempt that did, is taken to be seen at once.
        if attempt > seen.first_attempt:
            self.attempts[seen.id] = max(attempt, self.attempts[seen.id])
        self.scheduler.stamp(
            seen.model_copy(update={"state": "running", "attempt": attempt}), self.now_s
        )

    # --- commands

    def put(self, order: Order) -> None:
        """The scheduler gets a PUT, now or late."""
        scheduler = self.scheduler
        if order.epoch != scheduler.epoch:
            raise Refused("epoch_changed", 409, {})
        live = scheduler.jobs.get(order.job_id)
        if live is not None and not live.is_final:
            return
        ended = self._ended(order.job_id)
        if ended is not None and order.first_attempt <= ended.attempt:
            raise Refused("ended", 410, {}, ended)
        seen = SeenJob(
            id=order.job_id,
            state="pending",
            service=SERVICE,
            first_attempt=order.first_attempt,
            priority=order.priority,
        )
        scheduler.stamp(seen, self.now_s)

    def _ended(self, job_id: str) -> SeenJob | None:
        """The later one of a job's two ends: as it is listed, and its tombstone."""
        scheduler = self.scheduler
        listed, tombstone = scheduler.jobs.get(job_id), scheduler.tombstones.get(job_id)
        ends = [
            seen.model_copy(update={"attempt": max(seen.attempt, seen.first_attempt)})
            for seen in (listed, tombstone)
            if seen is not None and seen.is_final
        ]
        return max(ends, key=lambda seen: seen.attempt, default=None)

    def cancelled(self, job_id: str, first_attempt: int) -> None:
        """The scheduler gets a cancellation of all submissions up to one, now or late."""
        scheduler, seen = self.scheduler, self.scheduler.jobs.get(job_id)
        if seen is not None and not seen.is_final:
            if seen.first_attempt > first_attempt:
                raise Refused("later_submission", 409, {})
            row = self.rows[job_id]
            of_row = row.phase is not Phase.FINAL and row.first_attempt == seen.first_attempt
            assert not of_row or row.intent is Intent.CANCEL, f"{row} is cancelled"
            scheduler.stamp(
                seen.model_copy(update={"state": "cancelled", "reason": "Cancelled"}), self.now_s
            )
        ended = self._ended(job_id)
        if ended is None or ended.attempt < first_attempt:
            scheduler.tombstones[job_id] = ended = SeenJob(
                id=job_id, state="cancelled", attempt=first_attempt, first_attempt=first_attempt
            )
        if seen is None or seen.is_final:
            raise Refused("ended", 410, {}, ended)

    # --- what passes ask

    def poll(self, epoch: str | None, since: int) -> SchedulerAnswer:
        if not self.answers:
            raise Unreachable("no answer")
        scheduler = self.scheduler
        since = since if epoch == scheduler.epoch else 0
        told = [i for i, changed in scheduler.changed.items() if changed > since]
        told.sort(key=scheduler.changed.__getitem__)
        more, told = len(told) > 2, told[:2]
        revision = scheduler.changed[told[-1]] if more else scheduler.revision
        jobs = tuple(scheduler.jobs[job_id] for job_id in told)
        return SchedulerAnswer(scheduler.epoch, revision, more, scheduler.workers, jobs)

    def commit(self, changes: Sequence[Change]) -> set[str]:
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
            self._change(row, columns)
        return skipped

    def order(self, job_id: str, order: JobOrder) -> None:
        """The scheduler gets an order about a job."""
        if order.name == "cancel":
            self.cancelled(job_id, order.words["first_attempt"])
            return
        seen = self.scheduler.jobs.get(job_id)
        if seen is not None and seen.first_attempt == order.words["first_attempt"]:
            self.scheduler.stamp(
                seen.model_copy(update={"priority": order.words["priority"]}), self.now_s
            )


@dataclass
class Seat:
    """The `World` of one process, with a fate for each of its commands.

    Attributes:
        fate: Of the next command: it `arrives`, is `lost`, its `answer lost`, or it is `late`; of a
            question with `no poll` the scheduler hears nothing.
    """

    world: World
    fate: str = "arrives"

    def alive(self) -> list[Job]:
        return [job for job in self.world.rows.values() if job.phase is not Phase.FINAL]

    def job(self, job_id: str) -> Job | None:
        return self.world.rows.get(job_id)

    def commit(self, changes: Sequence[Change]) -> set[str]:
        return self.world.commit(changes)

    def ranks_in_use(self, projects: Sequence[str]) -> dict[str, int]:
        return dict.fromkeys(projects, 0)

    def changes(self, epoch: str | None, since: int) -> SchedulerAnswer:
        if self.fate == "no poll":
            raise Unreachable("no answer")
        return self.world.poll(epoch, since)

    def put(self, job: Job, now_s: float) -> None:
        order = Order(job.id, job.first_attempt, job.epoch, job.priority)
        self._command(lambda: self.world.put(order))

    def send(self, job_id: str, order: JobOrder) -> None:
        self._command(lambda: self.world.order(job_id, order))

    def prepare(self, job: Job) -> int:
        return self.world.attempts[job.id]

    def finish(self, job: Job, columns: Mapping[str, Any]) -> None:
        return None

    def _command(self, arrive: Callable[[], None]) -> None:
        if self.fate == "late":
            self.world.under_way.append(arrive)
        if not self.world.answers or self.fate in ("lost", "late"):
            raise Unreachable("no answer")
        if self.fate == "answer lost":
            with suppress(Refused):
                arrive()
            raise Unreachable("no answer")
        arrive()
