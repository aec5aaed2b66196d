"""Writes the records of an attempt: lines of JSON in a file that no other process ever writes.

The writer is the supervisor beside rank 0, or the process of rank 0 where it has no supervisor. An
attempt's number is given once, and its file is created once, so nothing guards the file but its
name. A line is an entry of the job's progress, or a `status`: facts that have changed since the
last one, such as checkpoints and restarts.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from pydantic_core import to_json

from distrain.errors import OutputError
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.view import JobView
from distrain.storage.outputs import lock_now, translated_errors

STATUS = "status"

FULL_DISK_S = 60.0
"""How long the records may fail to be written. A rank that fills the same disk with its model
leaves space again when it fails, and its own error says more."""

Line = Mapping[str, Any]


class AttemptFile:
    """An attempt's records; readers see by its lock that somebody still writes."""

    def __init__(self, paths: RunPaths, attempt: int):
        self.path = paths.attempt_records(attempt)
        self._waiting = b""
        self._failing_since_s: float | None = None
        self._file = _created(self.path)

    def append(self, lines: Iterable[Line]) -> str:
        """Append lines in one piece; those that cannot be written come with the next ones.

        Returns a text about that when it begins, else "". An `OutputError` after `FULL_DISK_S`.
        """
        self._waiting += b"".join(to_json(one, inf_nan_mode="constants") + b"\n" for one in lines)
        try:
            with translated_errors(self.path):
                _append(self._file, self._waiting)
        except OutputError as error:
            now_s = time.monotonic()
            if self._failing_since_s is None:
                self._failing_since_s = now_s
                return f"records cannot be written, and are tried again: {error}"
            if now_s - self._failing_since_s >= FULL_DISK_S:
                raise
            return ""
        self._waiting, self._failing_since_s = b"", None
        return ""

    def close(self) -> None:
        """Write what waits, and close the file; an `OutputError` if that is lost."""
        try:
            with translated_errors(self.path):
                _append(self._file, self._waiting)
        finally:
            self._file.close()


class StatusLines:
    """The facts of a job that its current attempt's file has, and lines for those that change."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def new(self, view: JobView) -> list[Line]:
        """A line with the facts of a view that have changed; none without any."""
        facts = {
            "restarts": [asdict(restart) for restart in view.restarts],
            "checkpoints": asdict(view.checkpoints),
            "parameters": view.parameters,
            "reader": view.reader,
            "places": [dict(place) for place in view.rank_places],
            "refit": view.refit,
            "warm_start": view.warm_start,
        }
        changed = {name: one for name, one in facts.items() if self._known.get(name) != one}
        self._known |= changed
        return [{"entry": STATUS, **changed}] if changed else []


def _created(path: Path) -> BinaryIO:
    with translated_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "xb", buffering=0)  # noqa: SIM115  # it stays open
    lock_now(file.fileno(), OutputError("the records are locked", where={"path": str(path)}))
    return file


def _append(file: BinaryIO, data: bytes) -> None:
    """Append all of `data` to an unbuffered file, or nothing."""
    size_bytes = file.tell()
    try:
        while data:
            data = data[file.write(data) :]
    except OSError:
        file.truncate(size_bytes)  # a full disk takes half a line
        file.seek(size_bytes)
        raise
