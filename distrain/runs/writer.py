"""The one writer of run directories: records, status and summary, wherever they lie.

Commands use it through `RunRecorder`, services through `ServedRun`. The `RunPlace` decides whether
this process may write, and where the files go.
"""

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from pydantic_core import to_json

from distrain.jobs.view import AttemptStarted, JobView, Record
from distrain.runs.history import History
from distrain.runs.places import RunPlace
from distrain.runs.run_file import ServiceMark
from distrain.runs.summary import RunStatus, Summary, summarise
from distrain.runs.validation import write_json
from distrain.storage.outputs import no_pipe, read_file, translated_errors, whole_file


class RunWriter:
    """Writes one run directory; one thread at a time.

    `metrics.jsonl` grows line by line, each written in one piece. It is written anew when records
    in it no longer count, or when it is not as this process left it. The other files appear whole.
    `first_attempt` is the first one of the job's current submission to a service.
    """

    most_bytes = math.inf  # of `metrics.jsonl`, to be read

    def __init__(self, place: RunPlace, first_attempt: int | None = None):
        self.place = place
        self.paths = place.paths
        self.first_attempt = first_attempt
        self._end: _End | None = None  # of `metrics.jsonl`; `None`: it must be read
        self._next: tuple[int, dict[str, int]] = (0, {})
        self._before: Mapping[str, Any] | None = None
        self._status: RunStatus | None = None

    def _merged(self, view: JobView) -> History:
        """The records that count, those of the view among them."""
        raise NotImplementedError

    def _earlier(self) -> Mapping[str, Any]:
        raise NotImplementedError

    def _reset(self) -> None:
        self._end = self._before = self._status = None

    @contextmanager
    def _written(self, mark: ServiceMark | None, *, whole: bool = False) -> Iterator[bool]:
        """Publish what the block writes; yields whether the files were fetched anew."""
        try:
            if fetched := self.place.fetch(mark):
                self._reset()
            yield fetched
            self.place.publish(mark, whole=whole)
        except BaseException:
            self.place.forget()
            raise

    def _check(self, mark: ServiceMark | None) -> None:
        try:
            changed = self.place.check(mark)
        except BaseException:
            self._reset()
            raise
        if changed:
            self._reset()

    def _record(self, view: JobView, mark: ServiceMark | None) -> None:
        if self._has_all_of(view, mark):
            return
        fresh = self._fresh(view) if mark == self.place.mark and not view.missed else None
        if not fresh or not self._end or not self._end.inode:
            # Otherwise `_append` checks, as near to its write as can be.
            self._check(mark)
            fresh = None if view.missed else self._fresh(view)
        if fresh is None or not self._append(fresh, mark):
            self._write_merged(view, mark)
        if not view.state.is_final:
            self._write_status(view)

    def _has_all_of(self, view: JobView, mark: ServiceMark | None) -> bool:
        """Whether a view has nothing new, as when one rank of many has reported."""
        if view.progress or view.missed or view.state.is_final:
            return False
        if mark != self.place.mark or self._end is None or self._status is None:
            return False
        return RunStatus.of(view, self._earlier(), self.first_attempt) == self._status

    def _fresh(self, view: JobView) -> list[Record] | None:
        """The records that follow those of the file; `None` if they must be merged with them."""
        if self._end is None:
            return None
        attempt, steps = self._end.attempt, dict(self._end.steps)
        fresh = []
        for entry in view.progress:
            if isinstance(entry, AttemptStarted):
                if entry.attempt <= attempt or any(step > entry.step for step in steps.values()):
                    return None
                attempt = entry.attempt
            elif isinstance(entry, Record):
                last = steps.get(entry.split, -1)
                if entry.step == last:
                    continue
                if entry.step < last or entry.attempt != attempt:
                    return None
                steps[entry.split] = entry.step
                fresh.append(entry)
        self._next = attempt, steps
        return fresh

    def _append(self, fresh: list[Record], mark: ServiceMark | None) -> bool:
        """Append records; `False` if the file is not as it was left."""
        assert self._end is not None
        attempt, steps = self._next
        if not fresh:
            self._end = replace(self._end, attempt=attempt, steps=steps)
            return True
        path = self.paths.metrics
        with translated_errors(path), ExitStack() as stack:
            try:
                file = stack.enter_context(open(path, "ab", buffering=0, opener=no_pipe))
            except FileNotFoundError:
                return False  # nor is the directory there, as the next check will say
            self._check(mark)
            if self._end is None or not self._end.is_that_of(file.fileno()):
                return False
            append(file, lines_of(fresh))
            self._end = _End.of(file.fileno(), attempt, steps)
        return True

    def _write_merged(self, view: JobView, mark: ServiceMark | None) -> None:
        """Write `metrics.jsonl` anew if it differs from the records that count."""
        history, path = self._merged(view), self.paths.metrics
        with translated_errors(path):
            old = read_file(path, self.most_bytes) if path.exists() else b""
        lines = lines_of(history.records)
        self._check(mark)
        if lines != old:
            with whole_file(path) as partial:
                partial.write_bytes(lines)
        steps: dict[str, int] = {}
        for record in history.records:
            steps[record.split] = max(record.step, steps.get(record.split, -1))
        attempts = [*history.resumed, *(record.attempt for record in history.records)]
        self._end = _End.of(path, max(attempts, default=0), steps)

    def _write_status(self, view: JobView) -> None:
        status = RunStatus.of(view, self._earlier(), self.first_attempt)
        if status != self._status:
            status.write(self.paths)
            self._status = status

    def _write_summary(
        self, view: JobView, records: Sequence[Record], mark: ServiceMark | None
    ) -> Summary:
        """Write the summary, and records that are not written yet; the status goes."""
        summary = summarise(view, records, self._earlier())
        self._check(mark)
        write_json(self.paths.summary, summary.to_json())
        if self._end is None and records:
            self._write_merged(view, mark)
        with translated_errors(self.paths.progress):
            self.paths.progress.unlink(missing_ok=True)
        return summary


@dataclass(frozen=True)
class _End:
    """The end of `metrics.jsonl` as this process left it."""

    inode: int  # the file; 0: there is none
    size_bytes: int
    attempt: int  # the last attempt
    steps: Mapping[str, int]  # by split, the last step

    @classmethod
    def of(cls, file: int | Path, attempt: int, steps: Mapping[str, int]) -> "_End":
        try:
            status = os.stat(file)
        except FileNotFoundError:  # there are no records yet
            return cls(0, 0, attempt, steps)
        return cls(status.st_ino, status.st_size, attempt, steps)

    def is_that_of(self, file: int) -> bool:
        status = os.fstat(file)
        same = status.st_ino == self.inode or not self.size_bytes
        return same and status.st_size == self.size_bytes


class _RawFile(Protocol):
    def tell(self) -> int: ...

    def write(self, data: bytes, /) -> int: ...

    def truncate(self, size: int, /) -> int: ...


def lines_of(records: Iterable[Record]) -> bytes:
    # Not `asdict`: its copies took longer than the text; and four times as fast as json.
    return b"".join(to_json(one.to_json(), inf_nan_mode="constants") + b"\n" for one in records)


def append(file: _RawFile, data: bytes) -> None:
    """Append all of `data` to an unbuffered file, or nothing."""
    size_bytes = file.tell()
    try:
        while data:
            data = data[file.write(data) :]
    except OSError:
        file.truncate(size_bytes)  # a full disk takes half a line
        raise
