"""The run directory of one job of a service in an object store."""

import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from distrain.errors import OutputError
from distrain.jobs import JobState, JobView
from distrain.run_paths import RunPaths
from distrain.runs.run_file import ServiceMark
from distrain.runs.served import NotOurs, ServedRun, told_attempts
from distrain.runs.stored.folder import RECORDS, RecordedReader, StoredFolder
from distrain.runs.stored.publishing import Foreign, Publisher, Superseded, store_errors
from distrain.runs.stored.record import RECORD, TAIL_BYTES, RecordedFile, RunRecord, Segment
from distrain.runs.summary import Summary
from distrain.spec import JobSpec
from distrain.storage import translated_errors

_SEGMENT_BYTES = 16 * 2**20


class StoredRun:
    """Writes one run directory in an object store, as `ServedRun` one on a filesystem.

    `ServedRun` works on a copy in a folder of this process; what it has changed is published by one
    conditional write. After any failure the copy is made anew from what the store has.

    Args:
        url: The run directory.
        copy: A folder for the copy, of this run and process alone.
    """

    def __init__(self, url: str, copy: Path, job_id: str, first_attempt: int = 1):
        self.job_id, self.first_attempt = job_id, first_attempt
        self._url, self._copy = url, copy
        self._paths = RunPaths(copy)
        with store_errors(url):
            self._folder = StoredFolder(url)
        self._objects = self._folder.objects
        self._publisher = Publisher(self._objects, job_id)
        self._served = ServedRun(copy, job_id, first_attempt)
        self._mark: ServiceMark | None = None  # under which the copy is what the store has
        self._metrics_inode = 0

    def begin(self, spec: JobSpec, mark: ServiceMark) -> None:
        """As `ServedRun.begin`."""
        with self._published(mark):
            self._served.begin(spec, mark)

    def add(self, view: JobView, mark: ServiceMark) -> None:
        """As `ServedRun.add`: all of the view is recorded, or nothing."""
        with self._published(mark):
            self._check_begun()
            if not view.state.is_final and self._served.is_finished():
                return  # by another holder of the lease: this view is late
            self._fetch_reports(view)
            self._served.add(view, mark)

    def finish(self, view: JobView, mark: ServiceMark) -> Summary:
        """As `ServedRun.finish`; the records become one object."""
        with self._published(mark, whole=True):
            self._check_begun()
            self._fetch_reports(view)
            summary = self._served.finish(view, mark)
        if view.state is JobState.SUCCEEDED:
            with suppress(OSError):  # they are of no more use, but do no harm
                for name in self._reports():
                    self._objects.delete(name)
        return summary

    def is_at_work(self, mark: ServiceMark) -> bool:
        """As `ServedRun.is_at_work`; `add` looks at the copy itself."""
        return mark == self._mark

    def is_finished(self) -> bool:
        """As `ServedRun.is_finished`; looks at the store unless the copy is known to be true."""
        self._look()
        return self._served.is_finished()

    def has_begun(self) -> bool:
        """Whether there is a run."""
        self._look()
        return self._paths.run.exists()

    def is_drawn(self) -> bool:
        """As `ServedRun.is_drawn`, by the store's clock: its end was the last write of a record."""
        with store_errors(self._url):
            try:
                drawn_s = self._objects.find(self._paths.report.name).modified_s
                return drawn_s >= self._objects.find(RECORD).modified_s
            except FileNotFoundError:
                return False

    def forget(self) -> None:
        """Take nothing for granted: the store is read before the next write."""
        self._mark = None
        self._publisher.record = None
        shutil.rmtree(self._copy, ignore_errors=True)

    def last_attempt(self) -> int:
        """The highest attempt that left anything; 0: none did."""
        self._look()
        with store_errors(self._url):
            attempts = self._folder.attempts()
        return max(0, told_attempts(self._paths), *attempts)

    # The copy.

    def _look(self) -> None:
        if self._mark is None:
            with store_errors(self._url):
                self._copy_from(self._publisher.look(), without=self._paths.metrics.name)

    @contextmanager
    def _published(self, mark: ServiceMark, *, whole: bool = False) -> Iterator[None]:
        try:
            with store_errors(self._url):
                if mark != self._mark:
                    self._copy_from(self._publisher.claim(mark))
                    self._mark = mark
            yield
            with store_errors(self._url):
                self._publish(mark, whole=whole)
        except Superseded as error:
            self.forget()
            hint = "This process writes nothing more there."
            raise NotOurs(str(error), where=self._where, hint=hint) from None
        except Foreign as error:
            self.forget()
            hint = "Remove the directory, or correct the cluster's run_root."
            raise OutputError(str(error), where=self._where, hint=hint) from None
        except BaseException:
            self.forget()
            raise

    @property
    def _where(self) -> dict[str, object]:
        return {"url": self._url, "job": self.job_id}

    def _check_begun(self) -> None:
        if not self._paths.run.exists():
            raise OutputError(
                f"the run directory cannot be used: there is no {self._paths.run.name}",
                where=self._where,
                hint="Was it removed while its job ran?",
            )

    def _copy_from(self, record: RunRecord | None, without: str = "") -> None:
        shutil.rmtree(self._copy, ignore_errors=True)
        with translated_errors(self._copy):
            self._copy.mkdir(parents=True)
            for name, file in (record.files if record is not None else {}).items():
                if name != without:
                    reader = RecordedReader(self._folder, name, file)
                    (self._copy / name).write_bytes(reader.pread(file.size_bytes, 0))
        self._metrics_inode = _inode(self._paths.metrics)
        self._served = ServedRun(self._copy, self.job_id, self.first_attempt)

    def _reports(self) -> list[str]:
        suffix = self._paths.reports(0, 1).suffix
        return [f.name for f in self._objects.find_all("logs/") if f.name.endswith(suffix)]

    def _fetch_reports(self, view: JobView) -> None:
        """Bring the ranks' kept reports here, if records are made again from them."""
        if not view.missed and not self._served.has_unrecorded_attempts():
            return
        with store_errors(self._url):
            for name in self._reports():
                path = self._copy / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileNotFoundError):
                    path.write_bytes(self._objects.read(name)[0])

    # The store.

    def _publish(self, mark: ServiceMark, *, whole: bool) -> None:
        before = self._publisher.record
        known = dict(before.files) if before is not None else {}
        files = {}
        for path in (
            self._paths.run,
            self._paths.spec,
            self._paths.progress,
            self._paths.summary,
        ):
            if path.exists():
                found = RecordedFile(path.read_text(), time.time())
                old = known.get(path.name)
                files[path.name] = old if old and found.says_the_same(old) else found
        metrics = self._metrics(mark, known.get(self._paths.metrics.name), whole=whole)
        if metrics is not None:
            files[self._paths.metrics.name] = metrics
        if files == known and before is not None and before.service == mark:
            return
        self._publisher.publish(files, mark)
        self._remove_replaced(known.get(self._paths.metrics.name), metrics)

    def _metrics(
        self, mark: ServiceMark, known: RecordedFile | None, *, whole: bool
    ) -> RecordedFile | None:
        path = self._paths.metrics
        inode = _inode(path)
        if not inode:
            return None
        size_bytes = path.stat().st_size
        grew = inode == self._metrics_inode and known is not None
        self._metrics_inode = inode
        is_whole = known is not None and len(known.segments) + bool(known.text) <= 1
        same = grew and known is not None and size_bytes == known.size_bytes
        if same and (is_whole or not whole):
            return known
        line = 1 if known is None else known.line + (not grew)
        segments = known.segments if grew and known is not None and not whole else ()
        kept_bytes = sum(segment.size_bytes for segment in segments)
        with path.open("rb") as file:
            file.seek(kept_bytes)
            tail = file.read()
        if len(tail) <= TAIL_BYTES and not (whole and size_bytes > TAIL_BYTES):
            return RecordedFile(tail.decode(), time.time(), segments, line)
        made = tuple(
            self._segment(tail[at : at + _SEGMENT_BYTES], mark)
            for at in range(0, len(tail), _SEGMENT_BYTES)
        )
        return RecordedFile("", time.time(), segments + made, line)

    def _segment(self, data: bytes, mark: ServiceMark) -> Segment:
        name = f"{RECORDS}{mark.generation:08}-{uuid.uuid4().hex}"
        self._objects.put(name, data)  # nobody else writes, or knows, that name
        return Segment(name, len(data))

    def _remove_replaced(self, old: RecordedFile | None, new: RecordedFile | None) -> None:
        kept = set(new.segments) if new is not None else set()
        with suppress(OSError):
            for segment in old.segments if old is not None else ():
                if segment not in kept:
                    self._objects.delete(segment.name)


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0
