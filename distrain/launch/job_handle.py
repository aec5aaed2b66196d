"""A job seen from a Dask client: submit it, look at it, wait for it, cancel it."""

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
"""How long the scheduler's answer is waited for; one that works answers in milliseconds."""

_SAME_VERSION = "Run the same version of distrain here and there."

_NO_PROGRESS = 2**62
"""More entries than a job ever has."""

LOST_AFTER_S = 20.0
"""How long a scheduler that does not answer is asked again before its jobs are given up."""

RECORDED_WITHIN_S = 60.0
"""How long the summary of a job that has ended is waited for."""

CHECK_S = 120.0
WORKER_WITHIN_S = 60.0
"""How long the check may wait for a worker, and its answer may travel."""


@dataclass(frozen=True)
class JobHandle:
    """One job on one cluster."""

    client: "Client"
    job_id: str

    def submit(self, spec: JobSpec, run_dir: Path, first_attempt: int = 1) -> bool:
        """Queue the job, unless it is there and has not ended; say whether that was done.

        The client's cluster gets a coordinator if it has none. The spec's paths are those of this
        process; every worker sees `run_dir`; a job that goes on has a `first_attempt` above 1. A
        `ClusterError`: the scheduler does not answer, or cannot load this version's coordinator.
        """
        # Late: `raise_for_state` also serves a rank inline, where Dask may not be installed.
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
        """The job now, with its progress from entry `since` on; a `JobError` if it is unknown."""
        document = _call(self.client, "distrain_view", job_id=self.job_id, since=since)
        if document is None:
            raise JobError(
                "the coordinator does not know this job",
                where={"job": self.job_id},
                hint="The scheduler may have been restarted; submit it again.",
            )
        return _read(self.client, JobView.from_json, document)

    def status(self) -> JobView:
        """The job now, without its progress; errors as `view`."""
        return self.view(since=_NO_PROGRESS)

    def cancel(self, why: str = "") -> None:
        """Ask for the job's end; `why` says who wants that, or the cause."""
        _call(self.client, "distrain_cancel", job_id=self.job_id, why=why)

    def watch(
        self, on_view: Callable[[JobView], None], since: int = 0, lost_after_s: float = LOST_AFTER_S
    ) -> JobView:
        """Follow the job to its end, and return its last view.

        `on_view` gets each view with the new progress, several times a second; the caller has
        `since` entries of it already. If the scheduler is silent for `lost_after_s`, or comes back
        without the job, the last view has failed with reason `CoordinatorLost`; with `Preempted` if
        the job waited after a notice to leave. Of a job that has ended, the summary is waited for.
        """
        last: JobView | None = None
        heard_s = time.monotonic()
        while True:
            try:
                view = self.view(since)
            except (ClusterError, JobError) as error:
                if last is None:
                    raise
                silent_s = time.monotonic() - heard_s
                if isinstance(error, JobError) or silent_s >= lost_after_s:
                    on_view(lost := _lost(last, error))
                    return lost
                time.sleep(POLL_S)
                continue
            last, heard_s = view, time.monotonic()
            since = view.next_record
            on_view(view)
            if view.state.is_final:
                return self._recorded(view)
            time.sleep(POLL_S)

    def _recorded(self, last: JobView) -> JobView:
        """The last view once its summary is written, or cannot be, or takes too long."""
        until_s = time.monotonic() + RECORDED_WITHIN_S
        while not (last.recorded or last.record_error) and time.monotonic() < until_s:
            time.sleep(POLL_S)
            with suppress(ClusterError, JobError):
                last = self.status()
        return last


def list_jobs(client: "Client") -> list[JobStatus]:
    """All jobs that a scheduler knows, the newest first; a `ClusterError` if it does not answer."""
    documents = _call(client, "distrain_jobs")
    # A scheduler without a coordinator answers with nothing.
    return [_read(client, JobStatus.from_json, document) for document in documents or ()]


def _read(client: "Client", parse: Callable[[Any], Read], document: Any) -> Read:
    try:
        return parse(document)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ClusterError(
            f"cannot read what the scheduler says of a job: {error}",
            where={"scheduler": client.scheduler.address},
            hint=_SAME_VERSION,
        ) from None


def _call(client: "Client", operation: str, **arguments: Any) -> Any:
    async def call() -> Any:
        # It tried in vain to connect again. Its pool of connections is closed before its scheduler
        # is None, and would raise a RuntimeError.
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
    if ended is not None and ended.reason == Reason.PREEMPTED:  # a cluster that had to leave
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
    """Raise a `JobError` if the job ended badly, with `logs`, the ranks' folder, and the hint."""
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
    """Have a worker look at a job's data, places and model; returns its notes.

    An `InputError` has all mistakes that it finds; a `ClusterError`: no worker could look.
    """
    from distributed import TimeoutError as DaskTimeout

    from distrain.workers.spec_check import check_spec

    text = json.dumps(spec.model_dump(mode="json"))
    key = f"distrain-check-{uuid4().hex}"
    future = client.submit(check_spec, text, CHECK_S, key=key, pure=False, retries=0)
    try:
        verdict: dict[str, Any] = future.result(timeout=CHECK_S + WORKER_WITHIN_S)
    except (DaskTimeout, TimeoutError) as error:
        raise _could_not("no worker had room for it") from error
    except Exception as error:  # a worker that dies, or has another version
        raise _could_not(repr(error)) from error
    finally:
        future.release()  # which ends it, if it still runs
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
        hint="Nothing was submitted. See `distrain jobs` for who has the workers, or submit "
        "without --check.",
    )
