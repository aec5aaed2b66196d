"""Reads, writes and locks `run.json` and the spec of a run folder; checks and removes runs."""

import os
import platform
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import psutil
from pydantic import ConfigDict, TypeAdapter, ValidationError

from distrain.errors import DistrainError, InputError, OutputError, problems_in
from distrain.formatting import command_line
from distrain.jobs.devices import cpu_model
from distrain.jobs.reasons import LEFT_OFF
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.load import dump_yaml, parse_spec, parse_stored_spec, parse_yaml
from distrain.jobs.states import JobState
from distrain.runs.attempts import read_records
from distrain.runs.run_folder import NotInRun
from distrain.runs.stored.folder import open_own_run, open_run_folder
from distrain.runs.validation import json_of, parsed_outcome, read_outcome, write_json
from distrain.storage.outputs import (
    atomic_file,
    lock_now,
    locked_folder,
    no_pipe,
    read_file,
    translated_errors,
)
from distrain.storage.urls import is_remote
from distrain.version import build, package_version

_PACKAGES = (
    "torch", "dask", "distributed", "numpy", "pyarrow", "pydantic", "fsspec",
    "triton", "cudf-cu13", "dask-cuda",
)  # fmt: skip
"""Packages whose versions are recorded if they are installed."""
_HINT = "Is it a run folder? It holds spec.yaml and run.json."


@dataclass(frozen=True)
class RunFile:
    """The content of `run.json`."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    job_id: str  # the run's job, unchanged when it is resumed
    created: str  # when it was first submitted: ISO 8601, in UTC
    version: str  # distrain's version and build at that time
    # the machine that submitted it, and its packages
    environment: Mapping[str, Any] = field(default_factory=dict)
    service: str | None = None  # the id of the service that has the job; `None`: a command's job

    @classmethod
    def new(cls, job_id: str, service: str | None = None) -> "RunFile":
        created = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(job_id, created, build(), describe_environment(), service)

    def write(self, paths: RunPaths) -> None:
        write_json(paths.place_of(paths.run), asdict(self))


def write_spec(spec: JobSpec, paths: RunPaths) -> None:
    with atomic_file(paths.place_of(paths.spec)) as partial:
        partial.write_text(dump_yaml(spec.model_dump(mode="json")))


def begin_run(paths: RunPaths, spec: JobSpec, job_id: str, service: str | None = None) -> None:
    """Write the spec, and `run.json` unless it exists, to a run folder or an object store.

    `service` is the id of the service that has the job, or `None`. In an existing `run.json`, only
    this id is replaced. On a filesystem, also removes the tables that an earlier command stored.

    Raises `RunInUse` if a command uses the run (not detected in an object store), and `OutputError`
    if a file cannot be written or the folder holds the run of another job.
    """
    run = find_run_file(paths)
    if run is None:
        if not paths.store:
            check_new_run(paths)
        RunFile.new(job_id, service).write(paths)
    else:
        check_job(run, job_id, paths)
        if not paths.store:
            locked(paths.run).close()
        if run.service != service:
            replace(run, service=service).write(paths)
    if not paths.store:
        with translated_errors(paths.tables):  # an earlier command wrote this file
            paths.tables.unlink(missing_ok=True)
    write_spec(spec, paths)


def check_job(run: RunFile, job_id: str, paths: RunPaths) -> None:
    """Raise an `OutputError` if a run folder holds the run of another job."""
    if run.job_id != job_id:
        raise OutputError(
            f"the folder holds the run of another job, {run.job_id}",
            where={"path": paths.place, "job": job_id},
            hint="Remove or rename that folder, or choose another.",
        )


def read_run_and_spec(
    root: Path, overrides: Sequence[str] | None = None
) -> tuple[RunFile, JobSpec]:
    """Return the `run.json` and the spec of a run folder.

    `overrides` are `SECTION.FIELD=VALUE`, for a run that will continue, so that removed fields of
    the spec are errors; `None` for one that is only read.

    Raises `InputError` if the directory holds no readable run, `SpecError` if the spec or an
    override is invalid.
    """
    paths = RunPaths(root)
    run = read_run_file(paths)
    document = _read(paths.spec, parse_yaml)
    if overrides is None:
        return run, parse_stored_spec(document)
    return run, parse_spec(document, overrides)


_RUN_FILE = TypeAdapter(RunFile)


def read_run_file(paths: RunPaths) -> RunFile:
    """Read `run.json` of a run folder on a filesystem; `InputError` if it cannot be read."""
    if paths.model.is_dir() and not paths.run.exists():
        raise InputError(
            "the folder holds a saved model, such as an ensemble, and no run",
            where={"path": str(paths.root)},
            hint="`distrain evaluate` measures it; name the run folders that it was made of.",
        )
    return _run_file(_read(paths.run, json_of), paths)


def find_run_file(paths: RunPaths) -> RunFile | None:
    """Read `run.json` of a run folder, also in an object store; `None` if there is none.

    Raises `InputError` if it is invalid.
    """
    if not paths.store:
        return read_run_file(paths) if paths.run.exists() else None
    text = read_small_file(paths.place, paths.run.name)
    if text is None:
        return None
    return _run_file(_parsed(lambda: json_of(text), paths.place_of(paths.run)), paths)


def _run_file(document: dict[str, Any], paths: RunPaths) -> RunFile:
    if isinstance(document.get("service"), dict):  # version 0.2.0 wrote the id with a lease
        document["service"] = document["service"].get("id")
    try:
        return _RUN_FILE.validate_python(document)
    except ValidationError as error:
        message = f"not a run.json: {problems_in(error)[0]}"
        where = {"path": paths.place_of(paths.run)}
        raise InputError(message, where=where, hint=_HINT) from None


def read_small_file(run_dir: str | Path, name: str) -> str | None:
    """Read a text file of a run folder, also in an object store; `None` if it does not exist."""
    try:
        with open_run_folder(run_dir) as folder:
            file = folder.open(name)
            try:
                return file.pread(file.size_bytes, 0).decode(errors="replace")
            finally:
                file.close()
    except NotInRun:
        return None


def paths_of(run_dir: str) -> RunPaths:
    """Return the paths of a run folder, given by path or URL.

    For a URL, `root` is the current folder, so the paths of logs and records must not be used.
    """
    return RunPaths(Path(), run_dir) if is_remote(run_dir) else RunPaths(Path(run_dir))


def read_summary(paths: RunPaths) -> Mapping[str, Any] | None:
    """Read `summary.json`; `None` if it is missing or unreadable."""
    if paths.store:
        return parsed_outcome(read_small_file(paths.place, paths.summary.name) or "")
    return read_outcome(paths.summary)


def has_succeeded(paths: RunPaths) -> bool:
    """Return True if the run's summary says that it has succeeded."""
    return is_success(read_summary(paths))


def is_success(summary: Mapping[str, Any] | None) -> bool:
    """Return True if a summary says that its run has succeeded."""
    return (summary or {}).get("state") == JobState.SUCCEEDED.value


def is_finished(paths: RunPaths) -> bool:
    """Return True if the run has a summary that includes its last attempt."""
    summary = read_summary(paths)
    if summary is None:
        return False
    with open_own_run(paths) as folder:
        return max(folder.attempts(), default=0) <= (summary.get("attempts") or 0)


def why_never_trained(paths: RunPaths) -> str | None:
    """Return the reason why a run's job failed or was cancelled before its first step.

    Another job may reuse such a run's directory, since there is no progress to resume from. Returns
    `None` if the job trained or may have trained, or has not ended.
    """
    summary = read_summary(paths) or {}
    ended_badly = summary.get("state") in ("failed", "cancelled")
    # If the scheduler was lost, it is unknown what the job did.
    if not ended_badly or summary.get("reason") in LEFT_OFF or summary.get("steps"):
        return None
    saved = summary.get("checkpoints")
    counts = isinstance(saved, dict) and saved.get("count")
    if counts or any(_holds_something(path) for path in (paths.checkpoints, paths.model)):
        return None
    with suppress(DistrainError):  # an unreadable file may hold records
        if not read_records(paths):
            return str(summary.get("reason"))
    return None


def check_new_run(paths: RunPaths, *, overwrite: bool = False) -> None:
    """Raise `OutputError` if a run folder is a file, or holds a run that may have trained.

    With `overwrite`, such a run is accepted unless a service has its job. A spec without a
    `run.json` counts as a run that may have trained, also with `overwrite`. Raises `RunInUse` if
    another command uses the run, and with `overwrite` `InputError` if `run.json` cannot be read to
    see whether a service has its job.
    """
    if file := next((one for one in (paths.root, *paths.root.parents) if one.is_file()), None):
        raise OutputError(
            "cannot create the run folder: a file with this name exists",
            where={"path": str(file)},
            hint="Choose another --run-dir.",
        )
    if paths.run.exists():
        locked(paths.run).close()
        if overwrite and read_run_file(paths).service is None:
            return
    if (paths.spec.exists() or paths.run.exists()) and why_never_trained(paths) is None:
        raise OutputError(
            "the run folder already contains a run",
            where={"path": str(paths.root)},
            hint=_instead_of_beginning(paths),
        )


def _instead_of_beginning(paths: RunPaths) -> str:
    """Return a hint for a user whose new run would use the folder of an earlier one."""
    if not paths.run.exists():
        return f"Choose another --run-dir, or remove {paths.spec}, which belongs to no run."
    with suppress(InputError):
        if read_run_file(paths).service is not None:
            return "A job service has its job: choose another --run-dir."
    replaced = (
        "Choose another --run-dir, or replace that run: --overwrite (in Python: overwrite=True)."
    )
    if has_succeeded(paths):
        return replaced
    return f"Resume it: {command_line('train', '--resume', paths.root)}. {replaced}"


def remove_run(paths: RunPaths) -> None:
    """Remove a run's files from its folder on a filesystem; other files in it are kept.

    Raises `OutputError` if a file cannot be removed.
    """
    reports = (paths.metrics, paths.progress, paths.curves, paths.report, paths.tables)
    with translated_errors(paths.root):
        for folder in (
            paths.records, paths.logs, paths.audits,
            paths.checkpoints, paths.model, paths.window_models,
        ):  # fmt: skip
            if folder.is_dir():
                shutil.rmtree(folder)
        # The summary is removed last: while it exists, it marks the other files as obsolete.
        documents = (paths.features, paths.job, paths.spec)
        for file in (*reports, *documents, paths.run, paths.summary):
            file.unlink(missing_ok=True)


def _holds_something(path: Path) -> bool:
    if path.is_dir():
        return any(path.iterdir())
    return path.exists() and path.stat().st_size > 0


def _read(path: Path, parse: Any) -> dict[str, Any]:
    return _parsed(lambda: parse(read_file(path).decode()), str(path))


def _parsed(parse: Callable[[], Any], place: str) -> dict[str, Any]:
    """Return the mapping that `parse` returns; raises `InputError` for anything else.

    `place` names the file in the error.
    """
    try:
        document = parse()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"cannot read the run: {reason}", where={"path": place}, hint=_HINT
        ) from None
    if not isinstance(document, dict):
        raise InputError("cannot read the run", where={"path": place}, hint=_HINT)
    return document


def describe_environment() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "system": platform.platform(),
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "python": platform.python_version(),
        "packages": {"distrain": build()}
        | {name: version for name in _PACKAGES if (version := package_version(name))},
    }


class RunInUse(OutputError):
    """Another command or a service uses the run in the folder."""


def exclusive_run_dir(root: Path) -> AbstractContextManager[None]:
    """Prevent other commands from beginning a run in a directory during a `with` block.

    Raises `RunInUse` if another command does so now.
    """
    return locked_folder(root, _in_use(root))


def locked(path: Path) -> BinaryIO:
    """Open a file and lock it until it is closed; `RunInUse` if another process has locked it."""
    with translated_errors(path):
        file = os.fdopen(no_pipe(str(path), os.O_RDONLY), "rb")
    try:
        lock_now(file.fileno(), _in_use(path.parent))
    except RunInUse:
        file.close()
        raise
    return file


def _in_use(root: Path) -> RunInUse:
    return RunInUse(
        "another command uses this run",
        where={"path": str(root)},
        hint="Wait until it ends, or stop it.",
    )
