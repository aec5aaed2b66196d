"""Where each rank's time went while nobody has summed it up: from the reports that are kept."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from distrain.coordinator.report_file import begin_of_last, read
from distrain.events import StepsDone
from distrain.run_paths import RunPaths

OF_A_RANK_BYTES = 4 * 2**20
OF_ALL_BYTES = 256 * 2**20
"""What is read at most: the newest reports of each rank. One takes up to 50 kB."""


@dataclass(frozen=True)
class RankTimes:
    """Wall time by rank over some of the last steps.

    Attributes:
        first_step: Of the first report that was read.
        last_step: Of the last.
        seconds: Per rank, wall time by phase in the windows of all reports between.
    """

    first_step: int
    last_step: int
    seconds: tuple[Mapping[str, float], ...]


def recent_times(paths: RunPaths) -> RankTimes | None:
    """The times of the newest attempt that left reports; `None` without any that all ranks left."""
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
    limit_bytes = min(OF_A_RANK_BYTES, OF_ALL_BYTES // len(files))
    windows = [{event.step: event.seconds for event in _last(path, limit_bytes)} for path in files]
    steps = sorted(set.intersection(*map(set, windows)))  # ranks compare over the same steps
    if not steps:
        return None
    totals = tuple(_added(of_rank[step] for step in steps) for of_rank in windows)
    return RankTimes(steps[0], steps[-1], totals)


def _last(path: Path, limit_bytes: int) -> Iterator[StepsDone]:
    """The last reports of steps, but for joined ones; of what is cut off, none."""
    with suppress(OSError):
        for kept in read(path, begin_of_last(path, limit_bytes)):
            if isinstance(kept.event, StepsDone) and kept.count == 1:
                yield kept.event


def _added(windows: Iterator[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for window in windows:
        for phase, seconds in window.items():
            total[phase] = total.get(phase, 0.0) + seconds
    return total
