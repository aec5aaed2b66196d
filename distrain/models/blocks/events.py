"""What blocks over a row's events have in common: vectors of the events, and of their target."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

from distrain.batch import Ragged
from distrain.errors import ModelError
from distrain.models.blocks.block import Block
from distrain.models.shapes import Columns, Events, Features, Shape
from distrain.schema import Tags


class EventBlock(Block):
    """A block that reads a row's events, and their target: the same fields of the row itself.

    The target's vector is its fields' embeddings side by side, and an event's those of the same
    fields. What else an event has, other lists of ids and numbers, is added to its vector by a
    linear layer; a time difference comes in there as `log10(1 + s)`.

    Args:
        events: Their name: the property `event` of the schema's columns.
        targets: For each list of ids that has one, the flat column of the target.

    Raises:
        ModelError: There are no such events or columns, no list has a target, or the embeddings of
            a list and its target differ in width.
    """

    takes_times = True  # whether time differences are among what else an event has

    def __init__(self, events: str, targets: Mapping[str, str]):
        super().__init__()
        self.events = events
        self.targets = dict(targets)

    @property
    def label(self) -> str:
        return f"{type(self).__name__}({self.events!r})"

    def build_fields(self, given: Shape) -> int:
        """Find the fields that events and target share; returns the width of the vectors."""
        found = self._events_of(given)
        assert isinstance(given, Columns)
        self.max_length = found.max_length
        self._place = given.events.index(found)
        self._targets: list[tuple[int, int]] = []
        self._fields: list[int] = []
        width = 0
        for field, (column, dim) in enumerate(zip(found.lists.values(), found.dims, strict=True)):
            if column.name in self.targets:
                self._targets.append(self._target(given, column.name, column.part, dim))
                self._fields.append(field)
                width += dim
        unknown = set(self.targets) - {column.name for column in found.lists.values()}
        if unknown or not width:
            raise ModelError(
                f"{self.label} needs the target of a list, and "
                + (f"has no list {', '.join(sorted(unknown))}" if unknown else "is given none"),
                where={"lists": ", ".join(column.name for column in found.lists.values())},
                hint="Name the row's own column for a list of its events.",
            )
        return width

    def build_vectors(self, given: Shape) -> int:
        """The same, and make the layer of what else events have."""
        width, found = self.build_fields(given), self._events_of(given)
        timed = [column.tags.count(Tags.TIME_DIFFERENCE) > 0 for column in found.numbers]
        self._times = [place for place, is_time in enumerate(timed) if is_time]
        self._numbers = [place for place, is_time in enumerate(timed) if not is_time]
        self._others = [i for i in range(len(found.dims)) if i not in self._fields]
        extra = sum(found.dims[i] for i in self._others) + len(self._numbers)
        extra += len(self._times) if self.takes_times else 0
        self.register_module("extra", nn.Linear(extra, width, bias=False) if extra else None)
        return width

    def fields(self, value: Features) -> tuple[Tensor, Tensor, Tensor]:
        """As `vectors`, of the shared fields alone."""
        events = value.events[self._place]
        target = torch.cat([value.embedded[group][:, i] for group, i in self._targets], dim=1)
        vectors = torch.cat([events.embedded[field] for field in self._fields], dim=1)
        return target, vectors, events.offsets

    def vectors(self, value: Features) -> tuple[Tensor, Tensor, Tensor]:
        """The target's vector, `[rows, width]`, the events', `[events, width]`, their offsets."""
        events = value.events[self._place]
        target, vectors, _ = self.fields(value)
        if isinstance(self.extra, nn.Linear):
            extra = [events.embedded[field] for field in self._others]
            extra.append(events.numbers[:, self._numbers].to(vectors.dtype))
            if self.takes_times:
                extra.append((1 + events.numbers[:, self._times]).log10().to(vectors.dtype))
            vectors = vectors + self.extra(torch.cat(extra, dim=1))
        if torch.compiler.is_compiling():  # see `Ragged.newest`
            rows = Ragged(vectors, events.offsets).row_of_values
            places = torch.arange(vectors.shape[0], device=vectors.device)
            kept = events.offsets[1:][rows] - places <= self.max_length
            vectors = vectors * kept[:, None]
        return target, vectors, events.offsets

    def longest(self, offsets: Tensor) -> int:
        """The length that holds each row's events, at least 1; waits for the device."""
        if torch.compiler.is_compiling() or offsets.shape[0] < 2:
            return self.max_length
        return max(1, int(offsets.diff().max()))

    def _events_of(self, given: Shape) -> Events:
        known = given.events if isinstance(given, Columns) else ()
        for found in known:
            if found.name == self.events:
                return found
        raise ModelError(
            f"{self.label} finds no such events in {given} of {given.made_by}",
            where={"events": ", ".join(found.name for found in known) or "none"},
            hint='Give the lists of the events the combiner "sequence" in Embeddings.',
        )

    def _target(self, given: Columns, name: str, part: str, dim: int) -> tuple[int, int]:
        target = self.targets[name]
        for number, group in enumerate(given.groups):
            for place, column in enumerate(group.columns):
                if (column.name, column.part) == (target, part):
                    if group.dim == dim:
                        return number, place
                    raise ModelError(
                        f"the list {name!r} and its target {target!r} differ in width",
                        where={name: dim, target: group.dim},
                        hint="Give both one width, or one table.",
                    )
        raise ModelError(
            f"{given.made_by} gives no column {target!r}, the target of the list {name!r}",
            hint="It is a flat categorical column.",
        )


def of_rows(values: Tensor, rows: Tensor) -> Tensor:
    """`values[rows]`, `[n, dim]`: its backward pass adds in one order, and is the quickest one."""
    return functional.embedding(rows, values)


def sum_of_rows(values: Tensor, offsets: Tensor) -> Tensor:
    """The sums of the values of each row, `[rows, dim]`.

    >>> sum_of_rows(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([0, 2, 2, 3])).tolist()
    [[3.0], [0.0], [4.0]]
    """
    if torch.compiler.is_compiling() or not len(values):
        sums = values.new_zeros(offsets.shape[0] - 1, values.shape[1])
        return sums.index_add(0, Ragged(values, offsets).row_of_values, values)
    return torch.segment_reduce(values, "sum", offsets=offsets.long(), axis=0)


def padded(values: Tensor, offsets: Tensor, length: int, *, newest_first: bool = False) -> Tensor:
    """Each row's vectors, `[rows, length, dim]`, with zeros after them.

    Of more than `length`, the newest. They stand in their order, or the newest one first.

    >>> values, offsets = torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([0, 2, 2, 3])
    >>> padded(values, offsets, 2)[..., 0].tolist()
    [[1.0, 2.0], [0.0, 0.0], [4.0, 0.0]]
    >>> padded(values, offsets, 2, newest_first=True)[..., 0].tolist()
    [[2.0, 1.0], [0.0, 0.0], [4.0, 0.0]]
    """
    places = torch.arange(length, device=offsets.device)
    ends = offsets[1:, None].long()
    starts = ends - (ends - offsets[:-1, None]).clamp(max=length)
    index = ends - places if newest_first else starts + places + 1
    # Of row 0, which is zeros and gets no gradient, there are as many as padding needs.
    with_zeros = torch.cat([values.new_zeros(1, values.shape[1]), values])
    index = torch.where(places < ends - starts, index, 0)
    return functional.embedding(index, with_zeros, padding_idx=0)
