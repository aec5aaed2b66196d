"""Submits, watches and cancels a job from a Dask client."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from distrain.errors import ClusterError, JobCancelled, JobError
from distrain.jobs.job_view import JobView
from distrain.jobs.reasons import Reason
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.paths import with_absolute_paths
from distrain.jobs.states import JobState

# The client of the scheduler's API is imported late: inline jobs use only `raise_for_state`.
if TYPE_CHECKING:
    from distributed import Client

    from distrain.client.client import Client as ApiClient

POLL_S = 0.2

_SAME_VERSION = "Run the same version of distrain on both sides."

_NO_PROGRESS = 10**18 - 1
"""A number above that of any progress entry: `view` since this number returns no progress."""

LOST_AFTER_S = 20.0
"""Seconds of retrying a scheduler that cannot be reached, before its jobs count as lost. A single
request may wait longer for its answer: up to `ANSWER_S`."""

RECORDED_WITHIN_S = 60.0
"""Seconds to wait for the summary of a job that has ended."""


@dataclass(frozen=True)
class JobHandle:
    """Submits, watches and cancels one job on the cluster of a Dask client."""

    client: "Client"
    job_id: str

    @cached_property
    def api(self) -> "ApiClient":
        from distrain.launch.scheduler_api import scheduler_api

        return scheduler_api(self.client)

    def submit(
        self,
        spec: JobSpec,
        run_dir: Path,
        first_attempt: int = 1,
        *,
        on_submitting: Callable[[], object] = lambda: None,
    ) -> bool:
        """Queue the job; return True, or False if the scheduler already had this attempt.

        Installs a coordinator in the client's cluster if it has none. Relative paths in the spec
        are resolved in this process; every worker must see `run_dir`. A resumed job has a
        `first_attempt` above 1. `on_submitting` is called just before the request is sent; from
        then on the scheduler may have the job. Raises `ClusterError` if the scheduler does not
        answer or cannot load this version's coordinator, and `SpecError` if a path cannot be
        resolved.
        """
        from distrain.client.connection import Call
        from distrain.client.job_calls import job_path

        install_coordinator(self.client)
        body = {
            "spec": with_absolute_paths(spec).model_dump(mode="json"),
            "run_dir": str(run_dir.absolute()),
            "first_attempt": first_attempt,
        }
        call = Call("PUT", job_path(self.job_id), body=body)
        on_submitting()
        answer = self.api.connection.request(call)
        if answer.status_code == 410:  # this attempt was submitted before
            return False
        self.api.connection.check(answer, call)
        return answer.status_code == 201

    def view(self, since: int = 0) -> JobView:
        """Return the job's state with its progress entries from number `since` on.

        Raises:
            JobError: The scheduler has no such job.
            ClusterError: The scheduler did not answer, or its answer cannot be read.
        """
        from distrain.client.connection import Call
        from distrain.client.errors import NotFound
        from distrain.client.job_calls import job_path

        call = Call("GET", job_path(self.job_id, "view"), params={"since": str(since)})
        try:
            return JobView.from_json(self.api.connection.document(call))
        except NotFound:
            raise JobError(
                "the coordinator does not know this job",
                where={"job": self.job_id},
                hint="The scheduler may have been restarted; submit it again.",
            ) from None
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ClusterError(
                f"cannot read the scheduler's answer about a job: {error}",
                where={"scheduler": self.client.scheduler.address},
                hint=_SAME_VERSION,
            ) from None

    def status(self) -> JobView:
        """Return the job's state without its progress; raises the errors of `view`."""
        return self.view(since=_NO_PROGRESS)

    def cancel(self, why: str = "") -> None:
        """Request that the job be cancelled; `why` names the user or the cause."""
        self.api.cancel(self.job_id, why=why)

    def watch(
        self, on_view: Callable[[JobView], None], since: int = 0, lost_after_s: float = LOST_AFTER_S
    ) -> JobView:
        """Follow the job to its end, and return its last view.

        `on_view` gets each view with the new progress, several times a second; the caller already
        has the first `since` entries. If the scheduler is silent for `lost_after_s`, or restarts
        without the job, the returned view has the state `failed` and the reason `CoordinatorLost`,
        or `Preempted` if the job was waiting after a preemption notice. After the job's end this
        method waits up to `RECORDED_WITHIN_S` for the job's summary. If the first call of `view`
        fails, its error is raised.
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
        """Wait until the summary of an ended job is written; return the newest view.

        The wait also ends if the summary cannot be written, or after `RECORDED_WITHIN_S`.
        """
        until_s = time.monotonic() + RECORDED_WITHIN_S
        while not (last.recorded or last.record_error) and time.monotonic() < until_s:
            time.sleep(POLL_S)
            with suppress(ClusterError, JobError):
                last = self.status()
        return last


def install_coordinator(client: "Client") -> None:
    """Install a coordinator in a client's scheduler if it has none.

    Raises `ClusterError` if the scheduler cannot load the coordinator.
    """
    from distrain.scheduler.http.attach import ensure_coordinator

    try:
        ensure_coordinator(client)
    except ImportError as error:
        raise ClusterError(
            f"the scheduler cannot load the coordinator: {error}",
            where={"scheduler": client.scheduler.address},
            hint=_SAME_VERSION,
        ) from None


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
    """Raise `JobError` if the job failed, and `JobCancelled` if it was cancelled.

    The error names `logs`, the folder of the ranks' logs, and has the hint.
    """
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
