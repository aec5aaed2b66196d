"""Measures one contender in its own process. Imports nothing that a peer's Python may lack."""

import resource
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

Pass = Callable[[int], Iterator[int]]
"""Starts a pass (0, 1, ...) over the data; yields each batch's number of rows after touching it."""
Open = Callable[[Path], Pass]
"""Imports what the contender needs, and opens the data."""

BATCH_ROWS = 65_536
SAMPLE_S = 0.005


def measure(open_case: Open, data: Path, warm_passes: int) -> dict[str, float]:
    """Time a cold pass and `warm_passes` warm ones, without imports and opening.

    Returns:
        Figures of the cold pass, medians of the warm passes, and memory.
    """
    one_pass = open_case(data)
    with AnonymousMemory() as memory:
        cold = time_pass(one_pass, 0)
        warm = [time_pass(one_pass, 1 + number) for number in range(warm_passes)]
    return {
        "rows_per_s": statistics.median(each.rows / each.wall_s for each in warm),
        "cold_rows_per_s": cold.rows / cold.wall_s,
        "cpu_s_per_m_rows": statistics.median(each.cpu_s / each.rows * 1e6 for each in warm),
        "first_batch_s": cold.first_batch_s,
        "warm_first_batch_s": statistics.median(each.first_batch_s for each in warm),
        "own_mb": memory.growth_mb,
        "peak_mb": status_mb("VmHWM"),
    }


class PassTimes(NamedTuple):
    """The rows of all batches of a pass, and the time that it took."""

    rows: int
    wall_s: float
    cpu_s: float
    first_batch_s: float


def time_pass(one_pass: Pass, number: int) -> PassTimes:
    """Run a pass to its end, and time it."""
    rows, first_s = 0, 0.0
    batches = one_pass(number)
    cpu, start = cpu_s(), time.perf_counter()
    for count in batches:
        first_s = first_s or time.perf_counter() - start
        rows += count
    return PassTimes(rows, time.perf_counter() - start, cpu_s() - cpu, first_s)


def touch(*tensors: Any) -> None:
    """Read one value from every page of the tensors."""
    for tensor in tensors:
        tensor.reshape(-1)[::512].sum()


def cpu_s() -> float:
    """Return the CPU time of this process and of its ended worker processes."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in spent)


def status_mb(field: str) -> float:
    """Return a line of /proc/self/status, in MB of 2**20 bytes."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


class AnonymousMemory:
    """Measures the growth of this process's anonymous memory (RssAnon).

    Memory-mapped files, including libraries, do not count. A thread samples every 5 ms, so it can
    miss shorter peaks.
    """

    def __enter__(self) -> "AnonymousMemory":
        self._before = self._peak = status_mb("RssAnon")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            self._peak = max(self._peak, status_mb("RssAnon"))

    @property
    def growth_mb(self) -> float:
        """The peak of the memory, minus its size at the start."""
        return self._peak - self._before
