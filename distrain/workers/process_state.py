"""Reads a process's state, memory and handled signals from the kernel."""

import asyncio
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from distrain.workers.rank_log import RankLogWriter

GONE = "gone"
STACKS_WAIT_S = 0.8
"""Seconds that a process may take to print its stacks; Python takes milliseconds."""

_POLL_S = 0.05
_OF_THREAD = "hread 0x"  # faulthandler begins with `Thread 0x` or `Current thread 0x`

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


async def take_stacks(pid: int, log: RankLogWriter) -> tuple[str, str]:
    """Return a process's state as text, and the Python stacks that it prints on SIGUSR2.

    `log` gets its output. The stacks are "" if the process does not handle the signal, or prints
    nothing within `STACKS_WAIT_S`. Other threads of the process may print between the stacks. The
    log's `last_lines` are then those from before.
    """
    now = process_state(pid)
    # Without a handler, as in a process that is just starting, the signal would kill it.
    if not now.can_answer or signal.SIGUSR2 not in now.catches:
        return now.state, ""
    before = last = log.num_bytes
    try:
        os.kill(pid, signal.SIGUSR2)
    except ProcessLookupError:
        return GONE, ""
    for _ in range(round(STACKS_WAIT_S / _POLL_S)):
        await asyncio.sleep(_POLL_S)
        if log.num_bytes == last and _OF_THREAD in log.printed_since(before):  # it is complete
            break
        last = log.num_bytes
    stacks = log.printed_since(before)
    log.forget_since(before)
    return now.state, stacks
