"""The copy of a run directory in an object store that a service writes, and its publication.

`record.json` is written under a lease's generation: each write replaces the one that was read.
"""

import errno
import shutil
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from distrain.runs.places import LeasedFolder
from distrain.runs.run_file import ServiceMark
from distrain.runs.stored.folder import (
    RECORD,
    RECORDS,
    TAIL_BYTES,
    RecordedFile,
    RecordedReader,
    RecordSegment,
    RunRecord,
    StoredFolder,
    loads,
    store_errors,
)
from distrain.storage.objects import Changed
from distrain.storage.outputs import translated_errors

_SEGMENT_BYTES = 16 * 2**20
_TRIES = 5


class StoredCopy(LeasedFolder):
    """A run directory in an object store, with a copy in a folder of this run and process.

    What was changed in the copy is published by one conditional write. After any failure the copy
    is made anew from what the store has.
    """

    def __init__(self, url: str, copy: Path, job_id: str):
        super().__init__(copy, job_id)
        self._url, self._copy = url, copy
        with store_errors(url):
            self._folder = StoredFolder(url)
        self.objects = self._folder.objects
        # As it was last read or written; `None`: there is none, or it was not read.
        self._record: RunRecord | None = None
        self._version = ""
        self._fetched: ServiceMark | None = None  # under which the copy is what the store has
        self._metrics_inode = 0

    def fetch(self, mark: ServiceMark | None) -> bool:
        assert mark is not None
        if mark == self._fetched:
            return False
        with store_errors(self._url):
            self._copy_from(self._claim(mark))
        self._fetched = mark
        return True

    def check(self, mark: ServiceMark | None) -> bool:
        if not self.paths.run.exists():
            raise self.no_run(f"there is no {self.paths.run.name}")
        return super().check(mark)

    def publish(self, mark: ServiceMark | None, *, whole: bool) -> None:
        assert mark is not None
        with store_errors(self._url):
            self._publish(mark, whole=whole)

    def look(self) -> None:
        if self._fetched is None:
            with store_errors(self._url):
                self._copy_from(self._read_record(), without=self.paths.metrics.name)

    def forget(self) -> None:
        super().forget()
        self._fetched = None
        self._record = None
        shutil.rmtree(self._copy, ignore_errors=True)

    def attempts(self) -> tuple[int, ...]:
        with store_errors(self._url):
            return self._folder.attempts()

    def bring_reports(self) -> None:
        with store_errors(self._url):
            for name in self._reports():
                path = self._copy / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileNotFoundError):
                    path.write_bytes(self.objects.read(name)[0])

    def remove_reports(self) -> None:
        super().remove_reports()
        with suppress(OSError):  # they are of no more use, but do no harm
            for name in self._reports():
                self.objects.delete(name)

    def is_drawn(self) -> bool:
        # By the store's clock: the run's end was the last write of a record.
        with store_errors(self._url):
            try:
                drawn_s = self.objects.find(self.paths.report.name).modified_s
                return drawn_s >= self.objects.find(RECORD).modified_s
            except FileNotFoundError:
                return False

    def _where(self) -> dict[str, object]:
        return {"url": self._url, "job": self.job_id}

    def _copy_from(self, record: RunRecord | None, without: str = "") -> None:
        shutil.rmtree(self._copy, ignore_errors=True)
        with translated_errors(self._copy):
            self._copy.mkdir(parents=True)
            for name, file in (record.files if record is not None else {}).items():
                if name != without:
                    reader = RecordedReader(self._folder, name, file)
                    (self._copy / name).write_bytes(reader.pread(file.size_bytes, 0))
        self._metrics_inode = _inode(self.paths.metrics)
        self._seen = ()

    def _reports(self) -> list[str]:
        suffix = self.paths.reports(0, 1).suffix
        return [f.name for f in self.objects.find_all("logs/") if f.name.endswith(suffix)]

    def _publish(self, mark: ServiceMark, *, whole: bool) -> None:
        before = self._record
        published = dict(before.files) if before is not None else {}
        files = {}
        for path in (self.paths.run, self.paths.spec, self.paths.progress, self.paths.summary):
            if path.exists():
                now = RecordedFile(path.read_text(), time.time())
                old = published.get(path.name)
                files[path.name] = old if old and now.says_the_same(old) else now
        metrics = self._metrics(mark, published.get(self.paths.metrics.name), whole=whole)
        if metrics is not None:
            files[self.paths.metrics.name] = metrics
        if files == published and before is not None and before.service == mark:
            return
        self._publish_files(files, mark)
        self._remove_replaced(published.get(self.paths.metrics.name), metrics)

    def _read_record(self) -> RunRecord | None:
        try:
            data, self._version = self.objects.read(RECORD)
        except FileNotFoundError:
            self._record, self._version = None, ""
        else:
            self._record = loads(data, self.objects.url)
        return self._record

    def _claim(self, mark: ServiceMark) -> RunRecord | None:
        """Write the generation, if there is a record: no earlier one can write any more."""
        for _ in range(_TRIES):
            record = self._read_record()
            if record is None:
                return None
            self._check_record(record, mark)
            if record.service == mark:
                return record
            try:
                return self._write_record(replace(record, service=mark))
            except Changed:
                continue
        raise OSError(errno.EBUSY, "others write the run's record all the time")

    def _publish_files(self, files: Mapping[str, RecordedFile], mark: ServiceMark) -> None:
        """Write the files' new state, with all of it or nothing."""
        before = self._record or RunRecord(self.job_id, mark)
        try:
            self._write_record(replace(before, service=mark, files=files))
        except Changed:
            record = self._read_record()
            if record is not None:
                self._check_record(record, mark)
            raise self.not_ours("another process of the service writes the run") from None

    def _write_record(self, record: RunRecord) -> RunRecord:
        record = replace(record, number=record.number + 1, writer=uuid.uuid4().hex)
        data = record.dumps()
        try:
            if self._version:
                self._version = self.objects.replace(RECORD, data, self._version)
            else:
                self._version = self.objects.create(RECORD, data)
        except Changed:
            other = self._read_record()
            if other is None or other.writer != record.writer:
                raise
        self._record = record
        return record

    def _check_record(self, record: RunRecord, mark: ServiceMark) -> None:
        self.check_job(record.job_id)
        self.check_mark(record.service, mark)

    def _metrics(
        self, mark: ServiceMark, published: RecordedFile | None, *, whole: bool
    ) -> RecordedFile | None:
        path = self.paths.metrics
        inode = _inode(path)
        if not inode:
            return None
        size_bytes = path.stat().st_size
        grew = inode == self._metrics_inode and published is not None
        self._metrics_inode = inode
        is_whole = published is not None and len(published.segments) + bool(published.text) <= 1
        same = grew and published is not None and size_bytes == published.size_bytes
        if same and (is_whole or not whole):
            return published
        line = 1 if published is None else published.line + (not grew)
        segments = published.segments if grew and published is not None and not whole else ()
        kept_bytes = sum(segment.size_bytes for segment in segments)
        with path.open("rb") as file:
            file.seek(kept_bytes)
            tail = file.read()
        if len(tail) <= TAIL_BYTES and not (whole and size_bytes > TAIL_BYTES):
            return RecordedFile(tail.decode(), time.time(), segments, line)
        new = tuple(
            self._segment(tail[at : at + _SEGMENT_BYTES], mark)
            for at in range(0, len(tail), _SEGMENT_BYTES)
        )
        return RecordedFile("", time.time(), segments + new, line)

    def _segment(self, data: bytes, mark: ServiceMark) -> RecordSegment:
        name = f"{RECORDS}{mark.generation:08}-{uuid.uuid4().hex}"
        self.objects.put(name, data)  # nobody else writes, or knows, that name
        return RecordSegment(name, len(data))

    def _remove_replaced(self, old: RecordedFile | None, new: RecordedFile | None) -> None:
        in_use = set(new.segments) if new is not None else set()
        with suppress(OSError):
            for segment in old.segments if old is not None else ():
                if segment not in in_use:
                    self.objects.delete(segment.name)


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0
