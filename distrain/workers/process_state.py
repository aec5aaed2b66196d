"""Reads a process's state, memory and handled signals from the kernel."""

import asyncio
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from distrain.storage.background import in_thread

GONE = "gone"
STACKS_WAIT_S = 0.8
"""Seconds that a process may take to write its stacks; Python takes milliseconds."""

STACKS_BYTES = 2**16

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class ProcessState:
    """The state of a process, as the kernel reports it."""

    state: str  # the kernel's letter and word, such as `T (stopped)`; `gone` if it has ended
    catches: frozenset[int] = frozenset()  # numbers of the signals that it handles

    @property
    def can_answer(self) -> bool:
        """Whether the process runs, sleeps, or waits for I/O, so that it may handle a signal."""
        return self.state[0] in "RSDI"


def process_state(pid: int) -> ProcessState:
    """Return the state of a process; `GONE` if it has ended or is a zombie."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return ProcessState(GONE)
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    state = " ".join(fields.get("State", "?").split())
    mask = int(fields.get("SigCgt", "0").strip(), 16)
    catches = frozenset(number + 1 for number in range(64) if mask >> number & 1)
    return ProcessState(GONE if state.startswith(("Z", "X")) else state, catches)


def resident_bytes(pid: int) -> int:
    """Return the resident host memory of a process; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


async def take_stacks(pid: int, path: Path) -> tuple[str, str]:
    """Return a process's state as text, and the Python stacks that it appends to `path` on SIGUSR2.

    The stacks are "" if the process does not handle the signal, or does not write them within
    `STACKS_WAIT_S`. At most `STACKS_BYTES` are read.
    """
    now = process_state(pid)
    # Without a handler, as in a process that is just starting, the signal would kill it.
    if not now.can_answer or signal.SIGUSR2 not in now.catches:
        return now.state, ""
    before = await in_thread(lambda: _size(path), STACKS_WAIT_S, -1)
    if before < 0:  # the filesystem for the stacks hangs
        return process_state(pid).state, ""
    try:
        os.kill(pid, signal.SIGUSR2)
    except ProcessLookupError:
        return GONE, ""
    size_bytes, waited_s = before, 0.0
    while waited_s < STACKS_WAIT_S:
        await asyncio.sleep(0.05)
        waited_s += 0.05
        last = size_bytes
        size_bytes = await in_thread(lambda: _size(path), STACKS_WAIT_S - waited_s, last)
        if size_bytes == last > before:  # it is complete
            break
    return now.state, await in_thread(lambda: _read(path, before), STACKS_WAIT_S, "")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _read(path: Path, start: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(STACKS_BYTES).decode(errors="replace")
    except OSError:
        return ""
