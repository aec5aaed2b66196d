"""Runs one job from its spec to a finished run folder."""

import socket
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distrain.errors import (
    DistrainError,
    OutputError,
    SpecError,
    Terminated,
    on_sigterm,
)
from distrain.formatting import is_uninformative, main_metrics, useless_targets
from distrain.jobs.job_view import JobView, Record
from distrain.jobs.reasons import LEFT_OFF
from distrain.jobs.run_paths import RunPaths, new_job_id
from distrain.jobs.spec.fit_to_table import is_retrieval
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.load import flat
from distrain.jobs.spec.paths import with_absolute_paths
from distrain.jobs.spec.short_yaml import short_yaml
from distrain.jobs.spec.training import RETRIEVAL_METRIC
from distrain.jobs.target_names import own_name, with_own_name
from distrain.launch.external_ranks import Gang
from distrain.launch.inline import run_inline
from distrain.launch.job_checks import JobChecks
from distrain.launch.job_handle import JobHandle, raise_for_state
from distrain.launch.reporting import Progress
from distrain.launch.resuming import find_run, how_to_resume
from distrain.prep.report_file import read_report
from distrain.runs.attempts import read_records
from distrain.runs.finish_run import finish_run
from distrain.runs.history import History
from distrain.runs.open_run import OpenRun, open_run, reopen_run
from distrain.runs.report.figures import draw_curves
from distrain.runs.run_file import has_succeeded, read_summary
from distrain.runs.sinks.base import RunFacts, Sink
from distrain.runs.sinks.choosing import open_sinks
from distrain.runs.sinks.feed import Feeds
from distrain.runs.summary import Summary, summarise
from distrain.runs.validation import write_json
from distrain.storage.outputs import atomic_file
from distrain.workers.local import begin_imports, dashboard_link
from distrain.workers.open_cluster import ClusterRequest, open_cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from distrain.launch.resuming import Resumption


_COMMAND = "the command that submitted it"


class CallbackFailed(BaseException):
    """Wraps a callback's `error`; not an `Exception`, so it does not count as a job failure."""

    def __init__(self, error: Exception):
        super().__init__(repr(error))
        self.error = error


@dataclass(frozen=True)
class RunRequest:
    """A run to begin or resume; relative paths are resolved in this process, not on workers."""

    spec: JobSpec
    run_dir: Path
    job_id: str
    # the cluster's address, its client, or the cluster itself; `None` for a local cluster or the
    # inline backend
    scheduler: Any = None
    dashboard_address: str = ":0"  # of a local cluster; port 0 means any free port
    resumed: "Resumption | None" = None  # the resumption point; `None` for a new run
    sinks: "tuple[str | Sink, ...]" = ()  # sinks, or strings for `open_sink`
    # called with each record; an exception ends the job
    callbacks: "tuple[Callable[[Record], object], ...]" = ()
    overwrite: bool = False  # whether a run in the directory may be replaced
    draws: bool = True  # whether to draw `curves.png` at the end
    features: str = ""  # the features document that a table's rows were prepared with
    gang: Gang | None = None  # all ranks that a launcher started, if this process is rank 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "spec", with_absolute_paths(self.spec))
        object.__setattr__(self, "run_dir", self.run_dir.expanduser())

    def call_back(self, record: Record) -> None:
        """Call all callbacks with a record; raises `CallbackFailed` if one raises an exception."""
        for callback in self.callbacks:
            try:
                callback(record)
            except Exception as error:
                raise CallbackFailed(error) from error

    @property
    def first_attempt(self) -> int:
        """The number of the first attempt of this submission."""
        return 1 if self.resumed is None else self.resumed.first_attempt

    def check(self) -> JobChecks:
        """Check the job, and return the results; raises one error that lists all mistakes."""
        if self.spec.resources.backend == "env" and self.gang is None:
            raise SpecError(
                "resources.backend env works only with `distrain train`, started by a launcher",
                hint="Use inline or dask here.",
            )
        place = (self.job_id, self.run_dir, self.scheduler)
        return JobChecks(self.spec, *place, self.resumed, self.sinks, self.overwrite).run()

    def open_folder(self) -> OpenRun:
        """Begin the run folder of a new run, or open that of a resumed run."""
        if self.resumed is None:
            return open_run(self.run_dir, self.spec, self.job_id, overwrite=self.overwrite)
        return reopen_run(self.run_dir, self.spec)

    def write_documents(self, paths: RunPaths) -> None:
        """Write `features.yaml` and a short `job.yaml`, to repeat a run on a table.

        Does nothing for a run on prepared rows. Raises `OutputError` if a file cannot be written.
        """
        documents = {paths.features: self.features, paths.job: short_yaml(self.spec)}
        for path, text in documents.items() if self.features else ():
            with atomic_file(path) as partial:
                partial.write_text(text, encoding="utf-8")


def make_request(root: Path, spec: JobSpec, **options: Any) -> RunRequest:
    """Return a request that resumes the run in a folder, or begins a new run of `spec` there.

    A run that cannot be resumed, such as one that has succeeded, is replaced. `options` are further
    fields of the request.
    """
    with suppress(DistrainError):  # the run was not begun, or killed before its spec was written
        job_id, own, resumed = find_run(root, (), without_checkpoint=True)
        return RunRequest(own, root, job_id, resumed=resumed, **options)
    return RunRequest(spec, root, new_job_id(spec.name), overwrite=True, **options)


def train(
    run: RunRequest, progress: Progress, on_summary: "Callable[[Summary], None]" = lambda _: None
) -> "Summary":
    """Check a job, train it, follow it to its end, and return its summary.

    Ctrl-C and SIGTERM cancel the job.

    Args:
        on_summary: Called with the summary when the job has ended, also if it failed.

    Raises:
        JobError: The job failed; `JobCancelled` if it was cancelled.
        DistrainError: The job cannot be started, or a file of the run cannot be written.
        CallbackFailed: A callback of the request raised an exception.
    """
    if run.spec.resources.backend == "dask" and run.scheduler is None:
        begin_imports()  # the checks take seconds
    checked = run.check()
    run = replace(run, spec=checked.spec)
    from distrain.train.data.job_tables import write_tables  # late: it loads torch

    for note in checked.notes:
        progress.say(f"note: {note}")
    feeds = _feeds(run, progress)
    folder, history = run.open_folder(), History()

    def on_view(view: "JobView") -> None:
        history.add(view.progress)
        progress.show(view)
        feeds.put(view.progress)
        for record in view.records:
            run.call_back(record)

    # Sinks are closed last, after the run's own files are complete.
    with feeds, folder, ExitStack() as unless_submitted:
        unless_submitted.callback(folder.forget)
        run.write_documents(folder.paths)
        write_tables(checked.inputs, run.spec, folder.paths.tables)
        with progress:
            view = _run_to_end(run, progress, on_view, unless_submitted.pop_all)
        is_left_off = view.reason in LEFT_OFF
        if view.state.is_final and not view.checkpoints.count and not is_left_off:
            _release_place(run)
        feeds.ends(view.state.value)
        summary = finish(
            folder.paths, view, run.first_attempt, history, progress.say, draws=run.draws
        )
        if view.reason and has_succeeded(folder.paths):
            folder.restore_spec()
        if view.reason is None and summary.model is not None:
            summary = _tested(run.spec, folder.paths, summary)
    on_summary(summary)
    if summary.test is not None:
        scores = "; ".join(" ".join(words) for words in main_metrics(summary.test["targets"]))
        progress.say(f"evaluated on {summary.test['rows']:,} test rows: {scores}")
    if view.reason is None and view.checkpoints.outcome:
        progress.say(f"warning: checkpoints: {view.checkpoints.outcome}; see the notices above")
    # The loss of retrieval compares items; it is not a log loss.
    retrieves = is_retrieval(run.spec.model.model_dump()) or RETRIEVAL_METRIC in (summary.own or {})
    useless = not retrieves and is_uninformative(summary.normalised_entropy)
    if view.reason is None and useless:
        progress.say(
            "warning: the model is worse than a constant prediction: its normalised entropy is "
            f"{summary.normalised_entropy:.5f}; that of the mean label is 1"
        )
    targets = with_own_name(summary.targets, own_name(folder.paths.model))
    if view.reason is None and (names := useless_targets(targets)):
        progress.say(
            f"warning: predictions are no better than the mean (R2 0 or less): {', '.join(names)}"
        )
    logs = folder.paths.logs
    raise_for_state(view, logs if logs.is_dir() else None, _how_to_resume(run, view))
    return summary


def _tested(spec: JobSpec, paths: RunPaths, summary: "Summary") -> "Summary":
    """Return the summary with the evaluation of the test rows, and write it, if there are any.

    `distrain prep` wrote them beside the training rows. Raises the errors of `evaluate_rows`.
    """
    prepared = Path(spec.data.train[0]).parent
    report = read_report(prepared)
    if not isinstance(report, dict) or "test" not in report.get("rows", {}):
        return summary
    from distrain.predict.in_memory import evaluate_rows  # late: it loads torch
    from distrain.predict.raw_rows import RawOptions

    found = evaluate_rows(paths.model, str(prepared / "test"), raw=RawOptions(False))
    targets = {name: dict(metrics) for name, metrics in found.targets.items()}
    summary = replace(summary, test={"rows": found.rows, "targets": targets})
    write_json(paths.place_of(paths.summary), summary.to_json())
    return summary


def _release_place(run: RunRequest) -> None:
    """Give up the run's ownership of its checkpoint directory, in which it wrote no checkpoint.

    Other runs may then use the directory. Errors are ignored.
    """
    from distrain.train.checkpoint.ownership import release_dir
    from distrain.train.loop.checkpoints import checkpoint_dir

    place = checkpoint_dir(run.spec, RunPaths(run.run_dir), run.job_id)
    with suppress(OSError):  # if the folder remains, the error of the next command names it
        release_dir(place)


def _feeds(run: RunRequest, progress: Progress) -> "Feeds":
    parameters = flat(run.spec.model_dump(mode="json"))
    facts = RunFacts(run.job_id, run.spec.name, run.run_dir, run.spec.tags, parameters)
    return Feeds(open_sinks(run.sinks), facts, progress.say)


def _run_to_end(
    run: RunRequest,
    progress: Progress,
    on_view: "Callable[[JobView], None]",
    on_submitting: "Callable[[], object]" = lambda: None,
) -> "JobView":
    """Run a job and return its last view.

    `on_view` gets each view. `on_submitting` is called just before the job is submitted to a
    scheduler, or starts in this process. `progress` reports to the user.
    """
    root = run.run_dir
    if run.spec.resources.backend != "dask":
        on_submitting()
        return run_inline(run.spec, root, run.job_id, on_view, run.first_attempt, run.gang)
    request = ClusterRequest(
        run.scheduler,
        run.spec.resources.num_ranks,
        device=run.spec.resources.device,
        dashboard_address=run.dashboard_address,
    )
    from distrain.client.errors import NotFound  # late: it loads the HTTP client

    with open_cluster(request, progress.say) as client:
        progress.say(f"Dask dashboard: {dashboard_link(client)}")
        job = JobHandle(client, run.job_id)
        num_seen = 0

        def show(view: "JobView") -> None:
            nonlocal num_seen
            on_view(view)
            num_seen = view.next_record

        with on_sigterm():
            try:
                is_new = job.submit(run.spec, root, run.first_attempt, on_submitting=on_submitting)
                after_submission(is_new, progress)
                return job.watch(show)
            except CallbackFailed as failed:
                job.cancel(f"a callback raised {failed}")
                raise
            except KeyboardInterrupt as interrupt:
                progress.say("stopping the job (press Ctrl-C again to leave without waiting)")
                why = "received SIGTERM" if isinstance(interrupt, Terminated) else "received Ctrl-C"
                with suppress(NotFound):  # which means that the job was not submitted yet
                    job.cancel(f"{_COMMAND} {why} on host {socket.gethostname()}")
                    return job.watch(show, since=num_seen)
                raise


def after_submission(is_new: bool, progress: Progress) -> None:
    """Print a note if the job was not new."""
    if not is_new:
        progress.say("the scheduler already has this job")


def _how_to_resume(run: RunRequest, view: "JobView") -> str | None:
    saved = view.checkpoints.step
    if saved is None and run.resumed is not None:
        saved = run.resumed.step
    if saved is None and view.reason not in LEFT_OFF:
        return None
    scheduler = run.scheduler if isinstance(run.scheduler, str) else None
    return how_to_resume(run.run_dir, scheduler, saved)


def finish(
    paths: RunPaths,
    view: "JobView",
    first_attempt: int,
    history: History,
    say: "Callable[[str], None]",
    *,
    draws: bool = True,
) -> "Summary":
    """Return the summary of a job that has ended; with `draws`, also draw `curves.png`.

    Writes the summary in this process if no worker could write it. Raises `OutputError` if a file
    cannot be written; if the job failed, this is only a warning, since the cause of the failure
    matters more.

    Args:
        first_attempt: The number of the first attempt of this submission.
        history: The entries of the job that this process has seen; the summary is computed from
            them if a file cannot be written.
        say: Prints the warning.
    """
    try:
        summary = written_summary(paths, view) or finish_run(paths, view, first_attempt)
        if draws:
            _draw(paths, view.name, view.model_step)
    except OutputError as error:
        if view.reason is None:
            raise
        say(f"warning: {error}")
        return summarise(view, history.records)
    return summary


def _draw(paths: RunPaths, name: str, model_step: int | None) -> None:
    if records := read_records(paths):
        with atomic_file(paths.curves) as partial:
            draw_curves(records, name, partial, model_step)


def written_summary(paths: RunPaths, view: "JobView") -> "Summary | None":
    """Return the summary that a worker wrote for a job's last view.

    Returns `None` if no worker has written it, or a worker with another version has.
    """
    values = (read_summary(paths) if view.recorded else None) or {}
    if (values.get("state"), values.get("attempts")) == (view.state.value, view.attempt):
        with suppress(TypeError):  # written by another version
            return Summary(**values)
    return None
