"""Claims: which process writes an output on an object store, and whether it is finished.

    OUT/.distrain-output.json
    state     making  the output is incomplete
              made    it is finished, with the list of its objects; written last

An object store has no locks. So a process claims an output by creating this object, and renews the
claim regularly. On S3 both are conditional writes, so that only one of two processes succeeds.
Another process may take over a claim that was not renewed for `LEASE_S`, or whose process ran on
the same machine and has ended.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import threading
import time
import uuid
import zlib
from dataclasses import dataclass, replace
from typing import Any

from distrain.errors import DistrainError, OutputError
from distrain.storage.folder import open_folder
from distrain.storage.objects import Changed, Objects, has_conditional_writes
from distrain.storage.retrying import RETRY_S, with_retries
from distrain.storage.unfinished import boot_id, started_ticks

STATE_FILE = ".distrain-output.json"
MAKING, MADE = "making", "made"

RENEWED_EVERY_S = 30.0
LEASE_S = 900.0
"""A claim expires after this time without renewal. The clocks of machines must differ by less; S3
itself rejects requests of machines whose clock is 900 s wrong."""


@dataclass(frozen=True)
class OutputState:
    state: str
    id: str  # identifies the maker: a hash of its machine, and a random number
    host: str = ""
    process: str = ""  # the maker's pid, and its start in clock ticks after the machine's boot
    since_s: float = 0.0  # the start of the claim, in seconds since 1970
    alive_s: float = 0.0  # the last renewal, in seconds since 1970; 0 if the claim was released
    files: dict[str, int] | None = None  # the sizes of a finished output's objects, by name

    def to_bytes(self) -> bytes:
        fields = {**vars(self), "version": 1}
        known = {name: value for name, value in fields.items() if value is not None}
        return (json.dumps(known, indent=1) + "\n").encode()

    @classmethod
    def from_json(cls, document: Any) -> OutputState:
        """Return the state of an output that `to_bytes` wrote.

        Fields of later versions are ignored.
        """
        # Version 0.2.0 could replace an output. `before` is the state of the old output, which
        # remained until the new output was moved.
        if document["state"] == MAKING and document.get("before"):
            document = document["before"]
        return cls(
            **{name: document[name] for name in cls.__dataclass_fields__ if name in document}
        )

    def left_s(self, now_s: float) -> float:
        """Return the seconds from `now_s` (Unix time) until the claim expires.

        0 if it has expired or was released, if its process on this machine has ended, or if the
        output is finished.
        """
        if self.state == MADE or not self.alive_s:
            return 0.0
        if self.id.startswith(_machine()) and not _runs(self.process):
            return 0.0
        return max(0.0, self.alive_s + LEASE_S - now_s)


class _ComparedFolder:
    """Replaces `Objects` for stores without conditional writes: compares the version, then writes.

    If another process writes between the two, this is detected at the next renewal.
    """

    def __init__(self, url: str):
        self._folder = open_folder(url)

    def read(self, name: str) -> tuple[bytes, str]:
        content = self._folder.read(name)
        return content, content.decode(errors="surrogateescape")

    def create(self, name: str, content: bytes) -> str:
        with contextlib.suppress(FileNotFoundError):
            self.read(name)
            raise Changed(name)
        return self._put(name, content)

    def replace(self, name: str, content: bytes, version: str) -> str:
        try:
            if self.read(name)[1] != version:
                raise Changed(name)
        except FileNotFoundError:
            raise Changed(name) from None
        return self._put(name, content)

    def delete(self, name: str) -> None:
        self._folder.delete(name)

    def _put(self, name: str, content: bytes) -> str:
        self._folder.put(name, content)
        return content.decode(errors="surrogateescape")


def _states(url: str) -> Objects | _ComparedFolder:
    return Objects(url) if has_conditional_writes(url) else _ComparedFolder(url)


def read_state(url: str, retry_s: float = RETRY_S) -> tuple[OutputState | None, str]:
    """Return the state of the output at a URL, and the version of the state's object.

    Returns `(None, "")` if there is no state.

    Raises:
        OutputError: The state is damaged.
        Unavailable: The store does not answer for `retry_s` seconds.
    """

    def read() -> tuple[OutputState | None, str]:
        try:
            content, version = _states(url).read(STATE_FILE)
        except FileNotFoundError:
            return None, ""
        try:
            return OutputState.from_json(json.loads(content)), version
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise OutputError(
                f"the state of the output cannot be read: {error!r}",
                where={"file": f"{url}/{STATE_FILE}"},
                hint="Remove everything under the output's prefix, and make it again.",
            ) from None

    return with_retries(read, {"output": url}, retry_s)


class Claim:
    """This process's claim on an output, renewed by a thread.

    `found` and `version` are the result of `read_state`: the claim replaces this state. The
    constructor, `renew` and `finish` raise an `OutputError` if another process has the claim.
    """

    def __init__(self, url: str, found: OutputState | None, version: str):
        now_s = time.time()
        identity = f"{_machine()}{uuid.uuid4().hex[:8]}"
        process = f"{os.getpid()} {_start_of(os.getpid())}"
        self.url = url
        self.state = OutputState(MAKING, identity, os.uname().nodename, process, now_s, now_s)
        self.has_objects = False  # whether some objects, but not all, may have their final names
        self._version = ""
        self._lost = False
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._write(self.state, version if found is not None else None)
        self._thread = threading.Thread(target=self._renew, name="claim", daemon=True)
        self._thread.start()

    @property
    def id(self) -> str:
        return self.state.id

    def finish(self, files: dict[str, int]) -> None:
        with self._lock:
            now = replace(self.state, state=MADE, alive_s=time.time(), files=files)
            self._write(now, self._version)

    def renew(self) -> None:
        with self._lock:
            self._write(replace(self.state, alive_s=time.time()), self._version)

    def end(self) -> None:
        """Release the claim, unless the output is finished or another process has the claim.

        The claim's object is removed. But if some objects may have their final names already
        (`has_objects`), it is only marked as released, so that readers reject the output as
        unfinished. Waits for a renewal in progress. Raises `Unavailable` if the storage does not
        answer.
        """
        self._ended.set()
        self._thread.join()
        with self._lock:
            if self._lost or self.state.state == MADE:
                return
            if self.has_objects:
                self._write(replace(self.state, alive_s=0.0), self._version)
            elif self._is_ours():
                with_retries(
                    lambda: _states(self.url).delete(STATE_FILE), {"output": self.url}, RETRY_S
                )

    def _renew(self) -> None:
        while not self._ended.wait(RENEWED_EVERY_S):
            # A storage that does not answer now may answer at the next renewal.
            with contextlib.suppress(DistrainError, OSError), self._lock:
                if self.state.state != MADE and not self._lost:
                    self._write(replace(self.state, alive_s=time.time()), self._version, 0.0)

    def _write(self, state: OutputState, version: str | None, retry_s: float = RETRY_S) -> None:
        if self._lost:
            raise self._taken(None)
        content = state.to_bytes()

        def write() -> str:
            states = _states(self.url)
            if version is None:
                return states.create(STATE_FILE, content)
            return states.replace(STATE_FILE, content, version)

        try:
            self._version = with_retries(write, {"output": self.url}, retry_s)
        except Changed:
            current, found_version = read_state(self.url)
            if current is None or current.id != state.id:
                self._lost = True
                raise self._taken(current) from None
            # The conflict is with our own earlier write, whose answer was lost.
            self._version = found_version
            if current != state:
                self._version = with_retries(
                    lambda: _states(self.url).replace(STATE_FILE, content, found_version),
                    {"output": self.url},
                    retry_s,
                )
        self.state = state

    def _is_ours(self) -> bool:
        current, _ = read_state(self.url)
        return current is not None and current.id == self.id

    def _taken(self, current: OutputState | None) -> OutputError:
        if current is None:
            return OutputError(
                "the claim on this output is gone: another process has removed it",
                where={"path": self.url},
                hint="Nothing was written to the output; start again.",
            )
        return in_progress_error(self.url, current)


def in_progress_error(url: str, state: OutputState) -> OutputError:
    now_s = time.time()
    age_s = max(0.0, now_s - state.alive_s)
    return OutputError(
        "another process is making this output",
        where={
            "path": url,
            "host": state.host,
            "process": state.process.partition(" ")[0],
            "last sign of life": f"{age_s:.0f} s ago",
        },
        hint="Wait until it has finished, stop it, or name another place. If its host is gone, its "
        f"claim expires in {state.left_s(now_s):.0f} s, and the same command continues.",
    )


def check_still_claimed(url: str, identity: str) -> None:
    """Raise an `OutputError` unless the claim with the id `identity` is still valid.

    Tasks call it before they write: after the claim was removed, taken over, or finished, their
    objects would be useless. Raises `Unavailable` if the store does not answer.
    """
    current, _ = read_state(url)
    if current is None or current.id != identity or current.state == MADE:
        raise OutputError(
            "the command that made the output has abandoned it",
            where={"path": url},
            hint="Start the command again.",
        )


@functools.cache
def _machine() -> str:
    """Return 8 hex digits, equal for processes that see each other's pids, until the next boot."""
    names = [os.uname().nodename]
    with contextlib.suppress(OSError):
        names = [boot_id()]
        names.append(os.readlink("/proc/self/ns/pid"))  # differs between containers of one machine
    return f"{zlib.crc32(repr(names).encode()):08x}"


def _runs(process: str) -> bool:
    number, _, start = process.partition(" ")
    return number.isdecimal() and start == _start_of(int(number))


def _start_of(number: int) -> str:
    with contextlib.suppress(OSError):
        return str(started_ticks(number) or "")
    return ""
