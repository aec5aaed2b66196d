"""Carries out what services order: put, cancel and re-prioritise jobs, each at most once.

An order that cannot be carried out raises `Refusal`, which becomes the answer.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from distrain.errors import SpecError
from distrain.jobs.reasons import Reason
from distrain.jobs.spec.load import parse_spec
from distrain.jobs.states import JobState
from distrain.jobs.status import JobStatus
from distrain.scheduler.http.bodies import (
    CancelOrder,
    PriorityOrder,
    PutOrder,
    Refusal,
    ServiceOrder,
)
from distrain.scheduler.http.monitor import Monitor
from distrain.scheduler.job_view import last_attempt
from distrain.scheduler.lifecycle.job import Job
from distrain.scheduler.lifecycle.messages import Cancel, ChangePriority

MOST_SERVICES = 256  # services that are remembered


class Orders:
    def __init__(self, monitor: Monitor):
        self.monitor = monitor
        self.coordinator = monitor.coordinator
        self.services: set[str] = set()  # those that have given orders

    def put(self, job_id: str, order: PutOrder) -> bool:
        """Queue a job; whether that was done: `False` if it is here already."""
        self._note_service(order.service)
        if order.epoch != self.coordinator.epoch:
            raise Refusal(
                409,
                "epoch_changed",
                "the scheduler was started anew since this was decided",
                "Ask for its jobs, and decide again.",
                epoch=self.coordinator.epoch,
            )
        job = self.coordinator.lifecycle.jobs.get(job_id)
        if job is not None and not job.state.is_final:
            self._check_owner(job_id, order)
            return False
        self._check_not_ended(job_id, order)
        try:
            spec = parse_spec(order.spec)
        except SpecError as error:
            hint = "`distrain train --dry-run` checks a spec."
            raise Refusal(422, "bad_spec", str(error), error.hint or hint) from None
        self.coordinator.queue(
            job_id, spec, order.run_dir, order.first_attempt, priority=order.priority
        )
        self.monitor.follow(job_id).service = order.service
        return True

    def cancel(self, job_id: str, order: CancelOrder) -> None:
        """End a job's submissions up to one; a repeated order with a shorter grace hurries it.

        A PUT of them that arrives later is refused, also if the job was never here.
        """
        self._note_service(order.service)
        job = self.coordinator.lifecycle.jobs.get(job_id)
        is_live = job is not None and not job.state.is_final
        if is_live:
            self._live(job_id, order)
            self.coordinator.tell(Cancel(job_id, order.why, order.grace_s))
        ended = self._last_end(job_id)
        if ended is None or last_attempt(ended) < order.first_attempt:
            self.coordinator.tombstones.add(_never_begun(job_id, order))
        if not is_live:
            raise self._has_ended(job_id)

    def set_priority(self, job_id: str, order: PriorityOrder) -> None:
        self._note_service(order.service)
        job = self._live(job_id, order)
        if not job.state.waits:
            raise Refusal(
                409,
                "not_pending",
                f"job {job_id} is {job.state}",
                "Priorities count for jobs that wait.",
                state=str(job.state),
            )
        self.coordinator.tell(ChangePriority(job_id, order.priority))

    def ended(self, job_id: str) -> dict[str, Any] | None:
        """How a job ended, also a forgotten one; `None` if it has not, or was never here.

        `attempt` is the last one that it had or was put for: to go on, put it for a later one.
        """
        ended = self._last_end(job_id)
        if ended is None:
            return None
        return {
            "job_id": job_id,
            "state": ended.state,
            "reason": ended.reason,
            "message": ended.message,
            "attempt": last_attempt(ended),
        }

    def _last_end(self, job_id: str) -> JobStatus | None:
        """The end of the last submission of a job that has ended, in the lists or buried."""
        job, buried = self.coordinator.lifecycle.jobs.get(job_id), self.coordinator.tombstones
        ends = [buried[job_id]] if job_id in buried else []
        if job is not None and job.state.is_final:
            message = self.coordinator.show(job_id).message
            ends.append(replace(self.coordinator.status(job_id), message=message))
        return max(ends, key=last_attempt, default=None)

    def _live(self, job_id: str, order: ServiceOrder) -> Job:
        job = self.coordinator.lifecycle.jobs.get(job_id)
        if job is None and self._last_end(job_id) is None:
            listed = "GET /distrain/v1/jobs lists the jobs that are known here."
            raise Refusal(404, "unknown", f"no job {job_id!r}", listed)
        if job is None or job.state.is_final:
            raise self._has_ended(job_id)
        self._check_owner(job_id, order)
        if job.request.first_attempt > order.first_attempt:
            later = f"a later submission of job {job_id} is here"
            raise Refusal(409, "later_submission", later, "Ask for its jobs, and decide again.")
        return job

    def _has_ended(self, job_id: str) -> Refusal:
        ended = self.ended(job_id)
        assert ended is not None
        return Refusal(410, "ended", _end_of(ended), "It needs nothing more.", job=ended)

    def _check_not_ended(self, job_id: str, order: PutOrder) -> None:
        ended = self.ended(job_id)
        if ended is not None and order.first_attempt <= ended["attempt"]:
            self._check_owner(job_id, order)
            after = f"To go on with it, put it with a first_attempt above {ended['attempt']}."
            raise Refusal(410, "ended", _end_of(ended), after, job=ended)

    def _check_owner(self, job_id: str, order: ServiceOrder) -> None:
        owner = self._owner(job_id)
        if owner != order.service:
            whose = f"service {owner!r}" if owner else "somebody who submitted it by Dask"
            hint = "Use an id of your own for a job, and have its owner change it."
            raise Refusal(409, "other_service", f"job {job_id} is that of {whose}", hint)

    def _owner(self, job_id: str) -> str | None:
        """The service that put a job, also a forgotten one; `None`: it came by Dask."""
        if job_id in self.coordinator.lifecycle.jobs:
            return self.monitor.follow(job_id).service
        return self.coordinator.tombstones[job_id].service

    def _note_service(self, service: str) -> None:
        if service not in self.services and len(self.services) >= MOST_SERVICES:
            hint = "Start the scheduler anew; it forgets them."
            raise Refusal(
                409, "too_many_services", f"{MOST_SERVICES} services were here already", hint
            )
        self.services.add(service)


def _never_begun(job_id: str, order: CancelOrder) -> JobStatus:
    """The end of a submission that was cancelled before it arrived."""
    return JobStatus(
        job_id,
        state=str(JobState.CANCELLED),
        reason=Reason.CANCELLED,
        message=order.why,
        service=order.service,
        attempt=order.first_attempt - 1,
        first_attempt=order.first_attempt,
    )


def _end_of(ended: Mapping[str, Any]) -> str:
    return f"job {ended['job_id']} has ended: {ended['state']}"
