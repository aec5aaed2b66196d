"""Reads a whole run directory, whether its run succeeded, failed, broke off, or goes on."""

import fcntl
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distrain.jobs.events import StepsDone
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.view import Record, record_of_model
from distrain.runs.records.merging import add_up
from distrain.runs.records.report_file import read_reports, tail_offset
from distrain.runs.run_file import RunFile, read_records, read_run_and_spec, read_summary
from distrain.runs.summary import read_status

_OF_A_RANK_BYTES = 4 * 2**20
_OF_ALL_BYTES = 256 * 2**20
"""Bytes of the newest reports of each rank that are read at most; a report takes up to 50 kB."""

RUNNING, BROKEN_OFF = "running", "broken off"


@dataclass(frozen=True)
class RankTimes:
    """Wall time by phase of each rank, in the reports from `first_step` to `last_step`."""

    first_step: int
    last_step: int
    seconds: tuple[Mapping[str, float], ...]


@dataclass(frozen=True)
class RunData:
    root: Path
    run: RunFile
    spec: JobSpec
    records: tuple[Record, ...]  # the records that count, in order
    # content of `summary.json`; while the run has not ended, of `progress.json`, or what an earlier
    # command left; `{}` without any
    summary: Mapping[str, Any]
    # the summary's state; `running` while a command holds the run's lock, or a service keeps the
    # directory; `broken off` if none does and there is no summary
    state: str
    recent: RankTimes | None = None  # each rank's time in its last reports, if the summary has none

    @property
    def ended(self) -> bool:
        return self.state not in (RUNNING, BROKEN_OFF)

    @property
    def name(self) -> str:
        return self.run.job_id

    @property
    def train(self) -> list[Record]:
        return [record for record in self.records if record.split == "train"]

    @property
    def valid(self) -> list[Record]:
        return [record for record in self.records if record.split == "valid"]

    @property
    def scored(self) -> Record | None:
        """The validation of the saved model; else the last one, else the last training record."""
        train = self.train
        of_model = record_of_model(self.valid, self.summary.get("model_step"))
        return of_model or (train[-1] if train else None)

    @property
    def restarts(self) -> list[Mapping[str, Any]]:
        return list(self.summary.get("restarts", ()))

    def checkpoint_steps(self) -> list[int]:
        """Steps of reports with time spent on checkpoints, and the last checkpoint's own step."""
        steps = {r.step for r in self.train if (r.seconds or {}).get("checkpoint", 0.0) > 0}
        last = (self.summary.get("checkpoints") or {}).get("step")
        return sorted(steps | ({last} if last else set()))

    def rank_seconds(self) -> list[Mapping[str, float]]:
        """Each rank's wall time by phase: of the whole training if known, else recent."""
        return list(self.summary.get("seconds") or (self.recent.seconds if self.recent else ()))

    def mean_seconds(self) -> Mapping[str, float]:
        return add_up([record.seconds or {} for record in self.train])

    def problem(self) -> str:
        """The reason and message of a bad end; "" without one."""
        reason = self.summary.get("reason")
        if not reason or not self.ended:
            return ""
        return f"{reason}: {self.summary.get('message') or ''}".strip()


def read_run_data(root: Path) -> RunData:
    """Read a run directory; errors as `read_run_and_spec`."""
    paths = RunPaths(root)
    run, spec = read_run_and_spec(root)
    status = read_status(paths)
    at_work = _is_at_work(paths) or (run.service is not None and status is not None)
    summary = status or read_summary(paths) or {}
    state = str(summary.get("state", BROKEN_OFF))
    if at_work or status:
        state = RUNNING if at_work else BROKEN_OFF
    recent = None if summary.get("seconds") else recent_times(paths)
    return RunData(root, run, spec, tuple(read_records(paths)), summary, state, recent)


def differences(one: Any, other: Any, prefix: str = "") -> Iterator[str]:
    """The places in two JSON documents whose values differ, as `train.optimizer.lr`.

    >>> list(differences({"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": 3, "d": 4}}))
    ['b.c', 'b.d']
    """
    if not (isinstance(one, Mapping) and isinstance(other, Mapping)):
        if one != other:
            yield prefix.rstrip(".")
        return
    for name in dict.fromkeys([*one, *other]):
        if name not in one or name not in other:
            yield f"{prefix}{name}"
        else:
            yield from differences(one[name], other[name], f"{prefix}{name}.")


def _is_at_work(paths: RunPaths) -> bool:
    """Whether a command holds the run's lock (on filesystems that have locks)."""
    try:
        with paths.run.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def recent_times(paths: RunPaths) -> RankTimes | None:
    """The times of the newest attempt that left reports; `None` without steps of all ranks."""
    for attempt in reversed(paths.attempts()):
        if files := _files(paths, attempt):
            return _times(files)
    return None


def _files(paths: RunPaths, attempt: int) -> list[Path]:
    files: list[Path] = []
    while (path := paths.reports(len(files), attempt)).exists():
        files.append(path)
    return files


def _times(files: list[Path]) -> RankTimes | None:
    limit_bytes = min(_OF_A_RANK_BYTES, _OF_ALL_BYTES // len(files))
    windows = [{event.step: event.seconds for event in _last(path, limit_bytes)} for path in files]
    steps = sorted(set.intersection(*map(set, windows)))  # ranks compare over the same steps
    if not steps:
        return None
    totals = tuple(add_up([of_rank[step] for step in steps]) for of_rank in windows)
    return RankTimes(steps[0], steps[-1], totals)


def _last(path: Path, limit_bytes: int) -> Iterator[StepsDone]:
    """The newest reports of single steps, without joined ones and those that are cut off."""
    with suppress(OSError):
        for report in read_reports(path, tail_offset(path, limit_bytes)):
            if isinstance(report.event, StepsDone) and report.count == 1:
                yield report.event
