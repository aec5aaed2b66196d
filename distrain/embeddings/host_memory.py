"""Memory on the host for large tensors: aligned, in huge pages, and used again.

A fresh page costs a fault, and a table or a batch of embeddings spread over pages of 4 KiB costs a
walk through the page table with almost every row. NumPy asks the kernel for huge pages where an
array is large enough, torch does not, so large tensors live in NumPy's memory here.
"""

import math
import threading
import weakref
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_ALIGNMENT_BYTES = 64  # a cache line; rows of 16 float32 then never straddle two
_MOST_IDLE = 16
_ROOM_BYTES = 1 << 16


def empty(
    shape: Sequence[int], dtype: torch.dtype, *, align_bytes: int = _ALIGNMENT_BYTES
) -> Tensor:
    """A tensor on the host whose values are arbitrary, aligned to 64 bytes.

    >>> empty((3, 16), torch.float32).data_ptr() % 64
    0
    """
    memory = np.empty(_num_bytes(shape, dtype) + align_bytes, np.uint8)
    return _as_tensor(memory, shape, dtype, align_bytes)


class HostMemory:
    """Lends tensors on the host, and takes their memory back when they are dropped.

    Each step needs the same few large tensors. What is lent comes back once neither the tensor nor
    anything made of its memory is referred to. Lending is safe from any thread.
    """

    def __init__(self) -> None:
        self._idle: list[NDArray[np.uint8]] = []
        # Memory comes back wherever its last reader is dropped, also amid a call to this object.
        self._lock = threading.RLock()

    def lend(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A tensor whose values are arbitrary, aligned to 64 bytes."""
        owner = self._idle_or_new(_num_bytes(shape, dtype) + _ALIGNMENT_BYTES)
        # Views of an array refer to whoever owns its memory, so the lent array must not be a view
        # of `owner` in NumPy's eyes, or nobody would know when it is dropped.
        lent = np.frombuffer(owner.data, np.uint8)
        weakref.finalize(lent, self._take_back, owner).atexit = False
        return _as_tensor(lent, shape, dtype)

    def _take_back(self, owner: NDArray[np.uint8]) -> None:
        with self._lock:
            self._idle.append(owner)
            del self._idle[:-_MOST_IDLE]

    def _idle_or_new(self, num_bytes: int) -> NDArray[np.uint8]:
        # The best fit, not looser than twice, so that small requests leave large memory alone.
        fits = [o for o in list(self._idle) if num_bytes <= len(o) <= 2 * num_bytes + _ROOM_BYTES]
        for owner in sorted(fits, key=len):
            if self._claim(owner):
                return owner
        return np.empty(num_bytes + num_bytes // 8, np.uint8)

    def _claim(self, owner: NDArray[np.uint8]) -> bool:
        """Take `owner` out of the idle ones, unless another thread was faster."""
        with self._lock:
            for place, idle in enumerate(self._idle):
                if idle is owner:
                    del self._idle[place]
                    return True
        return False


def _num_bytes(shape: Sequence[int], dtype: torch.dtype) -> int:
    return math.prod(shape) * dtype.itemsize


def _as_tensor(
    memory: NDArray[np.uint8],
    shape: Sequence[int],
    dtype: torch.dtype,
    align_bytes: int = _ALIGNMENT_BYTES,
) -> Tensor:
    start = -memory.ctypes.data % align_bytes
    cut = memory[start : start + _num_bytes(shape, dtype)]
    return torch.from_numpy(cut).view(dtype).view(*shape)
