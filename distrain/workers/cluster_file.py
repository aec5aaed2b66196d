"""What a started cluster says about itself, in a file that whoever started it finds again.

The program that is the cluster writes `state.json` itself, so that a starter that was killed leaves
no cluster that nobody knows. A process is known by its number, its start and the machine's boot: a
number alone may be another process by now.
"""

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from distrain.jobs.view import known_fields
from distrain.storage.outputs import translated_errors
from distrain.storage.unfinished import boot_id, started_ticks
from distrain.workers.secrets import PRIVATE_MODE, write_private

STATE_FILE = "state.json"


@dataclass(frozen=True)
class ProcessId:
    """A process, for ever: no later one is equal to it."""

    pid: int
    started_ticks: int
    boot_id: str
    host: str

    @classmethod
    def of(cls, pid: int) -> "ProcessId | None":
        """The process of that number here; `None` if it has ended, or cannot be looked at."""
        with contextlib.suppress(OSError):
            started = started_ticks(pid)
            if started is not None:
                return cls(pid, started, boot_id().strip(), socket.gethostname())
        return None

    def is_running(self) -> bool:
        return ProcessId.of(self.pid) == self


@dataclass(frozen=True)
class StartedCluster:
    process: ProcessId  # the program, which ends the cluster when it ends
    token: str  # for its scheduler's HTTP
    url: str | None = None  # the scheduler's HTTP address; `None` before it answers
    scheduler: str | None = None  # the address of the scheduler's comm
    num_workers: int = 0
    slurm_job: str | None = None  # the id of its Slurm job
    error: str | None = None  # the reason why it could not start


def read_started(folder: Path) -> StartedCluster | None:
    try:
        values = json.loads((folder / STATE_FILE).read_bytes())
        process = ProcessId(**values.pop("process"))
        return StartedCluster(process, **known_fields(StartedCluster, values))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def write_started(folder: Path, started: StartedCluster) -> None:
    write_private(folder / STATE_FILE, json.dumps(asdict(started)).encode())


@contextlib.contextmanager
def telling(folder: Path, started: StartedCluster) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        with contextlib.suppress(Exception):
            write_started(folder, replace(started, error=str(error) or type(error).__name__))
        raise


@contextlib.contextmanager
def only_one(file: Path) -> Iterator[bool]:
    """Lock a file without waiting; yields whether this process got the lock."""
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
