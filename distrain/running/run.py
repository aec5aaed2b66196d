"""One job from its spec to a finished run directory."""

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from distrain.errors import ClusterError, OutputError, Terminated
from distrain.running.preflight import Checked, preflight
from distrain.running.progress import Progress
from distrain.running.recording import FULL_DISK_S, PatientRecorder
from distrain.running.resuming import how_to_resume
from distrain.spec import JobSpec, with_absolute_paths

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed import Client

    from distrain.coordinator.view import JobView
    from distrain.report import RunRecorder, Summary
    from distrain.running.resuming import Resumption
    from distrain.sinks import Feeds, Sink


_COMMAND = "the command that submitted it"


@dataclass(frozen=True)
class Run:
    """One run to be made.

    Attributes:
        spec: The job.
        run_dir: Where its files go.
        job_id: Its id.
        scheduler: The cluster's address; `None` for a local cluster or the inline backend.
        dashboard_address: Where a local cluster's dashboard listens.
        resumed: What it goes on from; `None` for a new one.
        sinks: Who else gets its entries: words as `distrain.sinks.open_sink` takes, or sinks.
    """

    spec: JobSpec
    run_dir: Path
    job_id: str
    scheduler: str | None = None
    dashboard_address: str = ":8787"
    resumed: "Resumption | None" = None
    sinks: "tuple[str | Sink, ...]" = ()

    @property
    def first_attempt(self) -> int:
        """The number of its next attempt."""
        return 1 if self.resumed is None else self.resumed.first_attempt

    def check(self) -> Checked:
        """Check it before anything starts; see `preflight`."""
        return preflight(
            self.spec,
            job_id=self.job_id,
            run_dir=self.run_dir,
            scheduler=self.scheduler,
            resumed=self.resumed,
            sinks=self.sinks,
        )


def train(
    run: Run, progress: Progress, on_summary: "Callable[[Summary], None]" = lambda _: None
) -> "Summary":
    """Check the inputs, train, and keep the run directory up to date.

    Args:
        run: What to train.
        progress: Is told how it goes.
        on_summary: Gets the summary of a job that ended, also of one that ended badly.

    Raises:
        DistrainError: The inputs cannot be used, or the job ended badly; in the latter case the
            run directory holds a summary that says so.
    """
    from distrain.coordinator.handle import raise_for_state
    from distrain.report import open_run, reopen_run

    run = replace(run, spec=with_absolute_paths(run.spec), run_dir=run.run_dir.expanduser())
    checked = run.check()
    from distrain.train.inputs import hand_on  # late: it loads torch

    for note in checked.notes:
        progress.say(f"note: {note}")
    feeds = _feeds(run, progress)
    if run.resumed is None:
        recorder = open_run(run.run_dir, run.spec, run.job_id)
    else:
        recorder = reopen_run(run.run_dir, run.spec)
    recording = PatientRecorder(recorder, progress.say, FULL_DISK_S)

    def on_view(view: "JobView") -> None:
        fresh = recording.add(view)
        progress.show(view)
        feeds.put(fresh)

    # Sinks are waited for last, when the run's own files are whole.
    with feeds, recorder, ExitStack() as unless_submitted:
        if run.resumed is None:
            unless_submitted.callback(recorder.forget)
        hand_on(checked.inputs, run.spec, recorder.paths.tables)
        with progress:
            view = _run_to_end(run, recorder, progress, on_view, unless_submitted.pop_all)
        if view.state.is_final and not view.checkpoints.count and view.reason != "CoordinatorLost":
            _release_place(run)
        feeds.ends(view.state.value)
        try:
            summary = recorder.finish(view)
        except OutputError as error:
            if view.reason is None:
                raise
            # What ended the job matters more, and may have the same cause.
            progress.say(f"warning: {error}")
            summary = recorder.sum_up(view)
    on_summary(summary)
    if view.reason is None and view.checkpoints.outcome:
        progress.say(f"warning: checkpoints: {view.checkpoints.outcome}; the notices above say why")
    logs = recorder.paths.logs
    raise_for_state(view, logs if logs.is_dir() else None, _how_to_go_on(run, view))
    return summary


def _release_place(run: Run) -> None:
    """Let others have the place of a run that ended without any checkpoint."""
    from distrain.checkpoint import release_place
    from distrain.run_paths import RunPaths
    from distrain.train.saving import checkpoint_place

    resumed = run.resumed is not None
    place = checkpoint_place(run.spec, RunPaths(run.run_dir), run.job_id, resumed=resumed)
    with suppress(OSError):  # seen from here or not: whoever is refused is told of the claim
        release_place(place)


def _feeds(run: Run, progress: Progress) -> "Feeds":
    from distrain.sinks import Feeds, RunFacts, flat, open_sinks

    parameters = flat(run.spec.model_dump(mode="json"))
    facts = RunFacts(run.job_id, run.spec.name, run.run_dir, run.spec.tags, parameters)
    return Feeds(open_sinks(run.sinks), facts, progress.say)


def _run_to_end(
    run: Run,
    recorder: "RunRecorder",
    progress: Progress,
    on_view: "Callable[[JobView], None]",
    on_submitting: "Callable[[], object]" = lambda: None,
) -> "JobView":
    """Run a job; `on_submitting` is called before a scheduler, or this process, may have it."""
    root = recorder.paths.root
    if run.spec.resources.backend == "inline":
        from distrain.coordinator.inline import run_inline

        on_submitting()
        return run_inline(run.spec, root, run.job_id, on_view, run.first_attempt)
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
        seen = 0

        def show(view: "JobView") -> None:
            nonlocal seen
            on_view(view)
            seen = view.next_record

        on_submitting()
        with _terminated_is_interrupted():
            is_new = job.submit(run.spec, root, run.first_attempt)
            try:
                if not is_new:
                    progress.say("the job is there already, as it was submitted: watching it")
                    recorder.same_job()
                elif run.resumed is not None:
                    recorder.catch_up()
                show_jobs(client, progress)
                return job.watch(show)
            except OutputError as error:  # the run directory takes no more records
                job.cancel(f"{_COMMAND} cannot write its run directory: {error.message}")
                raise
            except KeyboardInterrupt as interrupt:
                progress.say("stopping the job (Ctrl-C again leaves it to itself)")
                told = "received SIGTERM" if isinstance(interrupt, Terminated) else "got Ctrl-C"
                job.cancel(f"{_COMMAND} {told} on host {socket.gethostname()}")
                return job.watch(show, since=seen)


def show_jobs(client: "Client", progress: Progress) -> None:
    """Let a scheduler that was started without the preload show its jobs, too."""
    from distrain.monitor.late import ensure_monitor

    try:
        ensure_monitor(client)
    except ClusterError as error:  # it trains all the same
        progress.say(f"warning: {error}")


@contextmanager
def _terminated_is_interrupted() -> Iterator[None]:
    """Take SIGTERM for Ctrl-C, so that a command that is told to end does so in order."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _how_to_go_on(run: Run, view: "JobView") -> str | None:
    """The command that resumes a job, if there is something to resume it from."""
    saved = view.checkpoints.step
    if saved is None and run.resumed is not None:
        saved = run.resumed.step
    if saved is None and view.reason != "CoordinatorLost":
        return None
    return how_to_resume(run.run_dir, run.scheduler, saved)
