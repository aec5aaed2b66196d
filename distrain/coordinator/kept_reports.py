"""Reports of progress on disk, beside the logs.

A record is made in the scheduler and written by the command that polls it. Between the two, a
scheduler that is killed takes it along; but the checkpoint of that very step may be whole, and the
run would go on from it without the record. So each supervisor keeps its rank's reports, and from
them the records can be made again. When the job has succeeded they are removed.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from distrain.coordinator.collector import Collector
from distrain.coordinator.view import Entry
from distrain.events import EvaluationDone, Event, StepsDone, TrainingStarted, from_json
from distrain.run_paths import RunPaths

KEPT_KINDS = frozenset({TrainingStarted.kind, StepsDone.kind, EvaluationDone.kind})

LIMIT_BYTES = 2**30
"""Of one rank and attempt; what comes later is not kept."""


class ReportKeeper:
    """Appends a rank's reports to a file; never raises.

    Args:
        path: The file, made with the first report.
    """

    def __init__(self, path: Path):
        self._path = path
        self._file: BinaryIO | None = None
        self._left_bytes = LIMIT_BYTES

    def keep(self, event: Mapping[str, Any], line: bytes) -> None:
        """Write down a report, before anybody else hears of it.

        Args:
            event: As JSON values.
            line: The same as the rank wrote it, with its end of line.
        """
        if event.get("kind") not in KEPT_KINDS or len(line) > self._left_bytes:
            return
        self._left_bytes -= len(line)
        with suppress(OSError):  # training matters more
            if self._file is None:
                self._file = self._path.open("ab", buffering=0)
            self._file.write(line)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()


def replay(paths: RunPaths) -> Iterator[list[Entry]]:
    """The progress of each attempt that left reports, the oldest first."""
    for attempt in paths.attempts():
        ranks = [list(_read(path)) for path in _kept(paths, attempt)]
        if not ranks:
            continue
        collector = Collector()
        collector.begin_attempt(attempt, len(ranks))
        for events in ranks:
            for event in events:
                collector.add(event)
        yield collector.progress


def forget_reports(paths: RunPaths) -> None:
    """Remove all of them: the records are written."""
    for attempt in paths.attempts():
        for path in _kept(paths, attempt):
            with suppress(OSError):
                path.unlink()


def _kept(paths: RunPaths, attempt: int) -> list[Path]:
    # By number: states are merged in rank order.
    found = paths.reports(0, attempt).parent.glob("rank-*.reports")
    return sorted(found, key=lambda path: (len(path.name), path.name))


def _read(path: Path) -> Iterator[Event]:
    """Events up to the first that cannot be read: a worker that was killed leaves half a line."""
    with suppress(OSError, ValueError), path.open("rb") as file:
        for line in file:
            yield from_json(json.loads(line))
