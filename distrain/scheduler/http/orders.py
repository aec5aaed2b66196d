"""Carries out what services order: put, cancel and re-prioritise jobs, each at most once.

An order that cannot be carried out raises `Refusal`, which becomes the answer.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from distrain.errors import SpecError
from distrain.jobs.spec.load import parse_spec
from distrain.scheduler.http.bodies import (
    CancelOrder,
    PriorityOrder,
    PutOrder,
    Refusal,
    ServiceOrder,
)
from distrain.scheduler.http.monitor import Monitor
from distrain.scheduler.lifecycle.job import Job
from distrain.scheduler.lifecycle.messages import Cancel, ChangePriority

MOST_SERVICES = 256  # services whose generations are kept


class Orders:
    def __init__(self, monitor: Monitor):
        self.monitor = monitor
        self.coordinator = monitor.coordinator
        self.generations: dict[str, int] = {}  # the highest of each service; lower ones are refused

    def put(self, job_id: str, order: PutOrder) -> bool:
        """Queue a job; whether that was done: `False` if it is here already."""
        self._check_generation(order)
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
        self._check_not_ended(job_id, order.first_attempt)
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
        """Have a job end; a repeated order with a shorter grace hurries it."""
        self._check_generation(order)
        self._live(job_id, order)
        self.coordinator.tell(Cancel(job_id, order.why, order.grace_s))

    def set_priority(self, job_id: str, order: PriorityOrder) -> None:
        self._check_generation(order)
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
        job = self.coordinator.lifecycle.jobs.get(job_id)
        if job is None:
            ended = self.coordinator.tombstones.get(job_id)
        elif job.state.is_final:
            message = self.coordinator.show(job_id).message
            ended = replace(self.coordinator.status(job_id), message=message)
        else:
            ended = None
        if ended is None:
            return None
        return {
            "job_id": job_id,
            "state": ended.state,
            "reason": ended.reason,
            "message": ended.message,
            "attempt": max(ended.attempt, ended.first_attempt),
        }

    def _live(self, job_id: str, order: ServiceOrder) -> Job:
        ended = self.ended(job_id)
        if ended is not None:
            raise Refusal(410, "ended", _has_ended(ended), "It needs nothing more.", job=ended)
        job = self.coordinator.lifecycle.jobs.get(job_id)
        if job is None:
            listed = "GET /distrain/v1/jobs lists the jobs that are known here."
            raise Refusal(404, "unknown", f"no job {job_id!r}", listed)
        self._check_owner(job_id, order)
        return job

    def _check_not_ended(self, job_id: str, first_attempt: int) -> None:
        ended = self.ended(job_id)
        if ended is not None and first_attempt <= ended["attempt"]:
            after = f"To go on with it, put it with a first_attempt above {ended['attempt']}."
            raise Refusal(410, "ended", _has_ended(ended), after, job=ended)

    def _check_owner(self, job_id: str, order: ServiceOrder) -> None:
        owner = self.monitor.follow(job_id).service
        if owner != order.service:
            whose = f"service {owner!r}" if owner else "somebody who submitted it by Dask"
            hint = "Use an id of your own for a job, and have its owner change it."
            raise Refusal(409, "other_service", f"job {job_id} is that of {whose}", hint)

    def _check_generation(self, order: ServiceOrder) -> None:
        newest = self.generations.get(order.service)
        if newest is not None and order.generation < newest:
            raise Refusal(
                409,
                "stale_generation",
                f"generation {order.generation} of this service was replaced by {newest}",
                "Another process of the service is in charge of this scheduler: stop.",
                generation=newest,
            )
        if newest is None and len(self.generations) >= MOST_SERVICES:
            hint = "Start the scheduler anew; it forgets them."
            raise Refusal(
                409, "too_many_services", f"{MOST_SERVICES} services were here already", hint
            )
        self.generations[order.service] = order.generation


def _has_ended(ended: Mapping[str, Any]) -> str:
    return f"job {ended['job_id']} has ended: {ended['state']}"
