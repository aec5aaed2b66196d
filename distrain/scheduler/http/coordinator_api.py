"""The methods of the coordinator that the HTTP routes call."""

from typing import Any

from distrain.jobs.assignment import Slot
from distrain.scheduler.gpus import gpu_name, gpu_of
from distrain.scheduler.http.bodies import Refusal, dumps
from distrain.scheduler.http.changes import Changes
from distrain.scheduler.http.job_commands import JobCommands, unknown
from distrain.scheduler.http.preflight import Preflights
from distrain.scheduler.lifecycle.lifecycle import Lifecycle
from distrain.scheduler.monitor import Monitor
from distrain.scheduler.plugin import CoordinatorPlugin

EXTENSION = "distrain-api"  # its name among the scheduler's extensions


class CoordinatorApi:
    """The requests about jobs that a coordinator answers, as methods."""

    def __init__(self, coordinator: CoordinatorPlugin):
        self.coordinator = coordinator
        self.monitor = Monitor(coordinator)
        self.changes = Changes(self.monitor)
        self.commands = JobCommands(self.monitor)
        self.preflights = Preflights(coordinator.gangs.client)

    def changes_text(self, since: int, epoch: str, collect_s: float = 0.0) -> str:
        """Return jobs that changed since a revision, and the numbers of workers, as a JSON text.

        The jobs are in the order of their last changes, at most `MOST_JOBS` of them or `MOST_BYTES`
        of text. If `more` is true, others have changed: call again with the answer's `revision`.

        Args:
            since: The `revision` of the caller's last answer; 0: begin with the first of all jobs.
            epoch: The `epoch` of that answer. If it is not the coordinator's, the scheduler was
                restarted, and the answer begins with the first of all jobs.
            collect_s: How long jobs with only new progress may be held back, to be sent together.
        """
        if epoch != self.coordinator.epoch or since > self.changes.newest:
            since = 0
        revision, more, jobs = self.changes.since(since, collect_s)
        head = {
            "epoch": self.coordinator.epoch,
            "revision": revision,
            "more": more,
            "workers": self._counts(),
        }
        return f'{dumps(head)[:-1]},"jobs":[{",".join(jobs)}]}}'

    def job(self, job_id: str, *, all_ranks: bool = False) -> dict[str, Any]:
        """Return the `job_document` of a job, with a part of its ranks or with `all_ranks`.

        Raises `Refusal` if the job was removed or is unknown.
        """
        document = self.monitor.job(job_id, all_ranks=all_ranks)
        if document is not None:
            return document
        ended = self.commands.ended(job_id)
        if ended is not None:
            error = f"job {job_id} has ended and is forgotten: {ended.state}"
            raise Refusal(410, "ended", error, "See its run folder.", job=ended.model_dump())
        raise unknown(job_id)

    def workers(self) -> list[dict[str, Any]]:
        """Return the workers that have the scheduler's build: their addresses, names, hosts, GPUs.

        For each, `usable` is whether ranks may be placed on it, and `job` and `rank` are those of
        its rank, or `None`.
        """
        lifecycle: Lifecycle = self.coordinator.lifecycle
        held = _held(lifecycle)
        usable, known = lifecycle.usable_slots, self.coordinator.scheduler.workers
        workers = []
        for slot in sorted(lifecycle.slots):
            job_id, rank = held.get(slot, (None, None))
            workers.append(
                {
                    "address": slot.worker,
                    "name": slot.name,
                    "host": slot.host,
                    "gpu": gpu_name(known.get(slot.worker)),
                    "usable": slot in usable,
                    "job": job_id,
                    "rank": rank,
                }
            )
        return workers

    def _counts(self) -> dict[str, int]:
        lifecycle: Lifecycle = self.coordinator.lifecycle
        usable, known = lifecycle.usable_slots, self.coordinator.scheduler.workers
        return {
            "total": len(lifecycle.slots),
            "usable": len(usable),
            "free": len(usable - _held(lifecycle).keys()),
            "gpus": sum(gpu_of(known.get(slot.worker)) is not None for slot in lifecycle.slots),
        }


def _held(lifecycle: Lifecycle) -> dict[Slot, tuple[str, int]]:
    return {
        status.placement.slot: (job.job_id, rank)
        for job in lifecycle.jobs.values()
        if job.state.holds_workers
        for rank, status in job.ranks.items()
    }
