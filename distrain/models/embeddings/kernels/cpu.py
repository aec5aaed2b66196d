"""The kernels of the tables on a CPU, in C: for float32, and weights in bfloat16.

`dispatch.py` documents each kernel. The loops are in `_rows.c`, which releases Python's GIL, so
threads share the work: by columns, by rows of the batch or by distinct rows, never in a way that
changes the order of a sum.
"""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from distrain.loader.host_memory import HostMemory
from distrain.models.embeddings.kernels.segments import RowRule, unknown_rule

try:
    import distrain.models.embeddings.kernels._rows as _rows

    RULES: dict[str, int] = _rows.RULES
    AVAILABLE = True
except (ImportError, AttributeError):  # built without a compiler, or from older sources
    AVAILABLE = False
    RULES = {}

_memory = HostMemory()
_BYTES_WORTH_A_THREAD = 1 << 20


class _Scratch(threading.local):
    def __init__(self) -> None:
        self.slots = np.empty(0, np.uint64)
        self.distinct = np.empty(0, np.int32)

    def for_ids(self, per_column: int, total: int) -> tuple[NDArray[Any], NDArray[Any]]:
        num_slots = 2 << max(per_column - 1, 0).bit_length()
        if len(self.slots) < num_slots:
            self.slots = np.empty(num_slots, np.uint64)
        if len(self.distinct) < total:
            self.distinct = np.empty(total, np.int32)
        return self.slots[:num_slots], self.distinct[:total]


_scratch = _Scratch()


def unique(ids: Tensor, offsets: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    inverse = _memory.allocate((len(ids),), torch.int32)
    lengths = counts.sum(1)
    per_column = np.zeros(len(counts), np.int64)
    places, sizes = _array(offsets.contiguous()), _array(counts.contiguous())
    source, target = _array(ids), _array(inverse)

    def of_columns(columns: slice) -> NDArray[Any]:
        own = lengths[columns]
        most = int(own.max()) if len(own) else 0
        slots, room = _scratch.for_ids(most, int(own.sum()))
        found = _rows.unique(
            source, places[columns], sizes[columns], target, room, per_column[columns], slots
        )
        return room[:found].copy()

    parts = _cuts(len(counts), ids.numel() * ids.element_size())
    distinct = _in_parallel(of_columns, parts)
    if len(parts) > 1:
        befores = np.cumsum([0, *(len(part) for part in distinct)])[:-1]

        def move(part: int) -> None:
            for start, size in zip(places[parts[part]].flat, sizes[parts[part]].flat, strict=True):
                target[start : start + size] += np.int32(befores[part])

        _in_parallel(move, range(1, len(parts)))
    together = distinct[0] if len(distinct) == 1 else np.concatenate(distinct)
    return inverse, torch.from_numpy(together), torch.from_numpy(per_column)


def gather(weight: Tensor, keys: Tensor) -> Tensor:
    out = _memory.allocate((len(keys), weight.shape[1]), torch.float32)
    is_bfloat16, values = _weight(weight)
    rows, target = _array(keys.contiguous()), _array(out)
    _in_parallel(
        lambda part: _rows.gather(values, is_bfloat16, rows[part], target[part]),
        _cuts(len(rows), target.nbytes),
    )
    return out


def expand(rows: Tensor, inverse: Tensor, places: Tensor, out: Tensor) -> None:
    source, target, where = _array(rows), _array(out), _array(places.contiguous())
    which = _array(inverse if inverse.stride(1) == 1 else inverse.contiguous())
    _in_parallel(
        lambda part: _rows.expand(source, which[:, part], where, target[part]),
        _cuts(len(target), target.nbytes),
    )


def collect(grads: Tensor, inverse: Tensor, places: Tensor, sums: Tensor) -> None:
    source, target, where = _array(grads.contiguous()), _array(sums), _array(places.contiguous())
    which = _array(inverse if inverse.stride(1) == 1 else inverse.contiguous())
    _in_parallel(
        lambda part: _rows.collect(target, which[part], where[part], source),
        _cuts(len(which), source.nbytes),
    )


def update(
    rule: RowRule,
    weight: Tensor,
    state: Sequence[Tensor],
    keys: Tensor,
    grads: Tensor,
    rate: float,
    rounding_seed: int = 0,
    global_keys: Tensor | None = None,
) -> None:
    if rule.name not in RULES:
        raise unknown_rule(rule)
    kind = RULES[rule.name]
    is_bfloat16, values = _weight(weight)
    first, second = (*map(_array, state), None, None)[:2]
    rows, source = _array(keys.contiguous()), _array(grads.contiguous())
    names = rows if global_keys is None else _array(global_keys.contiguous())
    numbers = (rate, rule.eps, *rule.betas)

    def work(part: slice) -> None:
        own = (rows[part], names[part], source[part])
        _rows.update(kind, values, is_bfloat16, first, second, *own, rounding_seed, *numbers)

    _in_parallel(work, _cuts(len(rows), source.nbytes))


def draw(key: int, rows: Tensor, scale: float, out: Tensor) -> None:
    """Compute `random_bits.scaled` in C, with the same bits."""
    which, target = _array(rows.contiguous()), _array(out)
    _in_parallel(
        lambda part: _rows.draw(key, which[part], scale, target[part]),
        _cuts(len(which), target.nbytes),
    )


def _array(values: Tensor) -> NDArray[Any]:
    return values.detach().numpy()


def _weight(weight: Tensor) -> tuple[bool, NDArray[Any]]:
    if weight.dtype == torch.bfloat16:
        return True, _array(weight.detach().view(torch.int16))
    return False, _array(weight)


def _cuts(count: int, num_bytes: int) -> list[slice]:
    """Split `count` items into consecutive slices, one for each thread.

    `num_bytes` is the size of all items: a thread is used only for at least 1 MiB.
    """
    parts = max(1, min(torch.get_num_threads(), count, num_bytes // _BYTES_WORTH_A_THREAD))
    return [slice(a, b) for a, b in pairwise(count * part // parts for part in range(parts + 1))]


_pools: dict[int, ThreadPoolExecutor] = {}


def _pool() -> ThreadPoolExecutor:
    """Return the thread pool of this process; a forked process gets its own."""
    pid = os.getpid()
    if pid not in _pools:
        _pools[pid] = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="rows")
    return _pools[pid]


_T = TypeVar("_T")


def _in_parallel(work: Callable[[Any], _T], parts: Sequence[Any]) -> list[_T]:
    """Run `work` on each part, the first in this thread; return the results in order.

    Waits for all parts, then raises the error of the first part that failed.
    """
    pending = [_pool().submit(work, part) for part in parts[1:]]
    try:
        first = [work(part) for part in parts[:1]]
    finally:
        wait(pending)
    return first + [future.result() for future in pending]
