"""Running a job to its end, as `train` and `demo` do."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from distrain.cli.live import LiveProgress
from distrain.errors import OutputError
from distrain.spec import JobSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from distrain.coordinator.view import JobView
    from distrain.report import RunRecorder, Summary


@dataclass(frozen=True)
class Run:
    """One run to be made.

    Attributes:
        spec: The job.
        run_dir: Where its files go.
        job_id: Its id.
        scheduler: The cluster's address; `None` for a local cluster or the inline backend.
        dashboard_address: Where a local cluster's dashboard listens.
    """

    spec: JobSpec
    run_dir: Path
    job_id: str
    scheduler: str | None = None
    dashboard_address: str = ":8787"


def train(run: Run, progress: LiveProgress) -> "Summary":
    """Check the inputs, train, and keep the run directory up to date.

    Raises:
        DistrainError: The inputs cannot be used, or the job ended badly; in the latter case the
            run directory holds a summary that says so.
    """
    from distrain.coordinator.handle import raise_for_state
    from distrain.report import open_run
    from distrain.train.inputs import check_inputs

    check_inputs(run.spec)
    recorder = open_run(run.run_dir, run.spec)

    def on_view(view: "JobView") -> None:
        recorder.add(view)
        progress.show(view)

    with progress:
        view = _run_to_end(run, recorder, progress, on_view)
    try:
        summary = recorder.finish(view)
    except OutputError as error:
        if view.reason is None:
            raise
        # What ended the job matters more, and may have the same cause.
        progress.say(f"warning: {error}")
    logs = recorder.paths.logs
    raise_for_state(view, logs if logs.is_dir() else None)
    return summary


def _run_to_end(
    run: Run,
    recorder: "RunRecorder",
    progress: LiveProgress,
    on_view: "Callable[[JobView], None]",
) -> "JobView":
    if run.spec.resources.backend == "inline":
        from distrain.coordinator.inline import run_inline

        return run_inline(run.spec, recorder.paths.root, run.job_id, on_view)
    from distrain.cluster import open_cluster
    from distrain.coordinator.handle import JobHandle

    progress.say(f"connecting to {run.scheduler}" if run.scheduler else "starting the cluster")
    with open_cluster(
        scheduler=run.scheduler,
        num_workers=run.spec.resources.num_ranks,
        device=run.spec.resources.device,
        dashboard_address=run.dashboard_address,
    ) as client:
        progress.say(f"Dask dashboard: {client.dashboard_link}")
        job = JobHandle(client, run.job_id)
        job.submit(run.spec, recorder.paths.root)
        try:
            return job.watch(on_view)
        except OutputError:  # the run directory takes no more records
            job.cancel()
            raise
        except KeyboardInterrupt:
            progress.say("stopping the job (Ctrl-C again leaves it to itself)")
            job.cancel()
            return job.watch(on_view, since=len(recorder.records))
