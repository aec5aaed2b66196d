"""All that a run directory tells, whether its run succeeded, failed, broke off, or goes on."""

import fcntl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distrain.coordinator.view import Record
from distrain.report.rank_times import RankTimes, recent_times
from distrain.report.run_file import RunFile, read_records, read_run, read_summary
from distrain.report.standing import read_standing
from distrain.run_paths import RunPaths
from distrain.spec import JobSpec

RUNNING, BROKEN_OFF = "running", "broken off"


@dataclass(frozen=True)
class RunData:
    """One run.

    Attributes:
        root: Its directory.
        run: Whose it is.
        spec: The job.
        records: Those that count, in order.
        summary: What `summary.json` holds; while the run has not ended, `progress.json`, or what
            an earlier command left; `{}` without any.
        state: The summary's; `running` while a command is at it; `broken off` if none is and it
            left no summary.
        recent: Where each rank's time went of late, if no summary tells.
    """

    root: Path
    run: RunFile
    spec: JobSpec
    records: tuple[Record, ...]
    summary: Mapping[str, Any]
    state: str
    recent: RankTimes | None = None

    @property
    def ended(self) -> bool:
        """Whether it came to an end that was written down."""
        return self.state not in (RUNNING, BROKEN_OFF)

    @property
    def name(self) -> str:
        """What people know it by."""
        return self.run.job_id

    @property
    def train(self) -> list[Record]:
        """Records of training rows."""
        return [record for record in self.records if record.split == "train"]

    @property
    def valid(self) -> list[Record]:
        """Records of validation rows."""
        return [record for record in self.records if record.split == "valid"]

    @property
    def restarts(self) -> list[Mapping[str, Any]]:
        """Attempts that ended early and were followed by others."""
        return list(self.summary.get("restarts", ()))

    def checkpoint_steps(self) -> list[int]:
        """Steps up to which a checkpoint was begun: those of the reports that tell of time for it.

        Of the last checkpoint the step itself.
        """
        steps = {r.step for r in self.train if (r.seconds or {}).get("checkpoint", 0.0) > 0}
        last = (self.summary.get("checkpoints") or {}).get("step")
        return sorted(steps | ({last} if last else set()))

    def rank_seconds(self) -> list[Mapping[str, float]]:
        """Each rank's wall time by phase: of the whole training if it is summed up, else recent."""
        return list(self.summary.get("seconds") or (self.recent.seconds if self.recent else ()))

    def mean_seconds(self) -> Mapping[str, float]:
        """The mean rank's wall time by phase, over all records."""
        return _added_up(self.train)

    def problem(self) -> str:
        """Why it ended badly, in words; "" if it did not."""
        reason = self.summary.get("reason")
        if not reason or not self.ended:
            return ""
        return f"{reason}: {self.summary.get('message') or ''}".strip()


def read_run_data(root: Path) -> RunData:
    """Read a run directory.

    Raises:
        InputError: It holds no run, or one that cannot be read.
        SpecError: Its spec cannot be used.
    """
    paths = RunPaths(root)
    run, spec = read_run(root)
    at_work, standing = _is_at_work(paths), read_standing(paths)
    summary = standing or read_summary(paths) or {}
    state = str(summary.get("state", BROKEN_OFF))
    if at_work or standing:
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


def _added_up(records: list[Record]) -> dict[str, float]:
    total: dict[str, float] = {}
    for record in records:
        for phase, seconds in (record.seconds or {}).items():
            total[phase] = total.get(phase, 0.0) + seconds
    return total
