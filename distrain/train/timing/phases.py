"""Measures a rank's wall time and device time by phase, and records the waits of its threads.

Heartbeats report the training thread's wait. Waits are recorded by thread, in a global table. So a
wait deep inside a collective operation or a loader is visible without passing an object there.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import process_time

import torch
from torch.cuda import Event

from distrain.jobs.events import PHASES
from distrain.storage.retrying import is_retrying

_MOST_OPEN = 1024

_ADJACENT_S = 50e-6
"""A span that begins within this time after another one ended begins with its end marker.

In this time, the host queues about three kernels. They, and the queue's idle time, count as part of
the later span.
"""


@dataclass(slots=True)
class _Span:
    name: str
    begin: Event
    end: Event
    is_followed: bool = False  # another span begins with `end`


class DeviceClock:
    """Adds up the time between markers in a device's stream, by name.

    Markers are put into the stream, and read by `lap`; no thread waits in between. A span lasts
    from the end of the work queued before its beginning to the end of the work queued before its
    end. So it includes times at which the queue was empty.

    While `paused` returns True, as during the capture of a graph, nothing is measured.
    """

    def __init__(self, new_marker: Callable[[], Event], paused: Callable[[], bool] = lambda: False):
        self._new_marker = new_marker
        self._paused = paused
        self._idle: list[Event] = []
        self._open: deque[_Span] = deque()
        self._ended_s = 0.0
        self._window: dict[str, float] = {}
        self.totals: dict[str, float] = {}

    def begin(self) -> Event | None:
        """Return a marker at a span's beginning; `None` while paused."""
        if self._paused():
            return None
        if self._open and time.perf_counter() - self._ended_s < _ADJACENT_S:
            self._open[-1].is_followed = True
            return self._open[-1].end
        return self._mark()

    def end(self, name: str, begun: Event | None) -> None:
        """End the span that began with the marker `begun`; do nothing if that is `None`."""
        if begun is None or self._paused():
            return
        self._open.append(_Span(name, begun, self._mark()))
        self._ended_s = time.perf_counter()
        if len(self._open) >= _MOST_OPEN:
            self._read_finished()

    def _mark(self) -> Event:
        marker = self._idle.pop() if self._idle else self._new_marker()
        marker.record()
        return marker

    def lap(self, *, wait: bool = False) -> dict[str, float]:
        """Return the seconds, by name, of the spans that finished since the last call.

        With `wait`, wait until all spans have finished.
        """
        if wait and self._open:
            self._open[-1].end.synchronize()
        self._read_finished()
        window, self._window = self._window, {}
        for name, seconds in window.items():
            self.totals[name] = self.totals.get(name, 0.0) + seconds
        return window

    def _read_finished(self) -> None:
        while self._open and self._open[0].end.query():  # type: ignore[no-untyped-call]
            span = self._open.popleft()
            seconds = span.begin.elapsed_time(span.end) / 1000.0
            self._window[span.name] = self._window.get(span.name, 0.0) + seconds
            self._idle += (span.begin,) if span.is_followed else (span.begin, span.end)


def device_clock(device: torch.device) -> DeviceClock | None:
    """Return the clock of a GPU's current stream; `None` for the CPU, whose time is the host's."""
    if device.type != "cuda":
        return None
    return DeviceClock(partial(Event, enable_timing=True), torch.cuda.is_current_stream_capturing)


class PhaseClock:
    """Measures wall time by phase; time outside of phases counts as `other`.

    Times are the host's: on a GPU, where work is only queued, a phase is the time that the host
    spent in it. The clock never waits for the device. `device` measures the phases on a GPU, too;
    `None` on the CPU.

    >>> clock = PhaseClock()
    >>> with clock.phase("data_wait"):
    ...     pass
    >>> window = clock.lap()
    >>> abs(sum(window.values()) - clock.elapsed_s) < 1e-6
    True
    """

    def __init__(self, device: DeviceClock | None = None) -> None:
        self._device = device
        self._start = self._lap_start = time.perf_counter()
        self._lap_end = self._start
        self._cpu_lap_s = process_time()
        self._window = dict.fromkeys(PHASES, 0.0)
        self.totals = dict.fromkeys(PHASES, 0.0)
        self.doing = "other"

    @property
    def elapsed_s(self) -> float:
        """Seconds from the clock's creation to the last call of `lap`."""
        return self._lap_end - self._start

    @property
    def running_s(self) -> float:
        """Seconds since the clock's creation."""
        return time.perf_counter() - self._start

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Return a context whose time counts as `name`; phases must not be nested."""
        self.doing = name
        began = time.perf_counter()
        mark = self._device.begin() if self._device else None
        try:
            yield
            if self._device:
                self._device.end(name, mark)
        finally:
            self._window[name] += time.perf_counter() - began
            self.doing = "other"

    def lap(self) -> dict[str, float]:
        """Return the seconds by phase since the last call; their sum is the wall time."""
        self._lap_end = time.perf_counter()
        window = self._window
        window["other"] += max(0.0, self._lap_end - self._lap_start - sum(window.values()))
        for name, seconds in window.items():
            self.totals[name] += seconds
        self._lap_start = self._lap_end
        self._window = dict.fromkeys(PHASES, 0.0)
        return window

    def device_lap(self, *, wait: bool = False) -> dict[str, float]:
        """Return the device's seconds by phase since the last call; empty on the CPU.

        With `wait`, wait until all spans have finished.
        """
        return self._device.lap(wait=wait) if self._device else {}

    def cpu_lap(self) -> float:
        """Return the CPU seconds of this process since the last call, of all its threads."""
        before_s, self._cpu_lap_s = self._cpu_lap_s, process_time()
        return self._cpu_lap_s - before_s

    @property
    def device_totals(self) -> dict[str, float]:
        return dict(self._device.totals) if self._device else {}


PEERS = "peers"
READER = "reader"
STORAGE = "storage"

# By a thread's `ident`: its reason to wait, or the `ident` of the thread for which it waits.
_waits: dict[int, str | int] = {}


@contextmanager
def waiting(what: str | int) -> Iterator[None]:
    """Mark the calling thread as waiting inside the context.

    `what` is `PEERS`, `READER`, or the `ident` of another thread, for which this one waits: then
    the other thread's wait is reported.
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
    """Return the reason why a thread waits; "" while it works.

    >>> with waiting(READER):
    ...     wait_of(threading.get_ident())
    'reader'
    >>> wait_of(threading.get_ident())
    ''
    """
    what = _waits.get(thread, "")
    return wait_of(what) if isinstance(what, int) else what


class RankActivity:
    """The current work of a rank, for its heartbeats; create it in the training thread."""

    def __init__(self) -> None:
        self.step = 0  # steps begun since the start of the job
        self.slabs = 0  # pieces of checkpoints and models read or written so far
        self.clock: PhaseClock | None = None  # measures the phase; `None` before the training
        self._thread = threading.get_ident()

    def count_slab(self) -> None:
        self.slabs += 1

    @property
    def doing(self) -> str:
        return "setup" if self.clock is None else self.clock.doing

    @property
    def waiting_for(self) -> str:
        """Why the training thread waits: `PEERS`, `READER` or `STORAGE`; "" while it works.

        `STORAGE`: it waits for the reader, which retries a read of the storage.
        """
        wait = wait_of(self._thread)
        return STORAGE if wait == READER and is_retrying() else wait
