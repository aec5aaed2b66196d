"""Writes the records of an attempt: lines of JSON in a file with a single writer.

The writer is the supervisor beside rank 0, or the process of rank 0 where it has no supervisor.
Each attempt number is used once and its file is created once, so the name alone prevents a second
writer. A line is an entry of the job's progress, or a `status`: facts that have changed since the
last status line, such as checkpoints and restarts.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from pydantic_core import to_json

from distrain.errors import OutputError
from distrain.jobs.job_view import JobView
from distrain.jobs.run_paths import RunPaths
from distrain.storage.outputs import lock_now, translated_errors

STATUS = "status"

FULL_DISK_S = 60.0
"""Seconds for which writing may fail before `AttemptFile.append` raises the error. If a rank fills
the same disk with its model, the rank fails earlier: this frees space, and its error is clearer."""

Line = Mapping[str, Any]


class AttemptFile:
    """The file of an attempt's records, which its writer creates and locks until it ends.

    Raises `OutputError` if the file exists already, or cannot be created.
    """

    def __init__(self, paths: RunPaths, attempt: int):
        self.path = paths.attempt_records(attempt)
        self._waiting = b""
        self._whole_bytes = 0  # the size of all complete lines
        self._failing_since_s: float | None = None
        self._file = _created(self.path)

    def append(self, lines: Iterable[Line]) -> str:
        """Append all lines or none.

        Lines that could not be written are kept, and written by the next call. Returns a message if
        this call fails and the previous one did not, else "". Raises `OutputError` if all calls
        have failed for `FULL_DISK_S`.
        """
        self._waiting += b"".join(to_json(one, inf_nan_mode="constants") + b"\n" for one in lines)
        try:
            with translated_errors(self.path):
                self._write_waiting()
        except OutputError as error:
            now_s = time.monotonic()
            if self._failing_since_s is None:
                self._failing_since_s = now_s
                return f"records cannot be written; the rank tries again: {error}"
            if now_s - self._failing_since_s >= FULL_DISK_S:
                raise
            return ""
        self._failing_since_s = None
        return ""

    def close(self) -> None:
        """Write the lines that could not be written before, and close the file.

        Raises `OutputError` if they cannot be written now either; then they are lost.
        """
        try:
            with translated_errors(self.path):
                self._write_waiting()
        finally:
            self._file.close()

    def _write_waiting(self) -> None:
        if self._file.tell() != self._whole_bytes:  # a full disk may have taken half a line
            self._file.truncate(self._whole_bytes)
            self._file.seek(self._whole_bytes)
        _write(self._file, self._waiting)
        self._whole_bytes += len(self._waiting)
        self._waiting = b""


class StatusLines:
    """Makes status lines with the facts of a job that have changed since the last line."""

    def __init__(self) -> None:
        self._written: dict[str, Any] = {}

    def new(self, view: JobView) -> list[Line]:
        """Return one line with the facts of a view that changed since the last call.

        [] if none changed.
        """
        facts = {
            "restarts": [asdict(restart) for restart in view.restarts],
            "checkpoints": asdict(view.checkpoints),
            "parameters": view.parameters,
            "reader": view.reader,
            "places": [dict(place) for place in view.rank_places],
            "refit": view.refit,
            "warm_start": view.warm_start,
        }
        changed = {name: one for name, one in facts.items() if self._written.get(name) != one}
        self._written |= changed
        return [{"entry": STATUS, **changed}] if changed else []


def _created(path: Path) -> BinaryIO:
    with translated_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "xb", buffering=0)  # noqa: SIM115  # closed by the caller
    lock_now(file.fileno(), OutputError("the records are locked", where={"path": str(path)}))
    return file


def _write(file: BinaryIO, data: bytes) -> None:
    """Write all of `data` to an unbuffered file."""
    while data:
        data = data[file.write(data) :]
