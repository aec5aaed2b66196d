"""The values that a model's blocks exchange, and their shapes, which are known before any batch.

A *shape* is static: it has the width, the number of vectors, or the columns. The *value* of a shape
consists of tensors only. So torch's compiler and exporters only handle tensors, while code that
builds models uses names. `made_by` is the name, for error messages, of the block whose output has
the shape.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from distrain.errors import ModelError


@dataclass(frozen=True)
class Column:
    """An input column, or one of the tables over it.

    `part` is the table's part of the model, such as "wide". It is "" for the main part and for
    continuous columns.
    """

    name: str
    tags: tuple[str, ...] = ()
    part: str = ""

    @property
    def table(self) -> str:
        """The name of the column's table; in the main part it is the column's name.

        >>> Column("C1", part="wide").table
        'wide/C1'
        """
        return f"{self.part}/{self.name}" if self.part else self.name


@dataclass(frozen=True)
class Flat:
    """The shape of a tensor `[rows, width]`."""

    width: int
    made_by: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"[rows, {self.width}]"


@dataclass(frozen=True)
class Vectors:
    """The shape of a tensor `[rows, count, dim]`."""

    count: int
    dim: int
    made_by: str = field(default="", compare=False)

    @property
    def width(self) -> int:
        return self.count * self.dim

    def __str__(self) -> str:
        return f"[rows, {self.count}, {self.dim}]"


@dataclass(frozen=True)
class Group:
    """Columns whose embeddings have the width `dim`: the tensor `[rows, len(columns), dim]`."""

    dim: int
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Events:
    """Events of a row, oldest first, whose fields are aligned lists; see `EventValues`.

    Attributes:
        lists: The lists of ids, by their indices among the sequences of `EmbeddingCollection`.
        numbers: The lists of numbers.
        max_length: The largest number of events of a row. Only the newest events are kept.
    """

    name: str
    lists: Mapping[int, Column]
    dims: tuple[int, ...]  # the widths of their embeddings
    numbers: tuple[Column, ...]
    max_length: int


@dataclass(frozen=True)
class Columns:
    """Embeddings and continuous columns, by name; the value is `Features`.

    The embeddings are one tensor per group, as `EmbeddingCollection.lookup` returns them.
    """

    groups: tuple[Group, ...]
    continuous: tuple[Column, ...]
    made_by: str = field(default="", compare=False)
    events: tuple[Events, ...] = ()

    @property
    def width(self) -> int:
        """The flat width: all groups and the continuous columns, without events."""
        return sum(len(g.columns) * g.dim for g in self.groups) + len(self.continuous)

    def __str__(self) -> str:
        groups = [f"{len(g.columns)} embeddings of {g.dim}" for g in self.groups]
        events = [f"the events {one.name!r}" for one in self.events]
        return ", ".join([*groups, f"{len(self.continuous)} continuous columns", *events])


@dataclass(frozen=True)
class Branches:
    """Named shapes; the value is a dictionary of their values."""

    shapes: Mapping[str, "Shape"]
    made_by: str = field(default="", compare=False)

    @property
    def width(self) -> int:
        return sum(shape.width for shape in self.shapes.values())

    def __str__(self) -> str:
        return "{" + ", ".join(f"{name}: {shape}" for name, shape in self.shapes.items()) + "}"


Shape = Flat | Vectors | Columns | Branches


class EventLists(NamedTuple):
    """The parts of `EventValues` that are not embeddings: they come directly from the batch."""

    offsets: Tensor  # `[rows + 1]`: where each row's events begin
    numbers: Tensor  # `[events, lists of numbers]`
    host_offsets: NDArray[Any] | None = None  # as in `Ragged`


class EventValues(NamedTuple):
    """The value whose shape is `Events`: the events of all rows of a batch, row after row."""

    embedded: tuple[Tensor, ...]  # for each list of ids `[events, dim]`
    numbers: Tensor  # `[events, lists of numbers]`
    offsets: Tensor  # `[rows + 1]`: the start of each row's events
    host_offsets: NDArray[Any] | None = None  # as in `Ragged`


class Features(NamedTuple):
    """The value of `Columns`: a tensor of embeddings for each width, and continuous columns.

    The embeddings of a `Group` are `[rows, its columns, dim]`.

    `drawn` has the embeddings of items drawn for the rows, `[drawn, dim]`, row after row.
    """

    embedded: tuple[Tensor, ...]
    continuous: Tensor
    events: tuple[EventValues, ...] = ()
    drawn: Tensor | None = None


class GroupedRows(NamedTuple):
    """Rows of several widths, implicitly padded with zeros, grouped by width.

    >>> rows = GroupedRows((torch.ones(1, 3), torch.ones(2, 1)), torch.tensor([1, 0, 2]), 3)
    >>> rows.dense().tolist()
    [[1.0, 0.0, 0.0], [1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]
    >>> rows.times(torch.ones(1, 3)).tolist()
    [[1.0], [3.0], [1.0]]
    """

    groups: tuple[Tensor, ...]  # `[rows of the group, width of the group]`
    places: Tensor  # `[rows]`: the index of each row in the concatenated groups
    width: int  # of a padded row

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.places), self.width

    def dense(self) -> Tensor:
        """Return the padded rows, `[rows, width]`."""
        more = [self.width - group.shape[1] for group in self.groups]
        wide = [functional.pad(one, (0, n)) for one, n in zip(self.groups, more, strict=True)]
        return functional.embedding(self.places, torch.cat(wide))

    def times(self, weight: Tensor) -> Tensor:
        """Return `dense() @ weight.t()`, `[rows, outputs]`, without the padded rows in memory."""
        products = [functional.linear(one, weight[:, : one.shape[1]]) for one in self.groups]
        return functional.embedding(self.places, torch.cat(products))


Value = Tensor | Features | GroupedRows | dict[str, "Value"]


def flat_parts(value: Value) -> list[Tensor]:
    """Flatten any value to parts `[rows, width]`; only `GroupedRows` are copied, to be padded.

    >>> parts = flat_parts(Features((torch.zeros(5, 2, 3),), torch.zeros(5, 4)))
    >>> [tuple(part.shape) for part in parts]
    [(5, 6), (5, 4)]
    """
    return [part.dense() if isinstance(part, GroupedRows) else part for part in all_parts(value)]


def all_parts(value: Value) -> list[Tensor | GroupedRows]:
    """Flatten any value to parts like `flat_parts`, but leave `GroupedRows` unchanged."""
    if isinstance(value, GroupedRows):
        return [value]
    if isinstance(value, Tensor):
        return [value if value.dim() == 2 else value.flatten(1)]
    if isinstance(value, Features):
        parts: list[Tensor | GroupedRows] = [group.flatten(1) for group in value.embedded]
        return [*parts, value.continuous] if value.continuous.shape[1] or not parts else parts
    return [part for one in value.values() for part in all_parts(one)]


def flat(value: Value) -> Tensor:
    """Flatten any value to `[rows, width]`."""
    parts = flat_parts(value)
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def some_width(shape: Shape, who: str) -> int:
    """Return the flat width of a shape; `ModelError` if it is 0 or the shape has events.

    `who` is the block that needs it, for the message.
    """
    if isinstance(shape, Columns) and shape.events:
        names = ", ".join(repr(events.name) for events in shape.events)
        raise ModelError(
            f"{who} needs one value per row, but {shape.made_by} returns the events {names}",
            hint="Put a Filter without events before it, beside a block for the events.",
        )
    if shape.width == 0:
        raise ModelError(f"{who} has no inputs: {shape.made_by} returns {shape}")
    return shape.width


def vectors_of(shape: Shape, who: str) -> Vectors:
    """Return the shape of `stacked(value)` for a value of the given shape.

    Raises ModelError unless the value consists of vectors of equal width: `Vectors`, embeddings of
    one width without other columns, or branches of these or of flat shapes. `who` is the block that
    needs them, for the message.
    """
    if isinstance(shape, Vectors):
        return shape
    if (
        isinstance(shape, Columns)
        and len(shape.groups) == 1
        and not (shape.continuous or shape.events)
    ):
        return Vectors(len(shape.groups[0].columns), shape.groups[0].dim, shape.made_by)
    if isinstance(shape, Branches):
        shapes = [vectors_of_branch(one) for one in shape.shapes.values()]
        if len({one.dim for one in shapes}) == 1:
            return Vectors(sum(one.count for one in shapes), shapes[0].dim, shape.made_by)
    raise ModelError(
        f"{who} needs vectors of equal width, but {shape.made_by} returns {shape}",
        hint="Give all embeddings the same width, and project continuous columns to it.",
    )


def vectors_of_branch(shape: Shape) -> Vectors:
    """Return the vectors that a branch contributes to a stack; a flat branch is one vector."""
    return Vectors(1, shape.width) if isinstance(shape, Flat) else vectors_of(shape, "a stack")


def stacked(value: Value) -> Tensor:
    """Return a row's vectors, `[rows, count, dim]`, of a value whose shape `vectors_of` accepts."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Features):
        return value.embedded[0]
    if isinstance(value, GroupedRows):
        return value.dense()
    return torch.cat([_vectors_of_branch(one) for one in value.values()], dim=1)


def _vectors_of_branch(value: Value) -> Tensor:
    if isinstance(value, Tensor) and value.dim() == 2:
        return value.unsqueeze(1)
    return stacked(value)
