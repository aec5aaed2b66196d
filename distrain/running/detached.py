"""A job that goes on without the command that submitted it: leave it, and follow it again."""

from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from distrain.errors import OutputError
from distrain.run_paths import RunPaths
from distrain.running.progress import Progress
from distrain.running.resuming import how_to_resume
from distrain.running.run import Run, show_jobs

if TYPE_CHECKING:
    from distributed import Client

    from distrain.coordinator.handle import JobHandle
    from distrain.coordinator.listing import Listing
    from distrain.coordinator.view import JobView
    from distrain.report import RunRecorder, Summary


def submit(run: Run, progress: Progress) -> None:
    """Check a job, make its run directory, queue it, and leave it to its cluster.

    Args:
        run: With the address of a cluster, and no sinks: those are fed by who follows a job.
        progress: Is told what happens.

    Raises:
        DistrainError: The inputs cannot be used, or the scheduler does not answer; then nothing
            was submitted.
    """
    from distrain.cluster import open_cluster
    from distrain.coordinator.handle import JobHandle
    from distrain.report import open_run, reopen_run

    assert run.scheduler is not None
    checked = run.check()
    from distrain.train.inputs import hand_on  # late: it loads torch

    for note in checked.notes:
        progress.say(f"note: {note}")
    with open_cluster(scheduler=run.scheduler) as client:
        new = run.resumed is None
        recorder = (
            open_run(run.run_dir, run.spec, run.job_id)
            if new
            else reopen_run(run.run_dir, run.spec)
        )
        with recorder, ExitStack() as unless_submitted:
            if new:
                unless_submitted.callback(recorder.forget)
            hand_on(checked.inputs, run.spec, recorder.paths.tables)
            job = JobHandle(client, run.job_id)
            unless_submitted.pop_all()  # from here on the scheduler may have the job
            if not job.submit(run.spec, run.run_dir, run.first_attempt):
                progress.say("the job is there already, as it was submitted")
                recorder.same_job()
            elif run.resumed is not None:
                recorder.catch_up()
            show_jobs(client, progress)
            view = job.view()
            recorder.add(view)  # how the run stands, with what earlier commands left
            if view.state.is_final:
                recorder.finish(view)


def attach(client: "Client", job: "Listing", run_dir: Path, progress: Progress) -> "Summary":
    """Follow a job to its end as `train` does, and keep its run directory up to date.

    The directory gets what is new, and what happened while nobody looked, as far as the scheduler,
    or the ranks' kept reports, still tell it. If another command keeps it, or it is not on this
    machine, the job is only shown. Leaving, say by Ctrl-C, leaves the job alone.

    Args:
        client: Of the job's scheduler.
        job: As the scheduler lists it; it may have ended.
        run_dir: Where its run directory lies on this machine.
        progress: Shows the job.

    Raises:
        InputError: The directory holds another run.
        JobError: The job ended badly.
    """
    from distrain.coordinator.handle import JobHandle, raise_for_state
    from distrain.coordinator.states import Reason
    from distrain.report import summarise
    from distrain.report.history import History

    handle = JobHandle(client, job.job_id)
    paths, history = RunPaths(run_dir), History()
    recorder = _take_over(paths, job, progress)
    with recorder or nullcontext():

        def on_view(view: "JobView") -> None:
            nonlocal recorder
            try:
                if recorder is not None:
                    recorder.add(view)
            except OutputError as error:  # a disk that is full here does not end the job
                progress.say(f"warning: {error}")
                recorder = None
            history.add(view.progress)
            progress.show(view)

        with progress:
            view = handle.watch(on_view)
        summary = (
            recorder.finish(view)
            if recorder is not None
            else _finished_by_others(paths, handle, view) or summarise(view, history.records)
        )
    saved, lost = view.checkpoints.step, view.reason == Reason.COORDINATOR_LOST
    resumes = saved is not None or lost
    hint = how_to_resume(run_dir, client.scheduler.address, saved) if resumes else None
    raise_for_state(view, paths.logs if paths.logs.is_dir() else None, hint)
    return summary


def _take_over(paths: RunPaths, job: "Listing", progress: Progress) -> "RunRecorder | None":
    """Who writes the run directory from now on; `None` if that is not for this command to do."""
    from distrain.report import RunInUse, take_over_run

    if not paths.run.is_file():
        progress.say(f"warning: no run directory {paths.root} on this machine: nothing is written")
        return None
    if job.is_final and _is_finished(paths):
        return None
    try:
        return take_over_run(paths.root, job.job_id)
    except RunInUse:
        progress.say("another command keeps the run directory: this one only shows the job")
        return None


def _finished_by_others(paths: RunPaths, handle: "JobHandle", view: "JobView") -> "Summary | None":
    """The summary of a run that another command keeps, or has left in the meantime."""
    from distrain.report import Summary, read_summary, take_over_run

    if not paths.run.is_file():
        return None
    if not _is_finished(paths):
        with suppress(OutputError), take_over_run(paths.root, view.job_id) as recorder:
            recorder.add(handle.view())
            return recorder.finish(view)
    found = read_summary(paths) or {}
    with suppress(TypeError):  # of another version
        if (found.get("state"), found.get("attempts")) == (view.state.value, view.attempt):
            return Summary(**found)
    return None


def _is_finished(paths: RunPaths) -> bool:
    return paths.summary.is_file() and not paths.progress.is_file()
