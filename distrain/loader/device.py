"""From the host to a device, beside the consumer's work."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from distrain.errors import SpecError
from distrain.loader.copies import move
from distrain.loader.delivery import Delivery, HostDelivery, Transform

_MOST_COPIES = 2  # one that runs and one that waits keep the link busy


_side_streams: dict[torch.device, torch.cuda.Stream] = {}
_side_streams_lock = threading.Lock()


class Event(Protocol):
    """A point in a stream's work."""

    def query(self) -> bool:
        """Whether the work up to there is done."""
        ...

    def synchronize(self) -> None:
        """Sleep until it is."""
        ...


class Streams(Protocol):
    """A device: a side stream for the loader's work, and the streams of those who consume."""

    def holds(self, tensor: Tensor) -> bool:
        """Whether a tensor is on the device."""
        ...

    def copy(self, tensor: Tensor) -> Tensor:
        """Begin to copy a tensor to the device, on the stream that is current."""
        ...

    def beside(self) -> AbstractContextManager[Any]:
        """Make the side stream the calling thread's current one."""
        ...

    def mark(self) -> Event:
        """The end of all that was put onto the side stream so far."""
        ...

    def follow(self, event: Event, memory: Sequence[Tensor]) -> None:
        """Let the calling thread's current stream go on after the event, without waiting here.

        The memory, which the side stream gave out, is not given out again before what the current
        stream has to do at the time when it is dropped is done.
        """
        ...


class CudaStreams:
    """A GPU as the loader uses it.

    All loaders of a process share one side stream for each GPU: torch keeps the memory of each
    stream apart, so a stream per loader, and one more for every evaluation, would hoard memory.

    Args:
        device: Which GPU, with its index.
    """

    def __init__(self, device: torch.device):
        self._device = device

    @property
    def side(self) -> torch.cuda.Stream:
        """The stream for the loader's work; the first use brings the GPU to life."""
        with _side_streams_lock:  # else two threads could begin on two streams
            if self._device not in _side_streams:
                stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
                _side_streams[self._device] = stream
            return _side_streams[self._device]

    def holds(self, tensor: Tensor) -> bool:
        """Whether a tensor is on this GPU."""
        return tensor.device == self._device

    def copy(self, tensor: Tensor) -> Tensor:
        """Begin to copy a tensor; it must live until the copy is complete."""
        return tensor.to(self._device, non_blocking=True)

    def beside(self) -> AbstractContextManager[Any]:
        """Make the side stream, and this GPU, the calling thread's current ones."""
        return torch.cuda.stream(self.side)

    def mark(self) -> torch.cuda.Event:
        """The end of all that was put onto the side stream so far."""
        # Whoever waits for it sleeps, and does not spin.
        event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        event.record(self.side)
        return event

    def follow(self, event: Any, memory: Sequence[Tensor]) -> None:
        """Let the calling thread's current stream on this GPU go on after the event."""
        current = torch.cuda.current_stream(self._device)
        current.wait_event(event)
        for tensor in memory:
            tensor.record_stream(current)


class OnItsWay(NamedTuple):
    """A batch whose copy to the device has begun.

    Attributes:
        item: What the consumer will get.
        memory: The device memory that it lies in.
        event: When it will be there.
    """

    item: Any
    memory: list[Tensor]
    event: Event


class DeviceDelivery:
    """Copies batches on a side stream; the consumer's stream waits for them, its thread does not.

    Page-locked memory is held until its copy is complete. Torch does so itself only for a copy that
    begins where an allocation begins, which views of a block often do not.

    Args:
        streams: The device.
        transforms: Applied one after another, before the copy.
    """

    def __init__(self, streams: Streams, transforms: Sequence[Transform] = ()):
        self._streams = streams
        self._transform = HostDelivery(transforms).prepare
        self._copying: deque[tuple[Event, list[Tensor]]] = deque()

    def prepare(self, batch: Any) -> OnItsWay:
        """Transform a batch and begin its copy.

        The transforms run with the side stream as current one, so what they do to tensors on the
        device comes after what made these, and before the consumer sees them.
        """
        with self._streams.beside():
            moved = move(self._transform(batch), self._streams)
            event = self._streams.mark()
        if moved.sources:
            self._hold(event, moved.sources)
        return OnItsWay(moved.item, moved.memory, event)

    def hand_over(self, item: OnItsWay) -> Any:
        """The batch, for use on the calling thread's current stream."""
        self._streams.follow(item.event, item.memory)
        return item.item

    def close(self) -> None:
        """Wait for the copies that still read host memory, and let go of it."""
        while self._copying:
            self._finish_oldest()

    def _hold(self, event: Event, sources: list[Tensor]) -> None:
        self._copying.append((event, sources))
        while self._copying[0][0].query() or len(self._copying) > _MOST_COPIES:
            self._finish_oldest()
            if not self._copying:
                break

    def _finish_oldest(self) -> None:
        self._copying[0][0].synchronize()
        self._copying.popleft()


def resolve_device(device: torch.device | str | None) -> torch.device | None:
    """The device that is meant; `None` for the host.

    A GPU without an index is the current one of the calling thread, by its index: other threads
    have a current GPU of their own, which is the first.

    Raises:
        SpecError: There is no such device here, or batches cannot be put there.
    """
    if device is None:
        return None
    try:
        wish = torch.device(device)
    except RuntimeError as error:
        raise SpecError(f"unknown device {device!r}: {str(error).splitlines()[0]}") from None
    if wish.type == "cpu":
        return wish
    if wish.type != "cuda":
        raise SpecError(f"the loader puts batches on cpu or cuda devices, not {wish}")
    if not torch.cuda.is_available():
        raise SpecError(
            f"device is {wish}, but torch finds no NVIDIA GPU",
            hint="`distrain doctor` says why; device=None leaves batches on the host.",
        )
    index = torch.cuda.current_device() if wish.index is None else wish.index
    if index >= torch.cuda.device_count():
        raise SpecError(f"device is {wish}, but there are {torch.cuda.device_count()} GPUs")
    return torch.device("cuda", index)


def new_streams(device: torch.device | None) -> CudaStreams | None:
    """The streams of a device from `resolve_device`; `None` for the host."""
    return None if device is None or device.type == "cpu" else CudaStreams(device)


def thread_set_up(device: torch.device | None, *, pinned: bool) -> Callable[[], None]:
    """What each of the loader's threads is to call first.

    A thread's current GPU is the first one whatever its maker's was, and page-locked memory brings
    the current GPU to life if none is: that costs some hundred MB of its memory.

    Args:
        device: Where batches go, from `resolve_device`.
        pinned: Whether threads page-lock memory; if nothing goes to a GPU they take the calling
            thread's current one.
    """
    if device is not None and device.type == "cuda":
        return partial(torch.cuda.set_device, device)
    if pinned:
        return partial(torch.cuda.set_device, torch.cuda.current_device())
    return _nothing


def new_delivery(streams: Streams | None, transforms: Sequence[Transform]) -> Delivery:
    """How batches get to the consumer; `None` leaves them on the host."""
    return HostDelivery(transforms) if streams is None else DeviceDelivery(streams, transforms)


def _nothing() -> None:
    """Nothing is to be set up."""
