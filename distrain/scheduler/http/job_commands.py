"""Carries out orders: submit, cancel and re-prioritise jobs, each at most once.

If an order cannot be carried out, the methods raise `Refusal`, from which the answer is made.
"""

from distrain.errors import SpecError
from distrain.jobs.api_answers import Job as EndedJob
from distrain.jobs.reasons import Reason
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.load import parse_spec
from distrain.jobs.states import JobState
from distrain.scheduler.http.bodies import (
    CancelOrder,
    Order,
    PriorityOrder,
    PutOrder,
    Refusal,
)
from distrain.scheduler.http.monitor import Monitor
from distrain.scheduler.job_list import last_attempt
from distrain.scheduler.lifecycle.job import Job
from distrain.scheduler.lifecycle.messages import Cancel, ChangePriority

MOST_SERVICES = 256  # services that are remembered


class JobCommands:
    def __init__(self, monitor: Monitor):
        self.monitor = monitor
        self.coordinator = monitor.coordinator
        self.services: set[str] = set()  # the services that have given orders

    def put(self, job_id: str, order: PutOrder) -> bool:
        """Queue a job; return False if it is queued or running already.

        Also returns False if a Dask client submits a job that has succeeded with the same spec.
        Raises `Refusal` if the job is another owner's, the submission has ended, the spec has
        mistakes, or, for services, the scheduler was restarted since `order.epoch`.
        """
        if order.service is not None:
            self._note_service(order.service)
            self._check_epoch(order)
        job = self.coordinator.lifecycle.jobs.get(job_id)
        if job is not None and not job.state.is_final:
            self._check_owner(job_id, order)
            return False
        first_attempt = order.first_attempt or 1
        self._check_not_ended(job_id, order, first_attempt)
        spec = _spec_of(order)
        # A client over Dask may not have noticed that the job succeeded. Then the job is shown,
        # unless the new spec differs, for example trains longer.
        done = job is not None and job.state is JobState.SUCCEEDED and order.service is None
        if done and spec == self.coordinator.specs[job_id]:
            return False
        self.coordinator.queue(job_id, spec, order.run_dir, first_attempt, priority=order.priority)
        track = self.monitor.follow(job_id)
        track.service, track.page = order.service, order.page
        return True

    def cancel(self, job_id: str, order: CancelOrder) -> bool:
        """Cancel a job's submissions up to `order.first_attempt`; return whether the job was alive.

        A repeated order with a shorter grace shortens the grace. After a service's order, a `put`
        of such a submission is refused, even if the job was never here.

        Raises:
            Refusal: The job is another owner's, or here in a later submission. For a service: the
                job was not alive. For a Dask client: the job is unknown.
        """
        job = self.coordinator.lifecycle.jobs.get(job_id)
        is_live = job is not None and not job.state.is_final
        if is_live:
            self._live(job_id, order)
            self.coordinator.tell(Cancel(job_id, order.why, order.allowed_s))
        if order.service is None:
            if self._last_end(job_id) is None and not is_live:
                raise unknown(job_id)
            return is_live
        self._note_service(order.service)
        first_attempt = order.first_attempt or 1
        ended = self._last_end(job_id)
        if ended is not None:  # a service may not cancel jobs of others, even if they have ended
            self._check_owner(job_id, order)
        if ended is None or last_attempt(ended) < first_attempt:
            self.coordinator.tombstones.add(_never_begun(job_id, order, first_attempt))
        if not is_live:
            raise self._has_ended(job_id)
        return True

    def set_priority(self, job_id: str, order: PriorityOrder) -> None:
        if order.service is not None:
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

    def ended(self, job_id: str) -> EndedJob | None:
        """Return the document of an ended job, even if the job itself was removed.

        `None` if the job has not ended or was never here. `attempt` is the last attempt that it had
        or was submitted for; to resume the job, submit it with a later one.
        """
        ended = self._last_end(job_id)
        return ended and ended.model_copy(update={"attempt": last_attempt(ended)})

    def _last_end(self, job_id: str) -> EndedJob | None:
        """Return the end of a job's last submission, even if the job was removed; else `None`."""
        job, buried = self.coordinator.lifecycle.jobs.get(job_id), self.coordinator.tombstones
        ends = [buried[job_id]] if job_id in buried else []
        if job is not None and job.state.is_final:
            ends += self.monitor.listed([job_id])
        return max(ends, key=last_attempt, default=None)

    def _live(self, job_id: str, order: Order) -> Job:
        job = self.coordinator.lifecycle.jobs.get(job_id)
        if job is None and self._last_end(job_id) is None:
            raise unknown(job_id)
        if job is None or job.state.is_final:
            raise self._has_ended(job_id)
        if order.service is not None:
            self._check_owner(job_id, order)
        if job.request.first_attempt > (order.first_attempt or job.request.first_attempt):
            later = f"a later submission of job {job_id} is here"
            raise Refusal(409, "later_submission", later, "Ask for its jobs, and decide again.")
        return job

    def _has_ended(self, job_id: str) -> Refusal:
        ended = self.ended(job_id)
        assert ended is not None
        hint = "Nothing is left to do."
        return Refusal(410, "ended", _end_of(ended), hint, job=ended.model_dump())

    def _check_epoch(self, order: PutOrder) -> None:
        if order.epoch != self.coordinator.epoch:
            raise Refusal(
                409,
                "epoch_changed",
                "the scheduler was restarted after this was decided",
                "Ask for its jobs, and decide again.",
                epoch=self.coordinator.epoch,
            )

    def _check_not_ended(self, job_id: str, order: PutOrder, first_attempt: int) -> None:
        ended = self.ended(job_id)
        if ended is not None and first_attempt <= ended.attempt:
            self._check_owner(job_id, order)
            after = f"To resume it, put it with a first_attempt above {ended.attempt}."
            raise Refusal(410, "ended", _end_of(ended), after, job=ended.model_dump())

    def _check_owner(self, job_id: str, order: Order) -> None:
        owner = self._owner(job_id)
        if owner != order.service:
            whose = f"service {owner!r}" if owner else "somebody who submitted it by Dask"
            hint = "Use an id of your own for a job, and have its owner change it."
            raise Refusal(409, "other_service", f"job {job_id} is that of {whose}", hint)

    def _owner(self, job_id: str) -> str | None:
        """Return the service that submitted a job, even a removed one; `None`: a Dask client."""
        if job_id in self.coordinator.lifecycle.jobs:
            return self.monitor.follow(job_id).service
        return self.coordinator.tombstones[job_id].service

    def _note_service(self, service: str) -> None:
        if service not in self.services and len(self.services) >= MOST_SERVICES:
            hint = "Restart the scheduler; it forgets them."
            raise Refusal(
                409, "too_many_services", f"{MOST_SERVICES} services were here already", hint
            )
        self.services.add(service)


def _spec_of(order: PutOrder) -> JobSpec:
    try:
        return parse_spec(order.spec)
    except SpecError as error:
        hint = "`distrain train --dry-run` checks a spec."
        raise Refusal(422, "bad_spec", str(error), error.hint or hint) from None


def _never_begun(job_id: str, order: CancelOrder, first_attempt: int) -> EndedJob:
    """Return the end of a submission that was cancelled before it arrived."""
    return EndedJob(
        id=job_id,
        state=JobState.CANCELLED.value,
        reason=Reason.CANCELLED.value,
        message=order.why,
        service=order.service,
        attempt=first_attempt - 1,
        first_attempt=first_attempt,
        recorded=True,
    )


def _end_of(ended: EndedJob) -> str:
    return f"job {ended.id} has ended: {ended.state}"


def unknown(job_id: str) -> Refusal:
    listed = "`distrain jobs` lists those that are known here; the oldest are forgotten."
    return Refusal(404, "not_found", f"no job {job_id!r}", listed)
