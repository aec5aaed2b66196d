"""Submits jobs that run without the submitting command, and follows them."""

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from distrain.errors import ClusterError, JobError
from distrain.jobs.api_answers import Job
from distrain.jobs.job_view import JobView
from distrain.jobs.reasons import LEFT_OFF
from distrain.jobs.run_paths import RunPaths
from distrain.launch.job_handle import JobHandle, install_coordinator, raise_for_state
from distrain.launch.reporting import Progress
from distrain.launch.resuming import how_to_resume
from distrain.launch.run import RunRequest, after_submission, finish
from distrain.launch.worker_check import check_on_worker
from distrain.runs.history import History
from distrain.runs.run_file import check_job, read_run_file
from distrain.runs.summary import Summary, summarise
from distrain.workers.open_cluster import ClusterRequest, open_cluster

if TYPE_CHECKING:
    from distributed import Client


def submit(
    run: RunRequest,
    progress: Progress,
    on_queued: Callable[[], None] = lambda: None,
    *,
    checks_on_worker: bool = False,
) -> None:
    """Check a job, begin its run folder, submit it, and return without waiting for its end.

    The request must have a scheduler's address and no sinks, since only a process that follows a
    job writes to sinks. If the checks or the run folder cause an error, nothing was submitted. If
    the scheduler does not answer the submission (`ClusterError`), it may have the job.

    Args:
        on_queued: Called as soon as the scheduler has the job.
        checks_on_worker: Whether a worker first checks the data and output directories, too.
    """
    assert run.scheduler is not None
    checked = run.check()
    run = replace(run, spec=checked.spec)
    from distrain.train.data.job_tables import write_tables  # late: it loads torch

    for note in checked.notes:
        progress.say(f"note: {note}")
    with ExitStack() as open_ones:
        client = open_ones.enter_context(open_cluster(ClusterRequest(run.scheduler)))
        job = JobHandle(client, run.job_id)
        if checks_on_worker:
            progress.say("a worker checks the data")
            install_coordinator(client)
            for note in check_on_worker(job.api, run.spec.model_dump(mode="json")):
                progress.say(f"note from a worker: {note}")
        folder = open_ones.enter_context(run.open_folder())
        unless_submitted = open_ones.enter_context(ExitStack())
        unless_submitted.callback(folder.forget)
        write_tables(checked.inputs, run.spec, folder.paths.tables)
        is_new = job.submit(
            run.spec, run.run_dir, run.first_attempt, on_submitting=unless_submitted.pop_all
        )
        on_queued()
        after_submission(is_new, progress)
        with suppress(ClusterError, JobError):  # the job is submitted all the same
            if why := job.status().why_pending:
                progress.say(f"note: the job waits: {why}")


def attach(
    client: "Client",
    job: Job,
    run_dir: Path,
    progress: Progress,
    on_summary: "Callable[[Summary], None]" = lambda _: None,
) -> "Summary":
    """Follow a submitted job to its end, as `train` does, and return its summary.

    The job's workers write the records. If `run_dir` is on this machine, `curves.png` is drawn
    there, and the summary is written if no worker could write it. Otherwise the returned summary is
    computed from what was followed. An exception such as Ctrl-C does not affect the job.
    `on_summary` gets the summary before `JobError` is raised for a failed job, or `JobCancelled`
    for a cancelled job. Raises `OutputError` if the folder holds the run of another job.
    """
    paths, history = RunPaths(run_dir), History()
    is_here = paths.run.is_file()
    if is_here:
        check_job(read_run_file(paths), job.job_id, paths)

    def on_view(view: "JobView") -> None:
        history.add(view.progress)
        progress.show(view)

    with progress:
        view = JobHandle(client, job.job_id).watch(on_view)
    if is_here:
        summary = finish(paths, view, job.first_attempt, history, progress.say)
    else:
        progress.say(f"warning: no run folder {paths.root} on this machine")
        summary = summarise(view, history.records)
    on_summary(summary)
    saved, lost = view.checkpoints.step, view.reason in LEFT_OFF
    resumes = saved is not None or lost
    hint = how_to_resume(run_dir, client.scheduler.address, saved) if resumes else None
    raise_for_state(view, paths.logs if paths.logs.is_dir() else None, hint)
    return summary
