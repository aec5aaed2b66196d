"""Stores the state of a started cluster in the file `state.json` of the cluster's folder.

The program that runs the cluster writes the file, so that the cluster can be found even if the
process that started the program was killed.
"""

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from distrain.storage.outputs import translated_errors
from distrain.storage.unfinished import boot_id, started_ticks
from distrain.workers.secrets import PRIVATE_MODE, write_private

STATE_FILE = "state.json"


@dataclass(frozen=True)
class ProcessId:
    """Identifies a process, by more than its id, because process ids are reused."""

    pid: int
    started_ticks: int  # clock ticks from the machine's boot to its start
    boot_id: str  # the kernel's id of this boot
    host: str

    @classmethod
    def of(cls, pid: int) -> "ProcessId | None":
        """Return the `ProcessId` of the process with the id `pid` on this machine.

        Returns `None` if there is no such process, or its start time cannot be read.
        """
        with contextlib.suppress(OSError):
            started = started_ticks(pid)
            if started is not None:
                return cls(pid, started, boot_id().strip(), socket.gethostname())
        return None

    def is_running(self) -> bool:
        return ProcessId.of(self.pid) == self


@dataclass(frozen=True)
class StartedCluster:
    """The content of `state.json`."""

    process: ProcessId  # the program that runs the cluster, which ends with it
    token: str  # the token of its scheduler's HTTP server
    url: str | None = None  # the scheduler's HTTP address; `None` before it answers
    scheduler: str | None = None  # the address of the scheduler's comm
    num_workers: int = 0
    error: str | None = None  # the reason why it could not start, or has ended early


def read_started(folder: Path) -> StartedCluster | None:
    """Return the content of a folder's `state.json`; `None` if it is missing or invalid."""
    try:
        return TypeAdapter(StartedCluster).validate_json((folder / STATE_FILE).read_bytes())
    except (OSError, ValueError):
        return None


def write_started(folder: Path, started: StartedCluster) -> None:
    write_private(folder / STATE_FILE, json.dumps(asdict(started)).encode())


@contextlib.contextmanager
def errors_recorded(folder: Path, started: StartedCluster) -> Iterator[None]:
    """Write an exception of the block to `state.json`, as `error` of `started`; raise it again."""
    try:
        yield
    except Exception as error:
        with contextlib.suppress(Exception):
            write_started(folder, replace(started, error=str(error) or type(error).__name__))
        raise


@contextlib.contextmanager
def try_lock(file: Path) -> Iterator[bool]:
    """Lock a file during the block, without waiting; yield whether this process got the lock.

    It does not if the file is locked, even by an outer block in the same process. Creates the file
    if it does not exist; raises `OutputError` if that fails.
    """
    import fcntl

    with translated_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        held = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_MODE)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        got = True
    except BlockingIOError:
        got = False
    try:
        yield got
    finally:
        os.close(held)
