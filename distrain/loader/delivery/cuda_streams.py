"""The loaders' CUDA stream, its ordering relative to consumers' streams, and devices by name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from distrain.errors import SpecError
from distrain.storage.retrying import first_line

_side_streams: dict[torch.device, torch.cuda.Stream] = {}
_side_streams_lock = threading.Lock()


class CudaStreams:
    """A GPU's side stream, for the loaders' work; orders it relative to the consumers' streams."""

    def __init__(self, device: torch.device):
        self.device = device

    @property
    def side(self) -> torch.cuda.Stream:
        """The stream for all loaders' work. The first use initialises the GPU.

        torch caches memory per stream, so a stream for each loader would keep memory unused.
        """
        with _side_streams_lock:  # otherwise two threads could create two streams
            if self.device not in _side_streams:
                stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
                _side_streams[self.device] = stream
            return _side_streams[self.device]

    def holds(self, tensor: Tensor) -> bool:
        return tensor.device == self.device

    def copy(self, tensor: Tensor) -> Tensor:
        """Start a copy of a host tensor to the GPU on the current stream, and return the copy.

        The host tensor must live until the copy is complete.
        """
        return tensor.to(self.device, non_blocking=True)

    def on_side_stream(self) -> AbstractContextManager[Any]:
        """Return a context in which the side stream is the calling thread's current stream."""
        return torch.cuda.stream(self.side)

    def mark(self) -> torch.cuda.Event:
        """Return an event that completes after all work queued on the side stream so far."""
        # `blocking`: a thread that waits for the event sleeps instead of polling.
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        event.record(self.side)
        return event

    def follow(self, event: torch.cuda.Event, memory: Sequence[Tensor]) -> None:
        """Make the calling thread's current stream wait for an event; the thread does not wait.

        `memory` are tensors that were allocated on the side stream. When they are dropped, torch
        reuses their memory only after the work that was queued on the current stream until then.
        """
        current = torch.cuda.current_stream(self.device)
        current.wait_event(event)
        for tensor in memory:
            tensor.record_stream(current)


def resolve_device(device: torch.device | str | None) -> torch.device | None:
    """Return a device by its name; `None` for `None`, which leaves batches on the host.

    For `"cuda"` without an index, return the calling thread's current GPU with its index: other
    threads may have another current GPU.

    Raises:
        SpecError: There is no such device here, or batches cannot be put there.
    """
    if device is None:
        return None
    try:
        requested = torch.device(device)
    except RuntimeError as error:
        raise SpecError(f"unknown device {device!r}: {first_line(error)}") from None
    if requested.type == "cpu":
        return requested
    if requested.type != "cuda":
        raise SpecError(f"the loader puts batches on cpu or cuda devices, not {requested}")
    if not torch.cuda.is_available():
        raise SpecError(
            f"device is {requested}, but torch finds no NVIDIA GPU",
            hint="`distrain doctor` shows why; device=None leaves batches on the host.",
        )
    index = torch.cuda.current_device() if requested.index is None else requested.index
    if index >= torch.cuda.device_count():
        raise SpecError(f"device is {requested}, but there are {torch.cuda.device_count()} GPUs")
    return torch.device("cuda", index)


def new_streams(device: torch.device | None) -> CudaStreams | None:
    """Return the streams of a device from `resolve_device`; `None` for the host."""
    return None if device is None or device.type == "cpu" else CudaStreams(device)


def thread_set_up(device: torch.device | None, *, pinned: bool) -> Callable[[], None]:
    """Return a function that each of the loader's threads calls first, to set its current GPU.

    A new thread's current GPU is the first one. Page-locked memory (`pinned`) initialises the
    current GPU if no GPU is initialised, which costs several hundred MB of its memory. So threads
    use `device` if it is a GPU with an index. Otherwise they use the caller's current GPU if
    batches are page-locked or go to a GPU, and else none: the function then does nothing.
    """
    if device is not None and device.type == "cuda" and device.index is not None:
        return partial(torch.cuda.set_device, device)
    if pinned or (device is not None and device.type == "cuda"):
        return partial(torch.cuda.set_device, torch.cuda.current_device())
    return lambda: None
