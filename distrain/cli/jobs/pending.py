"""Submissions that were not answered: their keys, kept on disk, so that a repeat finds the job.

A file is made before the first request and removed after its answer. It is locked as long as its
command lives: what a killed command has left can be told from what another one still does.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from distrain.errors import OutputError
from distrain.storage.folder import sync_path

KEPT_S = 6 * 86_400.0  # how long a key is used again: services forget them after a week


@dataclass
class Pending:
    """A submission under way, under its idempotency key; `is_old`: an earlier command began it."""

    key: str  # its idempotency key
    begun_s: float  # when it was first tried, in unix seconds
    is_old: bool = False  # whether an earlier command began it
    is_answered: bool = False


def digest(address: str, body: Mapping[str, Any]) -> str:
    """What two submissions share if they are the same."""
    text = json.dumps([address, body], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@contextmanager
def pending(folder: Path, same: str, now_s: float, *, again: bool = False) -> Iterator[Pending]:
    """The submission to make: one that an ended command left behind, or a new one.

    `same` is its `digest`; with `again` what was left behind does not count.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        number, path, note = _left_behind(folder, same, now_s, again) or _new(folder, same, now_s)
    except OSError as error:
        raise OutputError(
            f"could not note the submission: {error.strerror or error}",
            where={"folder": folder},
            hint="Without the note, a repeated command could submit the job twice. "
            "XDG_STATE_HOME names another place.",
        ) from None
    try:
        yield note
    finally:
        if note.is_answered:
            with suppress(OSError):
                path.unlink()
        os.close(number)  # and the lock with it


def _left_behind(
    folder: Path, same: str, now_s: float, again: bool
) -> tuple[int, Path, Pending] | None:
    """A note that no living command holds; older ones are removed."""
    for path in sorted(folder.glob(f"{same}-*.json")):
        with suppress(FileNotFoundError):
            number = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            if not _locked(number):
                os.close(number)
                continue
            note = _read(number)
            if note and not again and path.exists() and now_s - note.begun_s < KEPT_S:
                return number, path, note
            path.unlink()
            os.close(number)
    return None


def _new(folder: Path, same: str, now_s: float) -> tuple[int, Path, Pending]:
    """Write a note that outlives this process and a power cut."""
    note = Pending(uuid4().hex, now_s)
    path = folder / f"{same}-{note.key[:8]}.json"
    number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        _locked(number)
        os.write(number, json.dumps({"key": note.key, "begun_s": now_s}).encode())
        os.fsync(number)
        sync_path(folder)
    except OSError:
        path.unlink(missing_ok=True)
        os.close(number)
        raise
    return number, path, note


def _locked(number: int) -> bool:
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _read(number: int) -> Pending | None:
    """A note's content; `None` if its writer was killed half-way, before any request."""
    try:
        values = json.loads(os.pread(number, 4096, 0))
        return Pending(str(values["key"]), float(values["begun_s"]), is_old=True)
    except (ValueError, KeyError, TypeError):
        return None
