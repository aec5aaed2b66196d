"""A job seen from a Dask client: submit it, look at it, wait for it, cancel it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import Client

from distrain.coordinator.plugin import ensure_coordinator
from distrain.coordinator.view import JobView
from distrain.errors import ClusterError, JobCancelled, JobError
from distrain.spec import JobSpec

POLL_S = 0.2


@dataclass(frozen=True)
class JobHandle:
    """One job on one cluster."""

    client: Client
    job_id: str

    def submit(self, spec: JobSpec, run_dir: Path) -> None:
        """Queue the job on the client's cluster, which gets a coordinator if it has none.

        Submitting an id again changes nothing.

        Args:
            spec: The job; its relative paths are those of this process, wherever workers run.
            run_dir: Its run directory, on a filesystem that every worker sees.
        """
        ensure_coordinator(self.client)
        self._call(
            "distrain_submit",
            job_id=self.job_id,
            spec=_with_absolute_paths(spec).model_dump(mode="json"),
            run_dir=str(run_dir.absolute()),
        )

    def view(self, since: int = 0) -> JobView:
        """The job now, with its records from number `since` on.

        Raises:
            JobError: The coordinator does not know the job.
        """
        document = self._call("distrain_view", job_id=self.job_id, since=since)
        if document is None:
            raise JobError(
                "the coordinator does not know this job",
                where={"job": self.job_id},
                hint="The scheduler may have been restarted; submit it again.",
            )
        return JobView.from_json(document)

    def cancel(self) -> None:
        """Ask for the job's end."""
        self._call("distrain_cancel", job_id=self.job_id)

    def watch(self, on_view: Callable[[JobView], None], since: int = 0) -> JobView:
        """Follow the job to its end; `on_view` gets each view with the records new in it.

        Args:
            on_view: Called several times a second.
            since: How many records the caller has already.
        """
        while True:
            view = self.view(since)
            since = view.next_record
            on_view(view)
            if view.state.is_final:
                return view
            time.sleep(POLL_S)

    def _call(self, operation: str, **arguments: Any) -> Any:
        async def call() -> Any:
            return await getattr(self.client.scheduler, operation)(**arguments)

        try:
            return self.client.sync(call)
        except (OSError, TimeoutError) as error:
            raise ClusterError(
                f"the scheduler did not answer: {error}",
                where={"scheduler": getattr(self.client.scheduler, "address", "?")},
                hint="Is it still running? Try `distrain doctor --scheduler ADDRESS`.",
            ) from error


def _with_absolute_paths(spec: JobSpec) -> JobSpec:
    schema = spec.data.schema_path
    paths = {
        "train": tuple(map(_absolute, spec.data.train)),
        "valid": tuple(map(_absolute, spec.data.valid)),
        "schema_path": schema if schema in ("auto", "criteo") else _absolute(schema),
    }
    return spec.model_copy(update={"data": spec.data.model_copy(update=paths)})


def _absolute(path: str) -> str:
    return path if "://" in path or path.startswith("~") else str(Path(path).absolute())


def raise_for_state(view: JobView, logs: Path | None = None) -> None:
    """Raise if the job ended badly.

    Args:
        view: Its last view.
        logs: The folder of the ranks' logs, if there is one to name.

    Raises:
        JobCancelled: Somebody cancelled it.
        JobError: It failed; the message names the culprit.
    """
    if not view.state.is_final or view.reason is None:
        return
    kind = JobCancelled if view.state.value == "cancelled" else JobError
    raise kind(
        view.message or view.reason,
        where={"job": view.job_id, "attempt": view.attempt, "reason": view.reason}
        | ({"logs": logs} if logs else {}),
    )
