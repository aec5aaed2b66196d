"""Carries out the orders about a job: submit, cancel, change the priority.

Each order is carried out at most once, however often it is sent. If an order cannot be carried out,
the methods raise `Refusal`, from which the answer is made.
"""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field

from distrain.errors import SpecError
from distrain.jobs.api_answers import CancelOptions, Job as EndedJob, Priority
from distrain.jobs.reasons import Reason
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.load import parse_spec
from distrain.jobs.states import JobState
from distrain.scheduler.http.bodies import Body, Refusal
from distrain.scheduler.job_list import last_attempt
from distrain.scheduler.lifecycle.job import Job
from distrain.scheduler.lifecycle.messages import Cancel, ChangePriority
from distrain.scheduler.monitor import Monitor

Word = Annotated[str, Field(min_length=1, max_length=200)]


class Order(Body):
    """The body of a request to change a job.

    A service adds its own id, and the submission to change: the number of its first attempt.
    """

    service: Word | None = Field(
        None, description="The id of the service; null: the order comes from a Dask client."
    )
    first_attempt: Annotated[int, Field(ge=1, lt=2**31, strict=True)] | None = Field(
        None,
        description="The first attempt of the submission that the order is for; null: of the "
        "current submission.",
    )


class PutOrder(Order):
    """The body of a request to submit a job."""

    epoch: Word | None = Field(
        None, description="The epoch of the scheduler that the service has chosen."
    )
    spec: dict[str, Any] = Field(description="The job spec, with absolute paths.")
    run_dir: Annotated[str, Field(max_length=4096, pattern=r"^(/|[a-z][a-z0-9+.-]*://)")] = Field(
        description="The run folder: an absolute path or a URL."
    )
    priority: Priority | None = Field(None, description="Null: `queue.priority` of the spec.")
    page: str | None = Field(None, description="The URL of the job's page in the service.")
    age_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        0.0, description="The seconds since the job's submission to the service, for deadlines."
    )
    has_run: bool = Field(
        False,
        description="Whether the job has had workers of an earlier scheduler: then "
        "`deadlines.queue_s` does not apply.",
    )


class CancelOrder(Order, CancelOptions):
    """The body of a request to cancel a job."""


class PriorityOrder(Order):
    """The body of a request to change the priority of a waiting job."""

    priority: Priority


class JobCommands:
    """Carries out the requests that change jobs.

    Each method returns the HTTP status of the answer.
    """

    def __init__(self, monitor: Monitor):
        self.monitor = monitor
        self.coordinator = monitor.coordinator

    def put(self, job_id: str, order: PutOrder) -> int:
        """Queue a job, and return 201; return 200 if it is queued or running already.

        Also returns 200 if a Dask client submits a job that has succeeded with the same spec.
        Raises `Refusal` if the job has another owner, the submission has ended, or the spec has
        mistakes; for an order of a service also if the scheduler was restarted since `order.epoch`.
        """
        if order.service is not None and order.epoch != self.coordinator.epoch:
            raise self._epoch_changed()
        job = self.coordinator.lifecycle.jobs.get(job_id)
        if job is not None and not job.state.is_final:
            self._check_owner(job_id, order)
            return 200
        first_attempt = order.first_attempt or 1
        self._check_not_ended(job_id, order, first_attempt)
        spec = _spec_of(order)
        # A client over Dask may not have noticed that the job succeeded. Then the job is shown,
        # unless the new spec differs, for example trains longer.
        succeeded = job is not None and job.state is JobState.SUCCEEDED
        if job is not None and succeeded and order.service is None and spec == job.spec:
            return 200
        self.coordinator.queue(
            job_id,
            spec,
            order.run_dir,
            first_attempt,
            order.priority,
            age_s=order.age_s,
            has_run=order.has_run,
        )
        history = self.coordinator.histories[job_id]
        history.service, history.page = order.service, order.page
        return 201

    def cancel(self, job_id: str, order: CancelOrder) -> int:
        """Cancel a job, and return 202; return 200 to a Dask client if the job has ended already.

        A submission is identified by the number of its first attempt. A repeated order with a
        shorter grace period shortens the grace period. After an order of a service, this scheduler
        also refuses a later `put` whose `first_attempt` is at most `order.first_attempt`, even if
        it never had the job. So a delayed `put` cannot start the cancelled job.

        Raises:
            Refusal: A submission whose first attempt is after `order.first_attempt` has not ended.
                To a service: the job has ended, is unknown, or has another owner. To a Dask client:
                the job is unknown.
        """
        job = self.coordinator.lifecycle.jobs.get(job_id)
        is_live = job is not None and not job.state.is_final
        if is_live:
            self._live(job_id, order)
            self.coordinator.handle_stimulus(Cancel(job_id, order.why, order.allowed_s))
        if order.service is None:
            if self._last_end(job_id) is None and not is_live:
                raise unknown(job_id)
            return 202 if is_live else 200
        first_attempt = order.first_attempt or 1
        ended = self._last_end(job_id)
        if ended is not None:  # a service may not cancel jobs of others, even if they have ended
            self._check_owner(job_id, order)
        if ended is None or last_attempt(ended) < first_attempt:
            self.coordinator.tombstones.add(_never_begun(job_id, order, first_attempt))
        if not is_live:
            raise self._has_ended(job_id)
        return 202

    def set_priority(self, job_id: str, order: PriorityOrder) -> int:
        """Change the priority of a waiting job, and return 200.

        Raises `Refusal` if the job is unknown, has ended, or does not wait; if this scheduler has
        a later submission of it than `order.first_attempt`; and, for an order of a service, if the
        job has another owner.
        """
        job = self._live(job_id, order)
        if not job.state.waits:
            raise Refusal(
                409,
                "not_pending",
                f"job {job_id} is {job.state}",
                "Priorities only affect waiting jobs.",
                state=str(job.state),
            )
        self.coordinator.handle_stimulus(ChangePriority(job_id, order.priority))
        return 200

    def ended(self, job_id: str) -> EndedJob | None:
        """Return the document of a job's last submission that has ended, even if it was removed.

        `None` if no submission has ended here. The document's `attempt` is the last attempt that
        the submission had or was made for; to resume the job, submit it with a later attempt.
        """
        ended = self._last_end(job_id)
        return ended and ended.model_copy(update={"attempt": last_attempt(ended)})

    def _last_end(self, job_id: str) -> EndedJob | None:
        """Return the document of a job's last submission that has ended; `None` if there is none.

        If the job was removed, this is its tombstone.
        """
        job, buried = self.coordinator.lifecycle.jobs.get(job_id), self.coordinator.tombstones
        ends = [buried[job_id]] if job_id in buried else []
        if job is not None and job.state.is_final:
            ends.append(self.monitor.watched_job(job_id).document)
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
            later = f"there is a later submission of job {job_id}"
            raise Refusal(409, "later_submission", later, "Request its jobs, and decide again.")
        return job

    def _has_ended(self, job_id: str) -> Refusal:
        ended = self.ended(job_id)
        assert ended is not None
        hint = "Nothing is left to do."
        return Refusal(410, "ended", _end_of(ended), hint, job=ended.model_dump())

    def _epoch_changed(self) -> Refusal:
        detail = "the scheduler was restarted after this was decided"
        hint, epoch = "Request its jobs, and decide again.", self.coordinator.epoch
        return Refusal(409, "epoch_changed", detail, hint, epoch=epoch)

    def _check_not_ended(self, job_id: str, order: PutOrder, first_attempt: int) -> None:
        ended = self.ended(job_id)
        if ended is not None and first_attempt <= ended.attempt:
            self._check_owner(job_id, order)
            after = f"To resume it, submit it with a first_attempt above {ended.attempt}."
            raise Refusal(410, "ended", _end_of(ended), after, job=ended.model_dump())

    def _check_owner(self, job_id: str, order: Order) -> None:
        owner = self._owner(job_id)
        if owner != order.service:
            whose = f"service {owner!r}" if owner else "a user who submitted it with a Dask client"
            hint = "Use another id for your job; only the owner of that job can change it."
            raise Refusal(409, "other_service", f"job {job_id} belongs to {whose}", hint)

    def _owner(self, job_id: str) -> str | None:
        """Return the id of the service that submitted a job; `None`: a Dask client did.

        The job may have been removed.
        """
        history = self.coordinator.histories.get(job_id)
        return self.coordinator.tombstones[job_id].service if history is None else history.service


ORDERS: tuple[tuple[str, str, type[Order], Callable[..., int]], ...] = (
    ("PUT", "", PutOrder, JobCommands.put),
    ("PATCH", "", PriorityOrder, JobCommands.set_priority),
    ("POST", "/cancel", CancelOrder, JobCommands.cancel),
)
"""The orders: HTTP method, path below the job's path, class of the body, and method of
`JobCommands`.

That method returns the HTTP status of the answer.
"""


def _spec_of(order: PutOrder) -> JobSpec:
    try:
        return parse_spec(order.spec)
    except SpecError as error:
        hint = "`distrain train --dry-run` checks a spec."
        raise Refusal(422, "bad_spec", str(error), error.hint or hint) from None


def _never_begun(job_id: str, order: CancelOrder, first_attempt: int) -> EndedJob:
    """Return the tombstone of a submission that was cancelled before its `put` arrived.

    `first_attempt` is the number of the submission's first attempt; `order` cancelled it.
    """
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
    """Return the refusal of a request about an unknown job."""
    listed = "`distrain jobs` lists the jobs of this scheduler; it forgets the oldest."
    return Refusal(404, "not_found", f"no job {job_id!r}", listed)
