"""One pass over a cluster's jobs: makes the database and the cluster's scheduler agree.

`Pass.run` lists the steps in order: read the rows, query the scheduler, decide, commit, send
orders. Rows are read before the scheduler is queried, so that a job that is missing in its answer
was not handed over in between. A row is committed before the command for it is sent. Tests replace
the database and the network with a `World` that loses answers and kills the pass between any two
calls.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from distrain.jobs.api_answers import Job as SeenJob
from distrain.jobs.spec.resources import DeadlinesSpec
from distrain.jobs.states import JobState
from distrain.service.decisions.admission import admit, ranks_elsewhere, workers_wanted
from distrain.service.decisions.cluster_state import ClusterNow, Memory
from distrain.service.decisions.job_actions import (
    CANCEL,
    HandOver,
    PutAgain,
    Write,
    answered_cancel,
    cancel,
    cancelled,
    ended,
    handed_over,
    reconcile,
    refused,
)
from distrain.service.decisions.world import JobOrder, NotBegun, Refused, Unreachable, World
from distrain.service.values import Change, Job, Phase, Quota

PATIENCE_S = 5.0  # a scheduler that is silent for a shorter time is not written as a reason to wait
ALL_AFTER_S = 60.0
"""After this time without an answer, the scheduler is asked for all jobs.

It keeps its last ended jobs only. Others may have ended and be forgotten meanwhile; they must not
be taken to be still running.
"""
FINISH_WITHIN_S = 60.0  # how long a job waits for its summary before it becomes final
WHY_EVERY_S = 10.0
_HAND_OVERS = 50  # most hand-overs in a pass, so that cancellations do not wait long
_ROWS = 200  # most rows in a transaction, so that other writers are not blocked
_OTHERS = "other_service"  # refusal code: another service's job on the scheduler has this id

_THERE = (Phase.HANDING_OVER, Phase.HANDED_OVER)


@dataclass
class Pass:
    """One pass over the jobs of a cluster; `run` executes it once. See the module docstring."""

    world: World
    memory: Memory
    service: str  # the service's id
    now_s: float
    quotas: Mapping[str, Quota] = field(default_factory=dict)  # by project
    min_ranks: Mapping[str, int] = field(default_factory=dict)  # as for `admit`
    # by job id: the deadlines of queued jobs that have some
    deadlines: Mapping[str, DeadlinesSpec] = field(default_factory=dict)
    starting: bool = False  # whether the cluster is being started
    most_workers: int | None = None  # the largest number of workers, if the service sets it
    growth: str = ""  # why requested workers have not started
    # the result: how many workers the cluster should have; `None` if not computed
    wanted_workers: int | None = None
    rows: dict[str, Job] = field(default_factory=dict)  # the jobs by id, as they are now
    # the result: whether another pass should follow immediately
    active: bool = False
    _undone: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Execute the pass; raises the errors of the world's calls.

        If the scheduler does not answer, only that is noted: no order is sent and no job admitted.
        If it stops answering while orders are sent, no job is admitted.
        """
        self.rows = {job.id: job for job in self.world.alive()}
        self._ask()
        if self.memory.answers:
            self._adopt()
        self._take()
        if not self.memory.answers:
            self._report_no_contact()
        elif self._command():
            self._admit()
            self._cancel_orphans()
        self.memory.forget_ended(set(self.rows))

    def _ask(self) -> None:
        contact_s = self.memory.contact_s
        if contact_s is not None and self._passed_s(contact_s) > ALL_AFTER_S:
            self.memory.asks_for_all = True
        while True:
            try:
                answer = self.world.changes(self.memory.known_epoch, self.memory.revision)
            except (Unreachable, Refused) as error:
                self.memory.miss(error.message, self.now_s)
                return
            # Other services may have jobs on this scheduler, even with the same ids.
            own = tuple(seen for seen in answer.jobs if seen.service == self.service)
            self.memory.update(replace(answer, jobs=own), self.now_s)
            if not answer.more:
                return

    def _adopt(self) -> None:
        """Update rows that are older than the scheduler's state, as in a restored backup.

        These are queued jobs whose submission the scheduler has, and all jobs of which it has a
        later submission.
        """
        for job in list(self.rows.values()):
            seen = self.memory.sightings.get(job.id)
            if seen is None:
                continue
            first = job.first_attempt if job.phase is Phase.QUEUED else job.first_attempt + 1
            if seen.first_attempt >= first:
                there = {"phase": Phase.HANDED_OVER, "epoch": self.memory.epoch}
                columns = there | {"first_attempt": seen.first_attempt, "why_pending": ""}
                self._commit(Change(job, columns | {"observed_at_s": self.now_s}))

    def _take(self) -> None:
        changes: list[Change] = []
        cluster = self.memory.cluster()
        for job in list(self.rows.values()):
            if self.memory.is_finishing(job):
                if (columns := self._finished(job)) is not None:
                    changes.append(Change(job, columns))
                continue
            actions = self._decide(job, cluster)
            if actions:
                self._undone.append(job.id)
            changes += [
                Change(job, action.columns)
                for action in actions
                if isinstance(action, Write) and self._write_now_or_keep(job, action.columns)
            ]
        self._commit(*changes)

    def _command(self) -> bool:
        """Send the orders that jobs wait for, such as cancellations, and return True.

        Stops and returns False as soon as the scheduler does not answer.
        """
        try:
            for job_id in self._undone:
                job = self.rows[job_id]
                for action in self._decide(job, self.memory.cluster()):
                    if isinstance(action, JobOrder):
                        self._send(job, action)
                    elif isinstance(action, PutAgain):
                        self._put(job)
                    elif isinstance(action, HandOver):
                        self._hand_over(job, action)
        except Unreachable:
            return False
        return True

    def _report_no_contact(self) -> None:
        silent_s = self._passed_s(self.memory.since_s or 0.0)
        if self.starting or silent_s >= PATIENCE_S:
            _, why = self._admission()
            self._write_reasons(why)

    def _admission(self) -> tuple[list[Job], dict[str, str]]:
        # A job whose run folder cannot be prepared for now must not reserve workers.
        ready = [job for job in self.rows.values() if not self._must_pause(job)]
        waiting = [job for job in ready if job.phase is Phase.QUEUED]
        there = [job for job in ready if job.phase in _THERE]
        if not waiting and self.most_workers is None:
            return [], {}
        bounded = {name for name, quota in self.quotas.items() if quota.max_ranks is not None}
        bound = sorted(bounded & {job.project for job in waiting})
        everywhere = self.world.ranks_in_use(bound) if bound else {}
        elsewhere = ranks_elsewhere(everywhere, there)
        cluster = replace(
            self.memory.cluster(starting=self.starting),
            most_workers=self.most_workers,
            growth=self.growth,
        )
        told = (waiting, there, self.quotas, cluster, self.now_s)
        if self.most_workers is not None:
            self.wanted_workers = workers_wanted(
                *told, most=self.most_workers, min_ranks=self.min_ranks, elsewhere=elsewhere
            )
        return admit(*told, min_ranks=self.min_ranks, elsewhere=elsewhere)

    def _admit(self) -> None:
        chosen, why = self._admission()
        try:
            for job in chosen[:_HAND_OVERS]:
                self.active |= self._hand_over(job, HandOver(str(self.memory.epoch)))
        except Unreachable:
            return
        self._write_reasons(why)

    def _write_reasons(self, why: Mapping[str, str]) -> None:
        """Write the jobs' reasons to wait, given by job id, to the rows where they differ.

        A row without a reason is written at once, any other at most once in `WHY_EVERY_S`: all jobs
        of a queue may wait for the same job, so each change of that job could change all their
        rows.
        """
        told = self.memory.told_why
        changes = []
        for job_id, words in why.items():
            job = self.rows[job_id]
            waited = self._passed_s(told.get(job_id, 0.0)) >= WHY_EVERY_S
            if job.why_pending != words and (waited or not job.why_pending):
                told[job_id] = self.now_s
                changes.append(Change(job, {"why_pending": words}))
        self._commit(*changes)

    def _write_reason(self, job: Job, words: str) -> None:
        """Write a job's reason to wait, `words`, to its row, unless the row has it already."""
        if job.why_pending != words:
            self._commit(Change(job, {"why_pending": words}))

    def _decide(self, job: Job, cluster: ClusterNow) -> tuple[Any, ...]:
        seen = self.memory.sightings.get(job.id)
        return reconcile(job, seen, cluster, self.now_s, self.deadlines.get(job.id))

    def _must_pause(self, job: Job) -> bool:
        return self.memory.must_pause(job.id, self.now_s)

    def _hand_over(self, job: Job, action: HandOver) -> bool:
        """Hand over a job; return False if its run folder cannot be prepared for now."""
        if self._must_pause(job):
            return False
        try:
            attempts = self.world.prepare(job)
        except NotBegun as error:
            if error.for_now:
                self.memory.note_unprepared(job.id, self.now_s)
                self._write_reason(job, error.message)
            else:  # no PUT of this submission was sent, so the job can be ended
                columns = refused(job, error.reason, error.message, self.now_s)
                self._commit(Change(job, columns))
            return not error.for_now
        self.memory.unprepared.pop(job.id, None)
        columns = handed_over(job, action.epoch, action.losses, attempts, self.now_s)
        if self._commit(Change(job, columns)):
            self._put(self.rows[job.id])
        return True

    def _put(self, job: Job) -> None:
        try:
            self.world.put(job, self.now_s)
        except Refused as error:
            if error.code == "ended":
                end = _tombstone(job, error.ended)
                self._finish(job, ended(job, end, self.now_s), end)
            elif error.code == "bad_spec":
                self._finish(job, refused(job, "InvalidSpec", error.message, self.now_s))
            elif error.code == _OTHERS:
                message = f"{error.message}: submit this job with another id"
                self._finish(job, refused(job, "InvalidSpec", message, self.now_s))
            else:
                self._write_reason(job, error.message)
        else:
            accepted = {"phase": Phase.HANDED_OVER, "state": "pending", "observed_at_s": self.now_s}
            self._commit(Change(job, accepted | {"why_pending": ""}))

    def _send(self, job: Job, order: JobOrder) -> None:
        try:
            self.world.send(job.id, order)
        except Refused as error:
            if order.name != CANCEL:
                return
            same = order.words["first_attempt"] == job.first_attempt
            if error.code == "ended" and error.ended and same:
                end = _tombstone(job, error.ended)
                if (columns := answered_cancel(job, end, self.now_s)) is not None:
                    self._finish(job, columns, end)
            elif error.code == _OTHERS:
                self._finish(job, cancelled(job, self.now_s))

    def _finish(self, job: Job, columns: Mapping[str, Any], seen: SeenJob | None = None) -> None:
        if self._write_now_or_keep(job, columns, seen):
            self._commit(Change(job, columns))

    def _write_now_or_keep(
        self, job: Job, columns: Mapping[str, Any], seen: SeenJob | None = None
    ) -> bool:
        """Return True if `columns` may be written to the job's row now.

        Otherwise keep them for later. Columns that end a job must wait until the summary is in its
        run folder. A worker writes the summary of a job that its scheduler has ended. For other
        jobs this method writes it; a failed write is only logged. A job that is still queued here
        needs no summary.

        If the result is False, the columns are kept in `self.memory.finishing`, to be written
        later, and `active` is set, so that another pass follows. `seen` is the ended job as the
        scheduler reported it. By default, it is the job's entry in `self.memory.sightings`, if that
        is about the same submission.
        """
        if job.phase is Phase.QUEUED or columns.get("phase") is not Phase.FINAL:
            return True
        known = self.memory.sightings.get(job.id)
        same = known is not None and known.first_attempt == job.first_attempt
        seen = seen or (known if same else None)
        if seen is None or not seen.is_final:
            self.world.finish(job, columns)
            return True
        if seen.recorded:
            return True
        self.memory.finishing[job.id] = self.now_s, job.first_attempt, columns
        self.active = True
        return False

    def _finished(self, job: Job) -> Mapping[str, Any] | None:
        """Return the columns that end a job whose summary is being written, if it may end now.

        It may if the summary is written or has not come within `FINISH_WITHIN_S`, or if the
        scheduler no longer has the job, as after a restart of the scheduler. Otherwise returns
        `None`, and sets `active`, so that another pass follows.
        """
        since_s, _, columns = self.memory.finishing[job.id]
        seen = self.memory.sightings.get(job.id)
        if seen is None or seen.recorded or self._passed_s(since_s) >= FINISH_WITHIN_S:
            return columns
        self.active = True
        return None

    def _passed_s(self, since_s: float) -> float:
        """Return the seconds between a time and now.

        The result is positive also for a time in the future, which is possible after the clock was
        set back: otherwise a wait could last as long as the clock was set back.
        """
        return abs(self.now_s - since_s)

    def _cancel_orphans(self) -> None:
        memory = self.memory
        strangers = {
            job_id
            for job_id, seen in memory.sightings.items()
            if not seen.is_final and job_id not in self.rows
        }
        for job_id in memory.orphans.keys() - strangers:
            del memory.orphans[job_id]
        for job_id in sorted(strangers):
            memory.orphans[job_id] += 1
            if memory.orphans[job_id] < 2:
                continue
            row = self.world.job(job_id)
            if row is None or row.phase is Phase.FINAL:
                first = self.memory.sightings[job_id].first_attempt
                with suppress(Unreachable, Refused):
                    self.world.send(job_id, cancel("the service does not know this job", first))

    def _commit(self, *changes: Change) -> bool:
        """Write changes of rows to the database and to `rows`; return True if all were written.

        The database skips a row that has changed meanwhile; another pass then follows.
        """
        skipped = set[str]()
        for first in range(0, len(changes), _ROWS):
            skipped.update(self.world.commit(changes[first : first + _ROWS]))
        for change in changes:
            if change.job.id in skipped:
                self.active = True
                continue
            columns: dict[str, Any] = dict(change.columns)
            row = replace(change.job, **columns)
            self.rows[row.id] = replace(row, rev=row.rev + 1)
        return not skipped


def _tombstone(job: Job, ended: SeenJob | None) -> SeenJob:
    """Return the final state of a job whose order the scheduler rejected, as the job has ended.

    `ended` is the job in the rejection, `None` if it has none. It may have only the field
    `attempt`; without a state, the job counts as failed.
    """
    last = ended or SeenJob()
    end = {
        "id": job.id,
        "service": None,
        "state": last.state or str(JobState.FAILED),
        "first_attempt": min(last.attempt, job.first_attempt),
        "recorded": True,
    }
    return last.model_copy(update=end)
