"""Reads the records of a run folder, attempt by attempt, also while they grow.

An incomplete last line is ignored: its writer was killed, or is still writing it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distrain.errors import InputError, problems_in
from distrain.jobs.job_view import Entry, Record, entry_from_json
from distrain.jobs.run_paths import RunPaths, attempts_of
from distrain.runs.attempt_file import STATUS
from distrain.runs.history import History
from distrain.runs.run_folder import NotInRun
from distrain.runs.stored.folder import OpenRunFolder, open_own_run
from distrain.runs.validation import json_of, record_of

_READ_BYTES = 4 * 2**20
EARLIER = 0  # the number for all attempts of version 0.2.0, which recorded them in one file


@dataclass
class AttemptRead:
    """The records and status lines of an attempt, as read from its file."""

    number: int
    entries: list[Entry] = field(default_factory=list)
    status: dict[str, Any] = field(default_factory=dict)  # the facts of its status lines

    @property
    def last_step(self) -> int:
        return max((one.step for one in self.entries if isinstance(one, Record)), default=0)


def read_records(paths: RunPaths) -> list[Record]:
    """Return a run's records in order, except those of steps that a later attempt repeated.

    Empty if there is no run folder. Raises `InputError` for a damaged line.
    """
    try:
        with open_own_run(paths) as folder:
            return records_of(read_attempts(folder))
    except NotInRun:
        return []


def records_of(attempts: list[AttemptRead]) -> list[Record]:
    """Return the records of attempts in order, except those of steps that a later one repeated."""
    return History(entry for attempt in attempts for entry in attempt.entries).records


def read_attempts(folder: OpenRunFolder) -> list[AttemptRead]:
    """Return the content of all attempts' files, oldest first; `InputError` for a damaged line."""
    return [read_attempt(folder, number) for number in numbers_of(folder)]


def numbers_of(folder: OpenRunFolder) -> list[int]:
    """Return the numbers of attempts that have records, oldest first.

    `EARLIER` comes first if version 0.2.0 recorded attempts of the run.
    """
    old = [EARLIER] if folder.read_growing(name_of(EARLIER), 0, 1) else []
    try:
        files = [Path(file.name).name for file in folder.files(RunPaths(Path()).records.name)]
    except NotInRun:
        return old
    return [*old, *attempts_of(files)]


def whole_lines(
    folder: OpenRunFolder, number: int, read_bytes: int = _READ_BYTES
) -> Iterator[bytes]:
    """Yield the complete lines of the file of attempt `number`, reading `read_bytes` at a time."""
    rest, offset = b"", 0
    while data := folder.read_growing(name_of(number), offset, read_bytes):
        offset += len(data)
        *lines, rest = (rest + data).split(b"\n")
        yield from lines


def name_of(number: int) -> str:
    """Return the name of an attempt's file in the run folder."""
    paths = RunPaths(Path())
    path = paths.metrics if number == EARLIER else paths.attempt_records(number)
    return path.as_posix()


def read_attempt(folder: OpenRunFolder, number: int) -> AttemptRead:
    """Return the content of an attempt's file, empty if it is missing.

    Raises `InputError` for a damaged line. Entries of unknown kinds are ignored.
    """
    read = AttemptRead(number)
    for count, line in enumerate(whole_lines(folder, number), 1):
        try:
            document = json_of(line.decode())
            if document.get("entry") == STATUS:
                read.status |= document
                continue
            is_record = document.get("entry", "record") == "record"
            entry = record_of(line, document) if is_record else entry_from_json(document)
        except (AttributeError, ValueError, TypeError, KeyError) as error:
            where = {"path": f"{folder.place}/{name_of(number)}", "line": count}
            raise InputError(f"not a record: {problems_in(error)[0]}", where=where) from None
        if entry is not None:
            read.entries.append(entry)
    return read
