"""Divides the memory limit of a worker process among its threads, to bound each task's memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from distrain.errors import InputError

_MIB = 1 << 20
_LIBRARIES_BYTES = 320 * _MIB
"""Base memory of a process with its libraries and allocators."""

_LEAST_THREAD_BYTES = 64 * _MIB
_USUAL_THREAD_BYTES = 320 * _MIB
_SHARE_OF_LIMIT = 0.6
"""The share of a Dask worker's memory limit that is used; above 0.6, Dask moves data to disk."""

_TABLES_SHARE = 0.25
"""The share of the usable memory for tables of counts and target means, if there are any."""

_BLOCKS_HELD = 2
"""Memory of a task that writes rows, as a multiple of the size of its block of text.

It holds values, ids and encoded pages."""

# Estimated peak memory per byte of counts while merging or sorting (integers need less, tables of
# strings may need more), and the number of columns whose counts a task holds.
_TIMES_TO_ADD_UP = 8
_COLUMNS_HELD = 4


@dataclass(frozen=True)
class MemoryPlan:
    """The memory that the tasks of a preparation may use, in bytes."""

    thread_bytes: int = _USUAL_THREAD_BYTES
    # for the tables of counts and target means that a process holds, all its threads together
    table_bytes: int = _USUAL_THREAD_BYTES

    @property
    def held_bytes(self) -> int:
        """The size of a column's counts in memory above which equal values are merged.

        If the counts still take more than half of this size, they are written to a file.
        """
        return self.thread_bytes // (_COLUMNS_HELD + _TIMES_TO_ADD_UP)

    @property
    def piece_bytes(self) -> int:
        """Maximum bytes of the counts that a task adds up (a piece), or of rows that it sorts."""
        return self.thread_bytes // _TIMES_TO_ADD_UP


def plan_memory(
    client: Any, process_bytes: int | None, block_bytes: int, has_tables: bool
) -> MemoryPlan:
    """Return how much memory each thread of the client's workers may use.

    `process_bytes` is the limit of a worker process, all threads and libraries together. `None`
    means 320 MiB a thread, but with the libraries at most 0.6 of a worker's limit, and at least
    64 MiB a thread. Rows of `block_bytes` of text take twice as much memory while they are
    written. With `has_tables`, a quarter of a process's memory is for the tables of counts and
    target means, and the threads share the rest.

    Raises:
        InputError: `process_bytes` is too little for these threads and blocks.
    """
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    threads = max((worker["nthreads"] for worker in workers), default=1)
    if process_bytes is None:
        limits = [worker["memory_limit"] for worker in workers if worker["memory_limit"]]
        allowed = min(limits, default=0) * _SHARE_OF_LIMIT - _LIBRARIES_BYTES
        usual = min(_USUAL_THREAD_BYTES, int(allowed / threads)) if limits else _USUAL_THREAD_BYTES
        return _plan(threads * max(usual, _LEAST_THREAD_BYTES), threads, has_tables)
    plan = _plan(process_bytes - _LIBRARIES_BYTES, threads, has_tables)
    needed = max(_LEAST_THREAD_BYTES, _BLOCKS_HELD * block_bytes)
    if plan.thread_bytes < needed:
        least = threads * needed
        if has_tables:
            least = math.ceil(least / (1 - _TABLES_SHARE))
        least += _LIBRARIES_BYTES
        raise InputError(
            f"{process_bytes // _MIB:,} MiB are not enough for {threads} threads",
            where={"memory, MiB": process_bytes // _MIB, "at least": -(-least // _MIB)},
            hint="Raise --memory-mib, or use fewer --workers or a smaller --block-mib.",
        )
    return plan


def _plan(usable_bytes: int, threads: int, has_tables: bool) -> MemoryPlan:
    table_bytes = int(usable_bytes * _TABLES_SHARE) if has_tables else 0
    return MemoryPlan((usable_bytes - table_bytes) // threads, table_bytes)
