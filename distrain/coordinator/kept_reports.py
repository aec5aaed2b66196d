"""Reports of progress on disk, beside the logs.

A record is made in the scheduler and written by the command that polls it. Between the two, a
scheduler that is killed takes it along; but the checkpoint of that very step may be whole, and the
run would go on from it without the record. So each supervisor keeps its rank's reports, and from
them the records can be made again (`replay`). When the job has succeeded they are removed.

A rank's file has a limit. When it is reached, neighbouring old reports become one that carries
their sums, until they take half of it (`thinning`); of two neighbouring validations, the later one
stays. The newest stay as they are. So records made from them may be coarser, but miss no row.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from distrain.coordinator.background import BackgroundWriter, Inbox
from distrain.coordinator.merging import join_windows
from distrain.coordinator.report_file import line_of, pack, read
from distrain.coordinator.thinning import Item, joinable
from distrain.errors import DistrainError
from distrain.events import EvaluationDone, StepsDone, TrainingStarted, to_json
from distrain.run_paths import RunPaths
from distrain.storage import whole_file

KEPT_KINDS = frozenset({TrainingStarted.kind, StepsDone.kind, EvaluationDone.kind})
_THINNED_KINDS = (StepsDone.kind, EvaluationDone.kind)

LIMIT_BYTES = 32 * 2**20
"""Of one rank and attempt: 40 minutes of a report a second, before the first are joined."""

NUM_RECENT = 64
"""How many of the newest of each kind stay as they are, if they fit."""

WAITING_BYTES = 8 * 2**20
"""What may wait for a filesystem that is slow, or hangs."""


class ReportKeeper:
    """Keeps a rank's reports in a file within a limit; never raises.

    Args:
        path: The file, made with the first report.
        num_ranks: How many ranks keep theirs; 0 if that is not known.
        limit_bytes: What the file may take.

    Attributes:
        num_lost: Reports that could not be kept.
        error: Why the last of them could not.
    """

    def __init__(self, path: Path, num_ranks: int = 0, limit_bytes: int = LIMIT_BYTES):
        self.path = path
        self.num_lost = 0
        self.error = ""
        self._num_ranks = num_ranks
        self._limit_bytes = limit_bytes
        self._file: BinaryIO | None = None
        self._items: list[Item] = []
        self._size_bytes = 0
        self._next: dict[str, int] = {}

    def keep(self, event: Mapping[str, Any], line: bytes, number: int | None = None) -> None:
        """Write down a report.

        Args:
            event: As JSON values.
            line: The same as the rank wrote it.
            number: How many of its kind the rank had told before; `None`: as many as came here.
        """
        kind = event.get("kind")
        if kind not in KEPT_KINDS:
            return
        first = self._next.get(kind, 0) if number is None else number
        self._next[kind] = first + 1
        try:
            self._append(kind, first, pack(line, first, num_ranks=self._ranks_of(kind)))
            if self._size_bytes > self._limit_bytes:
                self._thin()
        except (OSError, DistrainError) as error:  # training matters more
            self.num_lost += 1
            self.error = str(error)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None

    def _ranks_of(self, kind: str) -> int:
        return self._num_ranks if kind == TrainingStarted.kind else 0

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
        self._items.append(Item(kind, first, 1, len(data)))
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
        items: list[Item] = []
        with whole_file(self.path) as partial, partial.open("wb") as file:
            num_read = 0
            for place, kept in enumerate(read(self.path)):
                item, event, num_read = self._items[place], kept.event, place + 1
                if place in pairs:
                    if isinstance(event, StepsDone):
                        held[place] = event
                    continue
                first, count = item.first, item.count
                if place in earlier_of:
                    first, count = self._items[earlier_of[place]].first, 2 * count
                    if isinstance(event, StepsDone):
                        event = join_windows([held.pop(earlier_of[place]), event])
                data = pack(line_of(to_json(event)), first, count, kept.num_ranks)
                file.write(data)
                items.append(Item(item.kind, first, count, len(data)))
            if num_read < len(self._items):  # leave the file as it is
                raise OSError("some of the reports that were kept cannot be read any more")
        self.close()  # its name is another file's now
        self._items = items
        self._size_bytes = sum(item.size_bytes for item in items)


class KeptAside:
    """A rank's reports on their way to its keeper, which works in a thread.

    Args:
        keeper: Writes them.
        writer: The thread.
        waiting_bytes: What may wait, `WAITING_BYTES` by default; then the oldest of it is not kept.
    """

    def __init__(
        self, keeper: ReportKeeper, writer: BackgroundWriter, waiting_bytes: int | None = None
    ):
        self._keeper = keeper
        self._writer = writer
        limit_bytes = WAITING_BYTES if waiting_bytes is None else waiting_bytes
        self._inbox = Inbox[tuple[dict[str, Any], bytes, int]](writer, limit_bytes, self._take)
        self._numbers: dict[str, int] = {}
        self._told = 0

    def keep(self, event: Mapping[str, Any], line: bytes) -> None:
        """Have a report written down; never waits."""
        kind = str(event.get("kind"))
        if kind in KEPT_KINDS:
            number = self._numbers.get(kind, 0)
            self._numbers[kind] = number + 1
            self._inbox.put(({"kind": kind}, line, number), len(line))

    def new_trouble(self) -> str:
        """What should be told now of reports that were not kept: at the first, and when doubled."""
        lost = self._inbox.left_out_items + self._keeper.num_lost
        if lost < max(1, 2 * self._told):
            return ""
        self._told = lost
        why = self._keeper.error or "the filesystem does not take them in time"
        what = "1 report of progress is" if lost == 1 else f"{lost} reports of progress are"
        return (
            f"{what} not kept in {self._keeper.path}: {why}. Should the "
            "scheduler be lost before a command has recorded them, their records are lost, too"
        )

    def close(self) -> None:
        """Have the file let go of when all is written."""
        self._writer.do(self._keeper.close)

    def _take(self, _: int, __: int, item: tuple[dict[str, Any], bytes, int]) -> None:
        self._keeper.keep(*item)


def kept_files(paths: RunPaths, attempt: int) -> list[Path]:
    """The files of an attempt's kept reports, by rank."""
    # By number: states are merged in rank order.
    found = paths.reports(0, attempt).parent.glob("rank-*.reports")
    return sorted(found, key=lambda path: (len(path.name), path.name))


def forget_reports(paths: RunPaths) -> None:
    """Remove all of them: the records are written."""
    for attempt in paths.attempts():
        for path in kept_files(paths, attempt):
            with suppress(OSError):
                path.unlink()
