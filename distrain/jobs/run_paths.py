"""Names of runs and of the files in a run folder."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from distrain.errors import InputError

_ATTEMPT, _RANK = "attempt-", "rank-"
_PART = ".from-"
_RECORDS = ".jsonl"

PREPARED = ".prepared"
"""The folder of prepared tables next to run folders; hidden, because it is not a run."""


class _Below:
    """A descriptor: the path of the file or folder `name` in the run folder."""

    def __init__(self, name: str):
        self._name = name

    def __get__(self, paths: "RunPaths", owner: type) -> Path:
        return paths.root / self._name


@dataclass(frozen=True)
class RunPaths:
    """Paths of one run's files; other modules take the files' names from here.

    Attributes:
        root: The run folder; if the run is in an object store, a local folder for the files that
            this process writes.
        store: The URL of a run folder in an object store; "" for one on a filesystem.

    >>> RunPaths(Path("runs/a")).log(rank=1, attempt=2).as_posix()
    'runs/a/logs/attempt-2/rank-1.log'
    """

    root: Path
    store: str = ""

    @property
    def place(self) -> str:
        """The URL of the run folder in an object store, or else its path."""
        return self.store or str(self.root)

    def place_of(self, path: Path) -> str:
        """Return where a file of the run is: its URL if the run is in an object store, else `path`.

        `path` is below `root`.
        """
        if not self.store:
            return str(path)
        return f"{self.store}/{path.relative_to(self.root).as_posix()}"

    spec = _Below("spec.yaml")  # the job spec as resolved
    features = _Below("features.yaml")  # the features document, if the run prepared a table itself
    job = _Below("job.yaml")  # the short form of the job spec, if the run prepared a table itself
    run = _Below("run.json")  # the job's id, when it was submitted, distrain's version, the machine
    records = _Below("records")  # the merged reports of the ranks, a file for each attempt
    metrics = _Below("metrics.jsonl")  # the records of a run that version 0.2.0 began
    progress = _Below("progress.json")  # the status that version 0.2.0 wrote
    tables = _Below("tables.zip")  # the row groups, listed by the command for the ranks
    summary = _Below("summary.json")  # the run's outcome
    curves = _Below("curves.png")  # loss, AUC, rows/s and stalls as a picture
    report = _Below("report.html")  # the run on one page, written by `distrain report`
    tensorboard = _Below("tensorboard")  # event files, unless the sink names another place
    mlflow_store = _Below("mlflow.db")  # unless the sink or the environment names a server
    mlflow_artifacts = _Below("mlflow")  # beside `mlflow_store`
    model = _Below("model")  # the saved model
    window_models = _Below("models")  # models at the ends of windows (`checkpoint.window_models`)
    checkpoints = _Below("checkpoints")  # unless the spec names another place
    logs = _Below("logs")  # the ranks' logs, attempt by attempt
    audits = _Below("audit")  # hashes of trained rows, attempt by attempt

    def attempt_records(self, attempt: int) -> Path:
        """Return the file of an attempt's records, which has a single writer (`AttemptFile`)."""
        return self.records / f"{_ATTEMPT}{attempt}{_RECORDS}"

    def log(self, rank: int, attempt: int) -> Path:
        return self.logs / f"{_ATTEMPT}{attempt}" / f"{_RANK}{rank}.log"

    def audit(self, rank: int, attempt: int) -> Path:
        return self.audits / f"{_ATTEMPT}{attempt}" / f"{_RANK}{rank}.rows"

    def window_model(self, step: int) -> Path:
        return self.window_models / f"step-{step:010d}"

    def attempts(self) -> tuple[int, ...]:
        """Return the attempts with records, logs or audits on the filesystem, the oldest first."""
        folders = (self.records, self.logs, self.audits)
        return attempts_of(path.name for folder in folders for path in _inside(folder))


def attempts_of(names: Iterable[str]) -> tuple[int, ...]:
    """Return the attempts' numbers in names of folders and record files, ascending.

    Other names are ignored.

    >>> attempts_of(["attempt-2", "attempt-1.jsonl", "other"])
    (1, 2)
    """
    begun = (name.partition(_RECORDS)[0] for name in names if name.startswith(_ATTEMPT))
    numbers = {name.removeprefix(_ATTEMPT) for name in begun}
    return tuple(sorted(int(number) for number in numbers if number.isdecimal()))


def of_all_ranks(file: Path) -> dict[int, Path]:
    """Return the paths of all ranks' files of a kind, by rank; only existing files.

    `file` is the path of one rank's file, such as `RunPaths.log(0, 1)`. It need not exist.
    """
    files = {}
    for path in _inside(file.parent):
        rank = path.name.removeprefix(_RANK).removesuffix(file.suffix)
        if path.name == f"{_RANK}{rank}{file.suffix}" and rank.isdecimal():
            files[int(rank)] = path
    return dict(sorted(files.items()))


def _inside(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def check_run_dir(paths: RunPaths) -> None:
    """Raise an `InputError` unless `paths.root` is a folder."""
    if not paths.root.is_dir():
        raise InputError(
            "no such folder" if not paths.root.exists() else "this is not a folder",
            where={"path": str(paths.root)},
            hint="Name the directory of a run, as `distrain train` and `distrain status JOB` print "
            "it.",
        )


JOB_ID = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
"""The pattern of a job's id, which is also a folder's name."""


def new_job_id(name: str, now: datetime | None = None) -> str:
    """Return a new job id, also the run folder's name: name, time, and 8 random hex digits.

    The time is this machine's local one if `now` is `None`.

    >>> new_job_id("dlrm", datetime(2026, 3, 1, 12, 30))[:-8]
    'dlrm-20260301-123000-'
    """
    moment = now or datetime.now()
    return f"{name}-{moment:%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:8]}"


def id_end(job_id: str, name: str) -> str:
    """Return the part of a job's id after the last hyphen, which screens show beside the name.

    If the id does not begin with the job's name and a hyphen, return the whole id.

    >>> id_end("clicks-20260301-123000-0a1b2c3d", "clicks"), id_end("nightly", "clicks")
    ('0a1b2c3d', 'nightly')
    """
    return job_id.rpartition("-")[2] if job_id.startswith(f"{name}-") else job_id


def log_part(log: Path, first_byte: int) -> Path:
    """Return the path of the part of a rank's log that begins at byte `first_byte` of its output.

    The part is next to the log.
    """
    return log.with_name(f"{log.name}{_PART}{first_byte}")


def first_byte_of_part(name: str, log_name: str) -> int | None:
    """Return the `first_byte` in a file name of `log_part`; `None` for any other name.

    >>> first_byte_of_part("rank-0.log.from-100", "rank-0.log")
    100
    """
    number = name.removeprefix(log_name + _PART)
    return int(number) if number != name and number.isdecimal() else None


def log_end(log: Path) -> Path:
    """Return the path of the file with a log's size in bytes, written when the log is closed."""
    return log.with_name(log.name + ".end")
