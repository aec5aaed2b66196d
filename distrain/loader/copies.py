"""What transforms made of a batch, moved to a device with as few copies as there are blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

_ALIGNMENT_BYTES = 16  # enough for any dtype; a view of raw bytes must begin at a multiple
_MOST_WASTE = 2  # a block is copied whole if its tensors cover at least one byte in so many


class Target(Protocol):
    """Where tensors go."""

    def holds(self, tensor: Tensor) -> bool:
        """Whether a tensor is there already."""
        ...

    def copy(self, tensor: Tensor) -> Tensor:
        """The same values there; the source may be read until the copy is complete."""
        ...


class Moved(NamedTuple):
    """An item on its target.

    Attributes:
        item: Like the source, with tensors on the target in place of those it had.
        memory: Tensors on the target that between them own all memory of the item's tensors.
        sources: Tensors elsewhere that the copies read.
    """

    item: Any
    memory: list[Tensor]
    sources: list[Tensor]


class _Span(NamedTuple):
    """Bytes of a storage."""

    start: int
    stop: int


def move(item: Any, target: Target) -> Moved:
    """Move all tensors of an item.

    Tensors that are views of one storage, as the columns of a batch are, are moved by one copy of
    the bytes that they span, and are views of one storage again, with the same strides. A small
    part of a large storage is copied by itself.

    Args:
        item: Tensors in any nesting of dataclasses, mappings, named tuples, tuples and lists. Other
            objects stay as they are.
        target: Copies one tensor.
    """
    groups: dict[tuple[int, int], list[Tensor]] = {}

    def note(tensor: Tensor) -> Tensor:
        if _is_plain(tensor) and not target.holds(tensor):
            groups.setdefault(_storage_key(tensor), []).append(tensor)
        return tensor

    map_tensors(item, note)
    moved = Moved(item, [], [])
    copies = {
        key: (span, _copy_span(tensors[0], span, target, moved))
        for key, tensors in groups.items()
        if (span := _span_worth_copying(tensors)) is not None
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
    """The same nesting with other tensors.

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
    if is_dataclass(item) and not isinstance(item, type):
        names = [field.name for field in fields(item) if field.init]
        return replace(item, **{n: map_tensors(getattr(item, n), function) for n in names})
    return item


def _is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is no more than a view of memory."""
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


def _span_worth_copying(tensors: list[Tensor]) -> _Span | None:
    used = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    spans = [_span(tensor) for tensor in tensors]
    start = min(span.start for span in spans) // _ALIGNMENT_BYTES * _ALIGNMENT_BYTES
    whole = _Span(start, max(span.stop for span in spans))
    return whole if whole.stop - whole.start <= _MOST_WASTE * used + _ALIGNMENT_BYTES else None


def _span(tensor: Tensor) -> _Span:
    extent = sum(
        (n - 1) * int(stride) for n, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    first, size = int(tensor.storage_offset()), tensor.element_size()
    return _Span(first * size, (first + extent + 1) * size)


def _copy_span(tensor: Tensor, span: _Span, target: Target, moved: Moved) -> Tensor:
    storage = tensor.untyped_storage()
    source = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    source.set_(storage, span.start, (span.stop - span.start,), (1,))
    moved.sources.append(source)
    moved.memory.append(target.copy(source))
    return moved.memory[-1]


def _same_view(tensor: Tensor, span: _Span, copied: Tensor) -> Tensor:
    offset = tensor.storage_offset() - span.start // tensor.element_size()
    view = torch.empty(0, dtype=tensor.dtype, device=copied.device)
    return view.set_(copied.untyped_storage(), offset, tensor.shape, tensor.stride())
