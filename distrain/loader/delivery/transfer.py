"""Applies transforms to finished batches, and copies them to a device with few copies.

Tensors that are views of one storage, as the columns of a batch are, are copied together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from distrain.loader.batch import Batch, Ragged
from distrain.loader.delivery.cuda_streams import CudaStreams

Transform = Callable[[Any], Any]

_MOST_COPIES = 2  # one running copy and one waiting copy keep the bus busy
# A view of raw bytes as another dtype must begin at a multiple of its size; 16 suits any dtype.
_ALIGNMENT_BYTES = 16
_MOST_WASTE = 2  # tensors of a storage are copied together if they cover half of the range


class HostDelivery:
    """Applies transforms to batches, and leaves them on the host.

    Only `hand_over` may be called from the consumer's thread.
    """

    def __init__(self, transforms: Sequence[Transform] = ()):
        self._transforms = tuple(transforms)

    def prepare(self, batch: Batch) -> Any:
        item: Any = batch
        for transform in self._transforms:
            item = transform(item)
        return item

    def hand_over(self, item: Any) -> Any:
        return item

    def close(self) -> None: ...


class BatchInTransfer(NamedTuple):
    item: Any
    memory: list[Tensor]
    event: torch.cuda.Event


class DeviceDelivery:
    """Copies batches to a GPU on a side stream.

    The consumer's stream waits for the copies, but the consumer's thread does not.

    Page-locked memory is kept alive until its copy is complete. Torch itself does so only for
    copies that start at the beginning of an allocation, as views of a block often do not.
    """

    def __init__(self, streams: CudaStreams, transforms: Sequence[Transform] = ()):
        self._streams = streams
        self._transform = HostDelivery(transforms).prepare
        self._copying: deque[tuple[torch.cuda.Event, list[Tensor]]] = deque()

    def prepare(self, batch: Any) -> BatchInTransfer:
        """Transform a batch on the side stream, and start its copy.

        Does not wait for this copy, but for older ones if more than two are running.
        """
        with self._streams.on_side_stream():
            moved = move(self._transform(batch), self._streams)
            event = self._streams.mark()
        if moved.sources:
            self._hold(event, moved.sources)
        return BatchInTransfer(moved.item, moved.memory, event)

    def hand_over(self, item: BatchInTransfer) -> Any:
        self._streams.follow(item.event, item.memory)
        return item.item

    def close(self) -> None:
        while self._copying:
            self._finish_oldest()

    def _hold(self, event: torch.cuda.Event, sources: list[Tensor]) -> None:
        self._copying.append((event, sources))
        while self._copying[0][0].query() or len(self._copying) > _MOST_COPIES:  # type: ignore[no-untyped-call]
            self._finish_oldest()
            if not self._copying:
                break

    def _finish_oldest(self) -> None:
        self._copying[0][0].synchronize()
        self._copying.popleft()


Delivery = HostDelivery | DeviceDelivery


def new_delivery(streams: CudaStreams | None, transforms: Sequence[Transform]) -> Delivery:
    return HostDelivery(transforms) if streams is None else DeviceDelivery(streams, transforms)


class Moved(NamedTuple):
    """The result of `move`: the item on the GPU, the tensors of its memory, and their sources.

    `sources`, the tensors that were copied, must be kept alive until the copies are complete.
    """

    item: Any
    memory: list[Tensor]
    sources: list[Tensor]


def move(item: Any, target: CudaStreams) -> Moved:
    """Copy an item's tensors to the GPU, in any nesting of dataclasses, mappings, tuples and lists.

    The copies run on the current stream, and the host does not wait for them. Tensors that are on
    the GPU already are not copied.

    Tensors that are views of one storage, such as the columns of a batch, are moved by one copy of
    the bytes from the first to the last, and are views of one storage again, with the same strides.
    If the tensors cover less than half of these bytes, each tensor is copied separately.
    """
    groups: dict[tuple[int, int], list[Tensor]] = {}

    def group(tensor: Tensor) -> Tensor:
        if _is_plain(tensor) and not target.holds(tensor):
            groups.setdefault(_storage_key(tensor), []).append(tensor)
        return tensor

    map_tensors(item, group)
    moved = Moved(item, [], [])
    copies = {
        key: (byte_range, _copy_range(tensors[0], byte_range, target, moved))
        for key, tensors in groups.items()
        if (byte_range := _range_worth_copying(tensors)) is not None
    }

    def there(tensor: Tensor) -> Tensor:
        if target.holds(tensor):
            moved.memory.append(tensor)
            return tensor
        if _is_plain(tensor) and (copied := copies.get(_storage_key(tensor))) is not None:
            return _same_view(tensor, *copied)
        moved.sources.append(tensor)
        moved.memory.append(target.copy(tensor))
        return moved.memory[-1]

    return moved._replace(item=map_tensors(item, there))


def map_tensors(item: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Return the same nesting with `function` applied to each tensor.

    >>> map_tensors({"a": (torch.tensor([1]), "x")}, lambda tensor: tensor + 1)
    {'a': (tensor([2]), 'x')}
    """
    if isinstance(item, Tensor):
        return function(item)
    if isinstance(item, Mapping):
        return {key: map_tensors(value, function) for key, value in item.items()}
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return type(item)(*(map_tensors(value, function) for value in item))
    if type(item) in (tuple, list):
        return type(item)(map_tensors(value, function) for value in item)
    if isinstance(item, Ragged):
        return item.mapped(function)
    if is_dataclass(item) and not isinstance(item, type):
        names = [field.name for field in fields(item) if field.init]
        return replace(item, **{n: map_tensors(getattr(item, n), function) for n in names})
    return item


def _is_plain(tensor: Tensor) -> bool:
    return (
        type(tensor) is Tensor
        and tensor.layout == torch.strided
        and tensor.numel() > 0
        and not tensor.requires_grad
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
    )


def _storage_key(tensor: Tensor) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()


def _range_worth_copying(tensors: list[Tensor]) -> range | None:
    used = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    ranges = [_byte_range(tensor) for tensor in tensors]
    start = min(byte_range.start for byte_range in ranges) // _ALIGNMENT_BYTES * _ALIGNMENT_BYTES
    whole = range(start, max(byte_range.stop for byte_range in ranges))
    return whole if len(whole) <= _MOST_WASTE * used + _ALIGNMENT_BYTES else None


def _byte_range(tensor: Tensor) -> range:
    extent = sum(
        (n - 1) * int(stride) for n, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    first, size = int(tensor.storage_offset()), tensor.element_size()
    return range(first * size, (first + extent + 1) * size)


def _copy_range(tensor: Tensor, byte_range: range, target: CudaStreams, moved: Moved) -> Tensor:
    storage = tensor.untyped_storage()
    source = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    source.set_(storage, byte_range.start, (len(byte_range),), (1,))
    moved.sources.append(source)
    moved.memory.append(target.copy(source))
    return moved.memory[-1]


def _same_view(tensor: Tensor, byte_range: range, copied: Tensor) -> Tensor:
    offset = tensor.storage_offset() - byte_range.start // tensor.element_size()
    view = torch.empty(0, dtype=tensor.dtype, device=copied.device)
    return view.set_(copied.untyped_storage(), offset, tensor.shape, tensor.stride())
