"""The owner's name of a process's leases, and whether that process has ended."""

import hashlib
import os
import secrets
import socket
from contextlib import suppress

from distrain.cluster import ProcessId

_HOST_CHARACTERS = 60


def owner_name() -> str:
    """A name of this process that no other process has had."""
    me = ProcessId.of(os.getpid())
    started = me.started_ticks if me is not None else 0
    host = socket.gethostname()[:_HOST_CHARACTERS]
    return ":".join((host, str(os.getpid()), str(started), _machine(), secrets.token_hex(6)))


def has_ended(owner: str) -> bool:
    """Whether the process of this name has surely ended: one of this machine and boot.

    A stopped one has not; of another machine or container nothing is known: its leases run out.
    """
    machine = _machine()
    match owner.rsplit(":", 4):
        case [_, pid_text, ticks_text, of, _] if pid_text.isdecimal() and ticks_text.isdecimal():
            pid, started_ticks = int(pid_text), int(ticks_text)
        case _:
            return False
    if not machine or of != machine or not pid:
        return False
    try:
        os.kill(pid, 0)
        found = ProcessId.seen(pid)  # `None` of one that nobody has waited for yet
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # as of a process of another user
        return False
    return found is None or found.started_ticks != started_ticks


def _machine() -> str:
    """This boot of this machine, and its namespace of process numbers; "" if unknown."""
    with suppress(OSError):
        me = ProcessId.of(os.getpid())
        if me is not None:
            seen = f"{me.boot_id} {me.host} {os.readlink('/proc/self/ns/pid')}"
            return hashlib.sha256(seen.encode()).hexdigest()[:12]
    return ""
