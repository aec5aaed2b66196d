"""Allocates host memory for tensors: aligned, in huge pages, reused, page-locked for a GPU.

The first access to a page costs a page fault. If an embedding table is in pages of 4 KiB, almost
every row that is read costs a page walk. NumPy requests huge pages from the kernel for large
arrays, but torch does not. So large tensors use memory from NumPy here.

A GPU copies from and to page-locked memory at the rate of its bus, while the host continues. The
driver copies pageable memory twice, in small pieces, and the host waits.
"""

import itertools
import math
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_ALIGNMENT_BYTES = 64  # a cache line; a row of 16 float32 is then never in two cache lines
_MOST_IDLE = 16
_ROOM_BYTES = 1 << 16


def empty(
    shape: Sequence[int], dtype: torch.dtype, *, align_bytes: int = _ALIGNMENT_BYTES
) -> Tensor:
    """Return an uninitialised tensor on the host, aligned to `align_bytes`, by default 64.

    >>> empty((3, 16), torch.float32).data_ptr() % 64
    0
    """
    memory = np.empty(_num_bytes(shape, dtype) + align_bytes, np.uint8)
    return _as_tensor(memory, shape, dtype, align_bytes)


class HostMemory:
    """Lends tensors on the host, and reuses their memory when they are dropped.

    Each step needs the same few large tensors. A tensor's memory is reused when no reference to the
    tensor or to a view of its memory is left. Lending is thread-safe.
    """

    def __init__(self) -> None:
        self._idle: list[NDArray[np.uint8]] = []
        # Reentrant, since a finalizer takes memory back in the thread that drops the last
        # reference, possibly while that thread holds the lock.
        self._lock = threading.RLock()

    def allocate(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return an uninitialised tensor, aligned to 64 bytes."""
        owner = self._idle_or_new(_num_bytes(shape, dtype) + _ALIGNMENT_BYTES)
        # NumPy's views refer to the array that owns their memory. If `lent` were a view of `owner`,
        # views of `lent` would keep only `owner` alive, and `lent` would be finalized too early.
        lent = np.frombuffer(owner.data, np.uint8)
        weakref.finalize(lent, self._take_back, owner).atexit = False
        return _as_tensor(lent, shape, dtype)

    def _take_back(self, owner: NDArray[np.uint8]) -> None:
        with self._lock:
            self._idle.append(owner)
            del self._idle[:-_MOST_IDLE]

    def _idle_or_new(self, num_bytes: int) -> NDArray[np.uint8]:
        # The best fit, at most twice as large, so that small requests do not use up large memory.
        fits = [o for o in list(self._idle) if num_bytes <= len(o) <= 2 * num_bytes + _ROOM_BYTES]
        for owner in sorted(fits, key=len):
            if self._claim(owner):
                return owner
        return np.empty(num_bytes + num_bytes // 8, np.uint8)

    def _claim(self, owner: NDArray[np.uint8]) -> bool:
        """Remove an array from the idle ones, to use it; return False if another thread has it."""
        with self._lock:
            for place, idle in enumerate(self._idle):
                if idle is owner:
                    del self._idle[place]
                    return True
        return False


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Return a copy of a small host tensor on a device; the host does not wait for the copy.

    For the device "cpu", return the tensor itself.
    """
    locked = values.pin_memory() if device.type == "cuda" else values
    return locked.to(device, non_blocking=True)


class Slab:
    """Reusable host memory for copies from or to a device, one piece at a time.

    The memory is page-locked for a GPU. All pieces share it, so a piece must no longer be in use
    when the next one is requested. At least `least_bytes` are allocated, so that later pieces fit.
    """

    def __init__(self, least_bytes: int = 0) -> None:
        self._least_bytes = least_bytes
        self._memory = empty((0,), torch.uint8)
        self._is_locked = False

    def allocate(self, num_bytes: int, device: torch.device) -> Tensor:
        """Return `num_bytes` uninitialised bytes, uint8, page-locked if the device is a GPU."""
        locked = device.type == "cuda"
        if len(self._memory) < num_bytes or self._is_locked < locked:
            size = (max(num_bytes, self._least_bytes),)
            self._memory = empty((0,), torch.uint8)  # freed before the new memory is allocated
            self._is_locked = locked
            if locked:
                self._memory = torch.empty(size, dtype=torch.uint8, pin_memory=True)
            else:
                self._memory = empty(size, torch.uint8)
        return self._memory[:num_bytes]

    def allocate_like(self, values: Tensor, rows: int, device: torch.device) -> Tensor:
        """Return the slab's memory as `rows` rows with the dtype and the row shape of `values`."""
        shape = (rows, *values.shape[1:])
        return self.allocate(_num_bytes(shape, values.dtype), device).view(values.dtype).view(shape)

    def on_host(self, values: Tensor, *, non_blocking: bool = False) -> Tensor:
        """Return a copy of device values in this memory; values on the host are returned unchanged.

        With `non_blocking`, the host does not wait: the copy is valid once the device has finished
        its queued work.
        """
        if values.is_cpu:
            return values
        rows = len(values) if values.dim() else 1
        lent = self.allocate_like(values, rows, values.device).view(values.shape)
        return lent.copy_(values, non_blocking=non_blocking)


def in_turn(batches: Iterable[Tensor]) -> Iterator[Tensor]:
    """Yield each tensor on the host; a tensor that is there already is yielded as it is.

    A tensor on a GPU is copied to memory of its own. It is yielded after the next one was requested
    from `batches`, so that the GPU computes the next one during the copy.
    """
    slabs, copies = itertools.cycle((Slab(), Slab())), list[tuple[Tensor, Any]]()
    for values in batches:
        if values.is_cpu:
            yield values
            continue
        arriving = next(slabs).on_host(values, non_blocking=True)
        copies.append((arriving, event_after(values.device)))
        if len(copies) > 1:
            yield _arrived(*copies.pop(0))
    for arriving, event in copies:
        yield _arrived(arriving, event)


def event_after(device: torch.device) -> torch.cuda.Event | None:
    """Return an event after all work queued on a GPU's current stream; `None` for other devices."""
    return torch.cuda.current_stream(device).record_event() if device.type == "cuda" else None


def _arrived(values: Tensor, event: torch.cuda.Event | None) -> Tensor:
    if event is not None:
        event.synchronize()
    return values.clone()


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
