"""Jobs that run without the command that submitted them: submit one, follow one."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from distrain.errors import InputError, OutputError
from distrain.jobs.reasons import LEFT_OFF
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.status import JobStatus
from distrain.jobs.view import Entry, JobView
from distrain.launch.job_handle import JobHandle, check_on_worker, raise_for_state
from distrain.launch.reporting import Progress
from distrain.launch.resuming import how_to_resume
from distrain.launch.run import RetryingRecorder, RunRequest, after_submission, finish
from distrain.runs.history import History
from distrain.runs.recorder import RunRecorder, take_over_run
from distrain.runs.report.figures import draw_curves
from distrain.runs.run_file import RunInUse, read_summary
from distrain.runs.summary import Summary, summarise
from distrain.workers.sources import ClusterRequest, open_cluster

if TYPE_CHECKING:
    from distributed import Client


TAKE_OVER_S = 5.0
"""How often a follower looks whether the command that keeps the run directory has left."""


def submit(
    run: RunRequest,
    progress: Progress,
    on_queued: Callable[[], None] = lambda: None,
    *,
    checks_on_worker: bool = False,
) -> None:
    """Check a job, make its run directory, queue it, and leave it to its cluster.

    The run has a scheduler's address, and no sinks: who follows a job feeds those. `on_queued` is
    called as soon as the cluster has the job; with `checks_on_worker` a worker looks at data and
    places first. After an error nothing was submitted.
    """
    assert run.scheduler is not None
    checked = run.check()
    run = replace(run, spec=checked.spec)
    from distrain.train.data.job_tables import hand_on  # late: it loads torch

    for note in checked.notes:
        progress.say(f"note: {note}")
    with ExitStack() as open_ones:
        client = open_ones.enter_context(open_cluster(ClusterRequest(run.scheduler)))
        if checks_on_worker:
            progress.say("a worker looks at the data")
            for note in check_on_worker(client, run.spec):
                progress.say(f"note of a worker: {note}")
        recorder = open_ones.enter_context(run.open_recorder())
        unless_submitted = open_ones.enter_context(ExitStack())
        unless_submitted.callback(recorder.forget)
        hand_on(checked.inputs, run.spec, recorder.paths.tables)
        job = JobHandle(client, run.job_id)
        unless_submitted.pop_all()  # from here on the scheduler may have the job
        is_new = job.submit(run.spec, run.run_dir, run.first_attempt)
        on_queued()
        after_submission(run, is_new, recorder, client, progress)
        view = job.view()
        try:
            recorder.add(view)  # how the run stands, with what earlier commands left
            if view.state.is_final:
                recorder.finish(view, draw_curves)
        except OutputError as error:  # whoever attaches writes it
            progress.say(f"warning: {error}")


def attach(
    client: "Client",
    job: "JobStatus",
    run_dir: Path,
    progress: Progress,
    on_summary: "Callable[[Summary], None]" = lambda _: None,
) -> "Summary":
    """Follow a job to its end as `train` does, and keep its run directory up to date.

    The directory gets what is new, and what happened while nobody followed the job, as far as the
    scheduler or the ranks' reports hold it. If another command keeps the directory, or
    it is not on this machine or cannot be written, the job is only shown; when that command leaves,
    this one goes on with the directory. An exception, such as Ctrl-C's, leaves the job alone.

    `on_summary` gets the summary before a `JobError` is raised. A directory of another run is an
    `InputError`.
    """
    paths = RunPaths(run_dir)
    with _Follower(paths, job, progress) as follower:

        def on_view(view: "JobView") -> None:
            follower.add(view)
            progress.show(view)

        with progress:
            view = JobHandle(client, job.job_id).watch(on_view)
        on_summary(summary := follower.finish(view))
    saved, lost = view.checkpoints.step, view.reason in LEFT_OFF
    resumes = saved is not None or lost
    hint = how_to_resume(run_dir, client.scheduler.address, saved) if resumes else None
    raise_for_state(view, paths.logs if paths.logs.is_dir() else None, hint)
    return summary


class _Follower(AbstractContextManager["_Follower"]):
    """Follows a job, and keeps its run directory as long as no other command does."""

    def __init__(self, paths: RunPaths, job: "JobStatus", progress: Progress):
        self._paths = paths
        self._job_id = job.job_id
        self._say = progress.say
        self._recorder: RunRecorder | None = None
        self._recording: RetryingRecorder | None = None
        self._waits = False  # for the command that keeps the directory
        self._unwritten: list[Entry] = []
        self._missed = 0
        self._begin(job)

    def __exit__(self, *_: object) -> None:
        self._let_go()

    def add(self, view: "JobView") -> None:
        if self._recording is not None:
            self._recording.add(view)
            return
        self._unwritten += view.progress
        self._missed += view.missed
        is_due = self._waits and time.monotonic() >= self._look_at_s
        if is_due and not view.state.is_final and self._takes_over_now():
            self._say("the other command has left: this one keeps the run directory now")
            self._write_all(view)

    def finish(self, view: "JobView") -> "Summary":
        """Finish the directory of a job that has ended, unless another command does, or has."""
        if self._waits and self._takes_over_now():
            self._write_all(view)
        if self._recorder is not None:
            return finish(self._recorder, view, self._say)
        history = History()
        history.add(self._unwritten)
        return self._others_summary(view) or summarise(view, history.records)

    def _begin(self, job: "JobStatus") -> None:
        if not self._paths.run.is_file():
            where = f"no run directory {self._paths.root} on this machine"
            self._say(f"warning: {where}: nothing is written")
        elif not (job.is_final and self._paths.is_finished):
            self._waits = True
            try:
                if not self._take_over():
                    self._say(
                        "another command keeps the run directory: this one only shows the job"
                    )
            except OutputError as error:
                self._waits = False
                self._say(f"warning: {error}\n  nothing is written: the job is only shown")

    def _take_over(self) -> bool:
        """Become the writer of the run directory, unless another command is."""
        self._look_at_s = time.monotonic() + TAKE_OVER_S
        try:
            recorder = take_over_run(self._paths.root, self._job_id)
        except RunInUse:
            return False
        self._recorder, self._waits = recorder, False
        self._recording = RetryingRecorder(recorder, self._say)
        return True

    def _takes_over_now(self) -> bool:
        """`_take_over` of a directory that the other command may have finished or removed."""
        try:
            if not self._take_over():
                return False
        except (InputError, OutputError) as error:
            self._waits = False
            self._say(f"warning: {error}")
            return False
        if self._paths.is_finished:
            self._let_go()
            return False
        return True

    def _let_go(self) -> None:
        if self._recorder is not None:
            self._recorder.close()
        self._recorder = self._recording = None

    def _write_all(self, view: "JobView") -> None:
        assert self._recording is not None
        self._recording.add(replace(view, progress=tuple(self._unwritten), missed=self._missed))
        self._unwritten = []

    def _others_summary(self, view: "JobView") -> "Summary | None":
        """The summary that another command has written of this view."""
        if not (self._paths.run.is_file() and self._paths.is_finished):
            return None
        values = read_summary(self._paths) or {}
        if (values.get("state"), values.get("attempts")) == (view.state.value, view.attempt):
            with suppress(TypeError):  # of another version
                return Summary(**values)
        return None
