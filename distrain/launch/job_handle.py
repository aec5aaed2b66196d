"""Submits, watches and cancels a job from a Dask client."""

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from distrain.errors import ClusterError, JobCancelled, JobError, Mistakes
from distrain.jobs.reasons import Reason
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.paths import with_absolute_paths
from distrain.jobs.states import JobState
from distrain.jobs.status import JobStatus
from distrain.jobs.view import JobView
from distrain.workers.replacing import why_lost

if TYPE_CHECKING:
    from distributed import Client

Read = TypeVar("Read")

POLL_S = 0.2

ANSWER_S = 10.0
"""Timeout for the scheduler's answers, which normally take milliseconds."""

_SAME_VERSION = "Run the same version of distrain on both sides."

_NO_PROGRESS = 2**62
"""An entry number beyond those of any job."""

LOST_AFTER_S = 20.0
"""How long to retry a scheduler that does not answer before its jobs count as lost."""

RECORDED_WITHIN_S = 60.0
"""How long to wait for the summary of a job that has ended."""

CHECK_S = 120.0
WORKER_WITHIN_S = 60.0
"""How long the check may wait for a worker, transfer included."""


@dataclass(frozen=True)
class JobHandle:
    """One job on one cluster."""

    client: "Client"
    job_id: str

    def submit(self, spec: JobSpec, run_dir: Path, first_attempt: int = 1) -> bool:
        """Queue the job unless it is queued or running; return whether it was queued now.

        Installs a coordinator in the client's cluster if it has none. Relative paths in the spec
        are those of this process; every worker must see `run_dir`. A resumed job has a
        `first_attempt` above 1. Raises `ClusterError` if the scheduler does not answer or cannot
        load this version's coordinator.
        """
        # Imported here: the inline backend uses `raise_for_state`, perhaps without Dask.
        from distrain.scheduler.plugin import ensure_coordinator

        try:
            ensure_coordinator(self.client)
        except ImportError as error:
            raise ClusterError(
                f"the scheduler cannot load the coordinator: {error}",
                where={"scheduler": self.client.scheduler.address},
                hint=_SAME_VERSION,
            ) from None
        queued: bool = _call(
            self.client,
            "distrain_submit",
            job_id=self.job_id,
            spec=with_absolute_paths(spec).model_dump(mode="json"),
            run_dir=str(run_dir.absolute()),
            first_attempt=first_attempt,
        )
        return queued

    def view(self, since: int = 0) -> JobView:
        """Return the job with its progress from entry `since` on; a `JobError` if it is unknown."""
        document = _call(self.client, "distrain_view", job_id=self.job_id, since=since)
        if document is None:
            raise JobError(
                "the coordinator does not know this job",
                where={"job": self.job_id},
                hint="The scheduler may have been restarted; submit it again.",
            )
        return _read(self.client, JobView.from_json, document)

    def status(self) -> JobView:
        """Return the job without its progress; errors as `view`."""
        return self.view(since=_NO_PROGRESS)

    def cancel(self, why: str = "") -> None:
        """Request the job's cancellation; `why` names the requester or the cause."""
        _call(self.client, "distrain_cancel", job_id=self.job_id, why=why)

    def watch(
        self, on_view: Callable[[JobView], None], since: int = 0, lost_after_s: float = LOST_AFTER_S
    ) -> JobView:
        """Follow the job to its end, and return its last view.

        `on_view` gets each view with the new progress, several times a second; the caller already
        has the first `since` entries. If the scheduler is silent for `lost_after_s`, or restarts
        without the job, the last view has failed with reason `CoordinatorLost`, or `Preempted` if
        the job was waiting after a preemption notice. After the job's end this waits for its
        summary.
        """
        last: JobView | None = None
        answered_s = time.monotonic()
        while True:
            try:
                view = self.view(since)
            except (ClusterError, JobError) as error:
                if last is None:
                    raise
                silent_s = time.monotonic() - answered_s
                if isinstance(error, JobError) or silent_s >= lost_after_s:
                    on_view(lost := _lost(last, error))
                    return lost
                time.sleep(POLL_S)
                continue
            last, answered_s = view, time.monotonic()
            since = view.next_record
            on_view(view)
            if view.state.is_final:
                return self._recorded(view)
            time.sleep(POLL_S)

    def _recorded(self, last: JobView) -> JobView:
        """Return the last view once its summary is written, failed, or takes too long."""
        until_s = time.monotonic() + RECORDED_WITHIN_S
        while not (last.recorded or last.record_error) and time.monotonic() < until_s:
            time.sleep(POLL_S)
            with suppress(ClusterError, JobError):
                last = self.status()
        return last


def list_jobs(client: "Client") -> list[JobStatus]:
    """Return all jobs of a scheduler, newest first; a `ClusterError` if it does not answer."""
    documents = _call(client, "distrain_jobs")
    # A scheduler without a coordinator returns None.
    return [_read(client, JobStatus.from_json, document) for document in documents or ()]


def _read(client: "Client", parse: Callable[[Any], Read], document: Any) -> Read:
    try:
        return parse(document)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ClusterError(
            f"cannot read the scheduler's answer about a job: {error}",
            where={"scheduler": client.scheduler.address},
            hint=_SAME_VERSION,
        ) from None


def _call(client: "Client", operation: str, **arguments: Any) -> Any:
    async def call() -> Any:
        # The client could not reconnect. Its connection pool is closed before its scheduler becomes
        # None, and would raise a RuntimeError.
        if client.scheduler is None or client.status in ("closing", "closed"):
            raise OSError(why_lost(client) or "the connection is closed")
        answer = getattr(client.scheduler, operation)(**arguments)
        return await asyncio.wait_for(answer, ANSWER_S)

    try:
        return client.sync(call)
    except (OSError, TimeoutError) as error:
        raise ClusterError(
            f"the scheduler did not answer: {error}",
            where={"scheduler": getattr(client.scheduler, "address", "?")},
            hint="Is it still running? Try `distrain doctor --scheduler ADDRESS`.",
        ) from error


def _lost(last: JobView, error: ClusterError | JobError) -> JobView:
    reason, message = Reason.COORDINATOR_LOST, f"the job's coordinator is lost: {error.message}"
    ended = last.restarts[-1] if last.restarts and last.state.waits else None
    if ended is not None and ended.reason == Reason.PREEMPTED:  # the cluster was preempted
        reason, message = Reason.PREEMPTED, f"{ended.message}; then its cluster ended"
    return replace(
        last,
        state=JobState.FAILED,
        reason=reason.value,
        message=message,
        why_pending="",
        progress=(),
    )


def raise_for_state(view: JobView, logs: Path | None = None, hint: str | None = None) -> None:
    """Raise a `JobError` if the job failed, with the ranks' folder `logs` and the hint."""
    if not view.state.is_final or view.reason is None:
        return
    kind = JobCancelled if view.state.value == "cancelled" else JobError
    raise kind(
        view.message or view.reason,
        where={"job": view.job_id, "attempt": view.attempt, "reason": view.reason}
        | ({"checkpoints": view.checkpoints.outcome} if view.checkpoints.outcome else {})
        | ({"logs": logs} if logs else {}),
        hint=hint,
    )


def check_on_worker(client: "Client", spec: JobSpec) -> tuple[str, ...]:
    """Have a worker check a job's data, places and model; return its notes.

    Raises `InputError` with all mistakes, or `ClusterError` if no worker could check.
    """
    from distributed import TimeoutError as DaskTimeout

    from distrain.workers.spec_check import check_spec

    text = json.dumps(spec.model_dump(mode="json"))
    key = f"distrain-check-{uuid4().hex}"
    future = client.submit(check_spec, text, CHECK_S, key=key, pure=False, retries=0)
    try:
        verdict: dict[str, Any] = future.result(timeout=CHECK_S + WORKER_WITHIN_S)
    except (DaskTimeout, TimeoutError) as error:
        raise _could_not("no worker was free") from error
    except Exception as error:  # the worker died, or has another version
        raise _could_not(repr(error)) from error
    finally:
        future.release()  # cancels it if it still runs
    if "could_not_check" in verdict:
        raise _could_not(str(verdict["could_not_check"]))
    mistakes = Mistakes()
    for one in verdict.get("errors") or ():
        mistakes.add_json(one, on="a worker")
    mistakes.raise_found()
    return tuple(map(str, verdict.get("notes") or ()))


def _could_not(why: str) -> ClusterError:
    return ClusterError(
        f"the job could not be checked on a worker: {why}",
        hint="Nothing was submitted. `distrain jobs` shows who uses the workers. Or submit "
        "without --check.",
    )
