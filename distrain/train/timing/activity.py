"""What a rank's training does now and what it waits for, as its heartbeats report it.

Waits are noted by thread, beside the training and not in it: a wait deep inside a collective
operation or a loader shows without anybody having to hand an object down there.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from distrain.storage import is_retrying

if TYPE_CHECKING:
    from distrain.train.timing.phases import PhaseClock

PEERS = "peers"
READER = "reader"
STORAGE = "storage"

# By thread: what it waits for, or the number of the thread that it waits for.
_waits: dict[int, str | int] = {}


@contextmanager
def waiting(what: str | int) -> Iterator[None]:
    """Mark the calling thread as waiting, while inside.

    For `PEERS`, `READER`, or the `ident` of a thread whose own wait then counts.
    """
    me = threading.get_ident()
    before = _waits.get(me)
    _waits[me] = what
    try:
        yield
    finally:
        if before is None:
            del _waits[me]
        else:
            _waits[me] = before


def wait_of(thread: int) -> str:
    """A thread's wait; "" while it works.

    >>> with waiting(READER):
    ...     wait_of(threading.get_ident())
    'reader'
    >>> wait_of(threading.get_ident())
    ''
    """
    what = _waits.get(thread, "")
    return wait_of(what) if isinstance(what, int) else what


class RankActivity:
    """The state of the thread that made this, in its training; any thread may read it."""

    def __init__(self) -> None:
        self.step = 0  # steps begun since the start of the job
        self.slabs = 0  # pieces of checkpoints and models read or written so far
        self.clock: PhaseClock | None = None  # has the phase; `None` before the training
        self._thread = threading.get_ident()

    def count_slab(self) -> None:
        self.slabs += 1

    @property
    def doing(self) -> str:
        return "setup" if self.clock is None else self.clock.doing

    @property
    def waiting_for(self) -> str:
        """`PEERS`, `READER`, `STORAGE` where the reader waits for that, or "" while it works."""
        wait = wait_of(self._thread)
        return STORAGE if wait == READER and is_retrying() else wait
