"""`run.json`, its lock, and what else is read of a run directory to go on with its run."""

import math
import os
import platform
import shutil
import socket
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import psutil
from pydantic import ConfigDict, StrictInt, TypeAdapter, ValidationError

from distrain.errors import InputError, OutputError, problem_in
from distrain.jobs.devices import cpu_model
from distrain.jobs.reasons import LEFT_OFF
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.load import dump_yaml, parse_spec, parse_yaml
from distrain.jobs.view import Record
from distrain.runs.validation import json_of, read_outcome, record_of, write_json
from distrain.storage.outputs import (
    lock_now,
    locked_folder,
    no_pipe,
    read_file,
    translated_errors,
    whole_file,
)
from distrain.version import build, package_version

_PACKAGES = (
    "torch", "dask", "distributed", "numpy", "pyarrow", "pydantic", "fsspec",
    "triton", "cudf-cu13", "dask-cuda",
)  # fmt: skip
"""Packages whose versions are recorded, where they are installed."""
_HINT = "Is it a run directory? It holds spec.yaml and run.json."


@dataclass(frozen=True)
class ServiceMark:
    """The service that keeps a run directory, and the lease under which it writes."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    id: str  # the service's own id
    generation: StrictInt  # of the lease: whoever holds a lower one writes nothing


@dataclass(frozen=True)
class RunFile:
    """What `run.json` holds."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    job_id: str  # the job whose run this is, also when it is resumed
    created: str  # when it was first submitted: ISO 8601, in UTC
    version: str  # distrain's version and build then
    # the command's machine then, and its packages
    environment: Mapping[str, Any] = field(default_factory=dict)
    service: ServiceMark | None = None  # the service that keeps the directory; `None`: commands do

    @classmethod
    def new(cls, job_id: str, service: ServiceMark | None = None) -> "RunFile":
        created = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(job_id, created, build(), describe_environment(), service)

    def write(self, paths: RunPaths) -> None:
        document = asdict(self)
        if self.service is None:  # as versions that know no service read it
            del document["service"]
        write_json(paths.run, document)


def write_spec(spec: JobSpec, paths: RunPaths) -> None:
    with whole_file(paths.spec) as partial:
        partial.write_text(dump_yaml(spec.model_dump(mode="json")))


def read_run_and_spec(root: Path, overrides: Sequence[str] = ()) -> tuple[RunFile, JobSpec]:
    """The `run.json` and the spec of a run directory; overrides are `SECTION.FIELD=VALUE`.

    An `InputError`: it holds no run that can be read; a `SpecError`: the spec, or an override,
    cannot be used.
    """
    paths = RunPaths(root)
    run = read_run_file(paths)
    return run, parse_spec(_read(paths.spec, parse_yaml), overrides)


_RUN_FILE = TypeAdapter(RunFile)


def read_run_file(paths: RunPaths) -> RunFile:
    try:
        return _RUN_FILE.validate_python(_read(paths.run, json_of))
    except ValidationError as error:
        what = f"not a run.json: {problem_in(error)}"
        raise InputError(what, where={"path": str(paths.run)}) from None


def read_records(paths: RunPaths, most_bytes: float = math.inf) -> list[Record]:
    """The records of a run, without a last line that was cut off.

    An `InputError` names a line that cannot be read, or says that the file has too many bytes.
    """
    if not paths.metrics.exists():
        return []
    try:
        whole, _, _ = read_file(paths.metrics, most_bytes).rpartition(b"\n")
    except OSError as error:
        hint = "Move it away, or have the job log less often (train.log_every_steps)."
        raise InputError(f"cannot be read: {error}", hint=hint) from None
    records = []
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            records.append(record_of(line))
        except (ValueError, TypeError, KeyError) as error:
            where = {"path": str(paths.metrics), "line": number}
            raise InputError(f"not a record: {problem_in(error)}", where=where) from None
    return records


def read_summary(paths: RunPaths) -> Mapping[str, Any] | None:
    """What `summary.json` holds; `None` if the run has none, or none that can be read."""
    return read_outcome(paths.summary)


def untrained(paths: RunPaths) -> str | None:
    """Why a job ended before it trained a step; `None` if it trained.

    Another job may take such a directory: it holds nothing to go on with.
    """
    summary = read_summary(paths) or {}
    ended_badly = summary.get("state") in ("failed", "cancelled")
    # Of a scheduler that went away nobody knows what its job did.
    if not ended_badly or summary.get("reason") in LEFT_OFF or summary.get("steps"):
        return None
    saved = summary.get("checkpoints")
    counts = isinstance(saved, dict) and saved.get("count")
    results = (paths.metrics, paths.checkpoints, paths.model)
    if counts or any(_holds_something(path) for path in results):
        return None
    return str(summary.get("reason"))


def check_new_run(paths: RunPaths, *, overwrite: bool = False) -> None:
    """Raise an `OutputError` if a run directory holds a run that trained, or may have.

    With `overwrite` only if a service keeps it, or its `run.json` cannot be read.
    """
    if overwrite and paths.run.exists() and read_run_file(paths).service is None:
        return
    if (paths.spec.exists() or paths.run.exists()) and untrained(paths) is None:
        raise OutputError(
            "the run directory holds a run already",
            where={"path": str(paths.root)},
            hint="Choose another --run-dir, remove that one, or go on with it: "
            f"distrain train --resume {paths.root}",
        )


def remove_run(paths: RunPaths) -> None:
    """Remove a run from its directory; what lies elsewhere, or is not a run's, stays."""
    reports = (paths.metrics, paths.progress, paths.curves, paths.report, paths.tables)
    with translated_errors(paths.root):
        for folder in (paths.logs, paths.audits, paths.checkpoints, paths.model):
            if folder.is_dir():
                shutil.rmtree(folder)
        # The summary last, since it says that the others do not count.
        for file in (*reports, paths.spec, paths.run, paths.summary):
            file.unlink(missing_ok=True)


def _holds_something(path: Path) -> bool:
    if path.is_dir():
        return any(path.iterdir())
    return path.exists() and path.stat().st_size > 0


def _read(path: Path, parse: Any) -> dict[str, Any]:
    try:
        document = parse(read_file(path).decode())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"cannot read the run: {reason}", where={"path": str(path)}, hint=_HINT
        ) from None
    if not isinstance(document, dict):
        raise InputError("cannot read the run", where={"path": str(path)}, hint=_HINT)
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
    """Another command keeps the run directory up to date."""


def alone_in(root: Path) -> AbstractContextManager[None]:
    """Keep other commands from beginning a run in the same directory."""
    return locked_folder(root, _in_use(root))


def locked(path: Path) -> BinaryIO:
    """A file, locked for this process as long as it is open."""
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
        "another command is at this run",
        where={"path": str(root)},
        hint="Wait for its end, or end it.",
    )
