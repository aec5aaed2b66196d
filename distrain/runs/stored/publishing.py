"""Writes `record.json` under a lease's generation: each write replaces the one that was seen."""

import errno
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from distrain.errors import OutputError, Unavailable
from distrain.runs.places import LeasedFolder
from distrain.runs.run_file import ServiceMark
from distrain.runs.stored.record import RECORD, RecordedFile, RunRecord, loads
from distrain.storage import Changed, Objects, first_line, is_transient

_TRIES = 5
_HINT = "Check the bucket, the credentials of the service, and that its server answers."


class Publisher:
    """The record of one run; one thread at a time.

    Attributes:
        record: As it was last read or written; `None`: there is none, or it was not read.
    """

    def __init__(self, objects: Objects, place: LeasedFolder):
        self._objects = objects
        self._place = place
        self._version = ""
        self.record: RunRecord | None = None

    def look(self) -> RunRecord | None:
        try:
            data, self._version = self._objects.read(RECORD)
        except FileNotFoundError:
            self.record, self._version = None, ""
        else:
            self.record = loads(data, self._objects.url)
        return self.record

    def claim(self, mark: ServiceMark) -> RunRecord | None:
        """Write the generation, if there is a record: no earlier one can write any more."""
        for _ in range(_TRIES):
            record = self.look()
            if record is None:
                return None
            self._check(record, mark)
            if record.service == mark:
                return record
            try:
                return self._write(replace(record, service=mark))
            except Changed:
                continue
        raise OSError(errno.EBUSY, "others write the run's record all the time")

    def publish(self, files: Mapping[str, RecordedFile], mark: ServiceMark) -> RunRecord:
        """Write the files' new state, with all of it or nothing; errors as `claim`."""
        before = self.record or RunRecord(self._place.job_id, mark)
        try:
            return self._write(replace(before, service=mark, files=dict(files)))
        except Changed:
            record = self.look()
            if record is not None:
                self._check(record, mark)
            raise self._place.not_ours("another process of the service writes the run") from None

    def _write(self, record: RunRecord) -> RunRecord:
        record = replace(record, number=record.number + 1, writer=uuid.uuid4().hex)
        data = record.dumps()
        try:
            if self._version:
                self._version = self._objects.replace(RECORD, data, self._version)
            else:
                self._version = self._objects.create(RECORD, data)
        except Changed:
            other = self.look()
            if other is None or other.writer != record.writer:
                raise
        self.record = record
        return record

    def _check(self, record: RunRecord, mark: ServiceMark) -> None:
        self._place.check_job(record.job_id)
        self._place.check_mark(record.service, mark)


@contextmanager
def store_errors(url: str) -> Iterator[None]:
    """Raise a store's errors inside as `Unavailable` if they may pass, else as `OutputError`."""
    try:
        yield
    except OSError as error:
        passing = is_transient(error)
        kind = Unavailable if passing else OutputError
        text = f"the object store {'does not answer' if passing else 'refuses'}"
        raise kind(f"{text}: {first_line(error)}", where={"url": url}, hint=_HINT) from error
