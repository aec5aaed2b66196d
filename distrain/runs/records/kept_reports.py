"""Reports of progress on disk, beside the logs.

A record is made in the scheduler and written by the command that polls it. Between the two, a
scheduler that is killed takes it along; but the checkpoint of that very step may be whole, and the
run would go on from it without the record. So each supervisor keeps its rank's reports, a rank has
no checkpoint completed before that, and from them the records can be made again (`replay_reports`).
When the job has succeeded they are removed.

A rank's file has a limit. When it is reached, neighbouring old reports become one that carries
their sums, until they take half of it (`joinable`); of two neighbouring validations, the later one
stays. The newest stay as they are. So records made from them may be coarser, but miss no row.
"""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

from distrain.errors import DistrainError
from distrain.jobs.events import EvaluationDone, StepsDone, TrainingStarted, to_json
from distrain.jobs.run_paths import RunPaths, of_all_ranks
from distrain.runs.records.merging import join_reports
from distrain.runs.records.report_file import pack, read_reports
from distrain.storage.background import BackgroundWriter, Inbox
from distrain.storage.outputs import whole_file

KEPT_KINDS = frozenset({TrainingStarted.kind, StepsDone.kind, EvaluationDone.kind})
_THINNED_KINDS = (StepsDone.kind, EvaluationDone.kind)

LIMIT_BYTES = 32 * 2**20
"""Of one rank and attempt: 40 minutes of a report a second, before the first are joined."""

NUM_RECENT = 64  # how many of the newest of each kind stay as they are, if they fit
WAITING_BYTES = 8 * 2**20  # what may wait for a filesystem that is slow, or hangs


@dataclass(frozen=True)
class KeptItem:
    """A report in the file, for `count` reports of its kind from number `first` on."""

    kind: str
    first: int
    count: int
    size_bytes: int


class ReportWriter:
    """A rank's reports in a file within a limit, made with the first report; never raises.

    `num_ranks` is the number of ranks that keep reports; 0: unknown.
    """

    def __init__(self, path: Path, num_ranks: int = 0, limit_bytes: int = LIMIT_BYTES):
        self.path = path
        self.num_lost = 0  # reports that could not be kept
        self.error = ""  # why the last of them could not
        self._num_ranks = num_ranks
        self._limit_bytes = limit_bytes
        self._file: BinaryIO | None = None
        self._items: list[KeptItem] = []
        self._size_bytes = 0
        self._next: dict[str, int] = {}

    def keep(self, event: Mapping[str, Any], line: bytes, number: int | None = None) -> None:
        """Write a report that follows `number` others of its kind; `None`: as many as came here."""
        kind = event.get("kind")
        if kind not in KEPT_KINDS:
            return
        first = self._next.get(kind, 0) if number is None else number
        self._next[kind] = first + 1
        try:
            num_ranks = self._num_ranks if kind == TrainingStarted.kind else 0
            self._append(kind, first, pack(line, first, num_ranks=num_ranks))
            if self._size_bytes > self._limit_bytes:
                self._thin()
        except (OSError, DistrainError) as error:  # training matters more
            self.num_lost += 1
            self.error = str(error)

    def sync(self) -> None:
        try:
            if self._file is not None:
                os.fsync(self._file.fileno())
        except OSError as error:
            self.error = str(error)

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None

    def _append(self, kind: str, first: int, data: bytes) -> None:
        if len(data) > self._limit_bytes // 2 or self._size_bytes > 2 * self._limit_bytes:
            raise OSError(f"the reports take more than {self._limit_bytes:,} bytes")
        if self._file is None:
            self._file = self.path.open("ab", buffering=0)
        try:
            rest = data
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            with suppress(OSError):  # or nothing behind it could be read
                self._file.truncate(self._size_bytes)
            raise
        self._items.append(KeptItem(kind, first, 1, len(data)))
        self._size_bytes += len(data)

    def _thin(self) -> None:
        """Join old reports until all take half of the limit, or none is left to join."""
        num_recent = NUM_RECENT
        while self._size_bytes > self._limit_bytes // 2:
            pairs: dict[int, int] = {}
            for kind in _THINNED_KINDS:
                pairs |= joinable(self._items, kind, num_recent)
            if pairs:
                self._rewrite(pairs)
            elif num_recent > 1:
                num_recent //= 4
            else:
                return

    def _rewrite(self, pairs: Mapping[int, int]) -> None:
        """Write the file anew, with pairs joined at the place of the later one."""
        earlier_of = {later: earlier for earlier, later in pairs.items()}
        held: dict[int, StepsDone] = {}
        items: list[KeptItem] = []
        with whole_file(self.path) as partial, partial.open("wb") as file:
            num_read = 0
            for place, kept in enumerate(read_reports(self.path)):
                item, event, num_read = self._items[place], kept.event, place + 1
                if place in pairs:
                    if isinstance(event, StepsDone):
                        held[place] = event
                    continue
                first, count = item.first, item.count
                if place in earlier_of:
                    first, count = self._items[earlier_of[place]].first, 2 * count
                    if isinstance(event, StepsDone):
                        event = join_reports([held.pop(earlier_of[place]), event])
                data = pack(json.dumps(to_json(event)).encode(), first, count, kept.num_ranks)
                file.write(data)
                items.append(KeptItem(item.kind, first, count, len(data)))
            if num_read < len(self._items):  # leave the file as it is
                raise OSError("some of the reports that were kept cannot be read any more")
        self.close()  # its name is another file's now
        self._items = items
        self._size_bytes = sum(item.size_bytes for item in items)


def joinable(items: Sequence[KeptItem], kind: str, num_recent: int) -> dict[int, int]:
    """Old pairs of neighbours of a kind to be joined next: those that stand for the fewest reports.

    Reports are numbered from 0. One that stands for several stands for 2, 4, 8, ... of them, the
    first of which has a number that this divides. So whatever two ranks have joined, the ends of
    the coarser reports are ends of the finer ones, too, and the ranks' reports can be merged there.

    >>> items = [KeptItem("steps_done", n, 1, 9) for n in range(6)]
    >>> joinable(items, "steps_done", num_recent=2)
    {0: 1, 2: 3}
    """
    places = [place for place, item in enumerate(items) if item.kind == kind]
    old = places[: max(0, len(places) - num_recent)]
    pairs: dict[int, dict[int, int]] = {}
    for one, other in pairwise(old):
        a, b = items[one], items[other]
        if a.count == b.count and a.first % (2 * a.count) == 0 and b.first == a.first + a.count:
            pairs.setdefault(a.count, {})[one] = other
    return pairs[min(pairs)] if pairs else {}


class ReportQueue:
    """A rank's reports on their way to their writer; of too many, the oldest is not kept."""

    def __init__(self, reports: ReportWriter, thread: BackgroundWriter):
        self._reports = reports
        self._thread = thread
        self._inbox = Inbox[tuple[dict[str, Any], bytes, int]](thread, WAITING_BYTES, self._take)
        self._numbers: dict[str, int] = {}
        self._noted = 0

    def keep(self, event: Mapping[str, Any], line: bytes) -> None:
        kind = str(event.get("kind"))
        if kind in KEPT_KINDS:
            number = self._numbers.get(kind, 0)
            self._numbers[kind] = number + 1
            self._inbox.put(({"kind": kind}, line, number), len(line))

    def new_trouble(self) -> str:
        """A text about reports that were not kept: at the first, and when doubled; else ""."""
        lost = self._inbox.left_out_items + self._reports.num_lost
        if lost < max(1, 2 * self._noted):
            return ""
        self._noted = lost
        why = self._reports.error or "the filesystem does not take them in time"
        what = "1 report of progress is" if lost == 1 else f"{lost} reports of progress are"
        return (
            f"{what} not kept in {self._reports.path}: {why}. Should the "
            "scheduler be lost before a command has recorded them, their records are lost, too"
        )

    async def kept(self, within_s: float) -> bool:
        """Wait until all earlier reports are kept; whether they were in time."""
        self._thread.do(self._reports.sync)
        return await self._thread.done(within_s)

    def close(self) -> None:
        self._thread.do(self._reports.close)

    def _take(self, _: int, __: int, item: tuple[dict[str, Any], bytes, int]) -> None:
        self._reports.keep(*item)


def kept_files(paths: RunPaths, attempt: int) -> list[Path]:
    """The files of an attempt's reports, in rank order; none of linked folders."""
    # What is listed here may be removed: no file of another folder.
    if paths.logs.is_symlink() or paths.reports(0, attempt).parent.is_symlink():
        return []
    return list(of_all_ranks(paths.reports(0, attempt)).values())


def remove_reports(paths: RunPaths) -> None:
    for attempt in paths.attempts():
        for path in kept_files(paths, attempt):
            with suppress(OSError):
                path.unlink()
