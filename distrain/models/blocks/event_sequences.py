"""The common part of blocks over a row's events: vectors of the events, and of their target."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from distrain.errors import ModelError
from distrain.loader.batch import Ragged
from distrain.models.blocks.block import Block
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.shapes import Columns, Events, Features, Flat, GroupedRows, Shape
from distrain.schema.column import Tags


class EventBlock(Block):
    """A block that reads a row's events and their target, such as the item that the row is about.

    The events have fields, each in a list column, such as the item ids. A field's target is the
    flat column that has the same field for the row itself. The target's vector is the concatenation
    of the embeddings of all these columns. An event's vector is the concatenation of the
    embeddings of the same fields. A linear layer adds the event's other ids and numbers to its
    vector; a time difference of s seconds is used as `log10(1 + s)`.

    Args:
        events: The events' name: the property `event` of their columns in the schema.
        targets: For each list of ids with a target, the target's flat column.

    Raises:
        ModelError: There are no such events or columns, no list has a target, or the embeddings of
            a list and its target differ in width.
    """

    takes_times = True  # whether time differences are used

    def __init__(self, events: str, targets: Mapping[str, str]):
        super().__init__()
        self.events = events
        self.targets = dict(targets)

    @property
    def label(self) -> str:
        return f"{type(self).__name__}({self.events!r})"

    def build_fields(self, input_shape: Shape) -> int:
        """Find the fields that events and target share; return the width of the vectors.

        Raises `ModelError` if there are none, or `targets` names an unknown list.
        """
        events = self._events_of(input_shape)
        assert isinstance(input_shape, Columns)
        self.max_length = events.max_length
        self._place = input_shape.events.index(events)
        self._targets: list[tuple[int, int]] = []
        self._fields: list[int] = []
        width = 0
        for field, (column, dim) in enumerate(zip(events.lists.values(), events.dims, strict=True)):
            if column.name in self.targets:
                self._targets.append(self._target(input_shape, column.name, column.part, dim))
                self._fields.append(field)
                width += dim
        unknown = set(self.targets) - {column.name for column in events.lists.values()}
        if unknown or not width:
            raise ModelError(
                f"{self.label} needs the target of a list, and "
                + (f"has no list {', '.join(sorted(unknown))}" if unknown else "is given none"),
                where={"lists": ", ".join(column.name for column in events.lists.values())},
                hint="Name the row's own column for a list of its events.",
            )
        return width

    def build_vectors(self, input_shape: Shape) -> int:
        """Run `build_fields`, create the layer for other fields; return the vectors' width.

        The other fields are ids that `build_fields` does not choose, and numbers. Time differences
        are among them with `takes_times`.
        """
        width, events = self.build_fields(input_shape), self._events_of(input_shape)
        timed = [column.tags.count(Tags.TIME_DIFFERENCE) > 0 for column in events.numbers]
        self._times = [place for place, is_time in enumerate(timed) if is_time]
        self._numbers = [place for place, is_time in enumerate(timed) if not is_time]
        self._others = [i for i in range(len(events.dims)) if i not in self._fields]
        extra = sum(events.dims[i] for i in self._others) + len(self._numbers)
        extra += len(self._times) if self.takes_times else 0
        self.register_module("extra", nn.Linear(extra, width, bias=False) if extra else None)
        return width

    def fields(self, value: Features) -> tuple[Tensor, Ragged]:
        """Return the target's and the events' vectors, like `vectors`, from the shared fields only.

        These are the fields that events and target both have; other ids and numbers of the events
        are ignored.
        """
        events = value.events[self._place]
        target = torch.cat([value.embedded[group][:, i] for group, i in self._targets], dim=1)
        vectors = torch.cat([events.embedded[field] for field in self._fields], dim=1)
        return target, Ragged(vectors, events.offsets, events.host_offsets)

    def vectors(self, value: Features) -> tuple[Tensor, Ragged]:
        """Return the target's vector of each row, `[rows, width]`, and the events' vectors.

        The values of the `Ragged` are `[events, width]`. When torch compiles or exports, the
        vectors of a row's events before the newest `max_length` are zeros.
        """
        events = value.events[self._place]
        target, rows = self.fields(value)
        vectors = rows.values
        if isinstance(self.extra, nn.Linear):
            extra = [events.embedded[field] for field in self._others]
            extra.append(_columns(events.numbers, self._numbers).to(vectors.dtype))
            if self.takes_times:
                seconds = _columns(events.numbers, self._times).clamp(min=0)
                extra.append((1 + seconds).log10().to(vectors.dtype))
            vectors = vectors + self.extra(torch.cat(extra, dim=1))
        if torch.compiler.is_compiling():  # see `Ragged.newest`
            places = torch.arange(vectors.shape[0], device=vectors.device)
            kept = events.offsets[1:][rows.row_of_values] - places <= self.max_length
            vectors = vectors * kept[:, None]
        return target, replace(rows, values=vectors)

    def longest(self, rows: Ragged) -> int:
        """Return the largest number of events that any of the rows has, at least 1.

        Returns `max_length` if there are no rows, or when torch compiles or exports.
        """
        if torch.compiler.is_compiling() or rows.offsets.shape[0] < 2:
            return self.max_length
        return max(1, int(np.diff(rows.offsets_on_host()).max()))

    def _events_of(self, input_shape: Shape) -> Events:
        known = input_shape.events if isinstance(input_shape, Columns) else ()
        for found in known:
            if found.name == self.events:
                return found
        raise ModelError(
            f"{self.label} finds no such events in {input_shape} of {input_shape.made_by}",
            where={"events": ", ".join(found.name for found in known) or "none"},
            hint='Give the lists of the events the combiner "sequence" in Embeddings.',
        )

    def _target(self, input_shape: Columns, name: str, part: str, dim: int) -> tuple[int, int]:
        target = self.targets[name]
        for number, group in enumerate(input_shape.groups):
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
            f"{input_shape.made_by} returns no column {target!r}, the target of the list {name!r}",
            hint="The target must be a categorical column with one value per row.",
        )


def _columns(values: Tensor, places: Sequence[int]) -> Tensor:
    """Return `values[:, places]`; torch's indexing would first copy `places` to the GPU."""
    return torch.cat([values[:, :0], *(values[:, i : i + 1] for i in places)], dim=1)


class RowGroups:
    """Rows in groups of similar lengths, for kernels that need padding.

    A group has the same number of places (positions for values, the rest padding) for each of its
    rows. A group of more than 16,384 places has at most about twice as many places as values,
    unless it has one place for each row, for at most one value. A smaller group is not split
    further, so it may be mostly padding. When torch compiles or exports, there is one group, of
    `most` places a row.

    Args:
        values: The rows and their values.
        most: Maximum number of places of a row. A longer row keeps its latest values.

    Attributes:
        counts: For each group, how many values each of its rows keeps, `[rows of the group]`.

    >>> clicks = Ragged(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([0, 2, 2, 3]))
    >>> groups = RowGroups(clicks, most=2)
    >>> [group] = groups.pad(clicks.values)
    >>> group[..., 0].tolist()
    [[1.0, 2.0], [0.0, 0.0], [4.0, 0.0]]
    >>> groups.unpad([10 * group])[:, 0].tolist()
    [10.0, 20.0, 40.0]
    """

    def __init__(self, values: Ragged, most: int):
        self._offsets = offsets = values.offsets.long()
        self._row_of_values, self._most = values.row_of_values, most
        counts = offsets.diff().clamp(max=most)
        starts = offsets[1:] - counts
        self._shapes = [(counts.shape[0], most)]
        self._order: Tensor | None = None
        if not torch.compiler.is_compiling():
            lengths = np.minimum(np.diff(values.offsets_on_host()), most)
            self._shapes = list(_group_shapes(torch.from_numpy(np.sort(lengths)[::-1].copy())))
            _, order = counts.sort(descending=True, stable=True)
            self._order = order if len(self._shapes) > 1 else None
        self.counts = self.split(counts)
        index, first, base = [], [], 0
        for shape, start, count in zip(self._shapes, self.split(starts), self.counts, strict=True):
            rows, length = shape
            place = torch.arange(length, device=offsets.device)
            # Index 0 is the row of zeros that `pad` puts before the values.
            own = torch.where(place < count[:, None], start[:, None] + place + 1, 0)
            index.append(own.flatten())
            first.append(base + length * torch.arange(rows, device=offsets.device))
            base += rows * length
        self._value_of_place = torch.cat(index)
        numbers = torch.arange(values.values.shape[0], device=offsets.device)
        shift = self.join(first) - starts
        self._place_of_value = (shift[self._row_of_values] + numbers).clamp(min=0)

    def pad(self, values: Tensor) -> list[Tensor]:
        """Return `values`, `[values, dim]`, as a tensor for each group, `[rows, length, dim]`.

        A row with fewer values than its group's length is padded with zeros, which get no gradient.
        """
        with_zeros = torch.cat([values.new_zeros(1, values.shape[1]), values])
        # Padding refers to the zero row, which gets no gradient.
        places = functional.embedding(self._value_of_place, with_zeros, padding_idx=0)
        if self._order is None:
            return [torch.unflatten(places, 0, self._shapes[0])]
        parts = torch.split(places, [rows * length for rows, length in self._shapes])
        shaped = zip(parts, self._shapes, strict=True)
        return [torch.unflatten(part, 0, shape) for part, shape in shaped]

    def unpad(self, groups: Sequence[Tensor]) -> Tensor:
        """Return the inverse of `pad`: `[values, dim]`.

        A value that its row does not keep, because the row is longer than `most`, gets an arbitrary
        vector.
        """
        places = [group.flatten(0, 1) for group in groups]
        return of_rows(torch.cat(places), self._place_of_value)

    def side_by_side(self, values: Tensor) -> GroupedRows:
        """Concatenate each row's `values`, `[values, dim]`, to one vector, the latest first.

        Padded with zeros, a row has the width `most * dim`.
        """
        ends, rows = self._offsets[1:] + self._offsets[:-1] - 1, self._row_of_values
        turned = ends[rows] - torch.arange(values.shape[0], device=rows.device)
        groups = tuple(group.flatten(1) for group in self.pad(of_rows(values, turned)))
        places = self.join([torch.arange(len(self._offsets) - 1, device=rows.device)])
        return GroupedRows(groups, places, self._most * values.shape[1])

    def newest(self, values: Tensor) -> Tensor:
        """Return the last of each row's `values`, `[rows, dim]`; zeros for an empty row."""
        return padded(values, self._offsets, 1)[:, 0]

    def split(self, rows: Tensor) -> Sequence[Tensor]:
        """Split a tensor with an item for each row of the batch, `[rows, ...]`, by group."""
        if self._order is None:
            return [rows]
        sizes = [num_rows for num_rows, _ in self._shapes]
        return torch.split(rows[self._order], sizes)

    def join(self, groups: Sequence[Tensor]) -> Tensor:
        """Concatenate the groups' tensors in the order of the batch: the inverse of `split`."""
        rows = torch.cat(list(groups))
        return rows if self._order is None else rows[self._order.argsort()]


_FEW_PLACES = 1 << 14  # a group with at most this number of places is not split further


def _group_shapes(counts: Tensor) -> Iterator[tuple[int, int]]:
    """Divide rows into groups of similar length; yield each (number of rows, padded length).

    `counts` has the rows' numbers of events, in descending order. The first group is the first
    rows, and so on.

    >>> _FEW_PLACES, [*_group_shapes(torch.tensor([9000, 8000, 3, 3, 2, 0]))]
    (16384, [(2, 9000), (4, 3)])
    """
    while True:
        rows = counts.shape[0]
        length = max(1, int(counts[0])) if rows else 1
        if length > 1 and rows * length > _FEW_PLACES:
            rows = int((counts > length // 2).sum())
        yield rows, length
        counts = counts[rows:]
        if not counts.shape[0]:
            return


def with_last(rows: Ragged, last: Tensor) -> Ragged:
    """Return the rows, each with one more value at its end: `last`, `[rows, dim]`.

    >>> rows = Ragged(torch.tensor([[1.0], [2.0]]), torch.tensor([0, 2, 2]))
    >>> longer = with_last(rows, torch.tensor([[7.0], [8.0]]))
    >>> longer.values[:, 0].tolist(), longer.offsets.tolist()
    ([1.0, 2.0, 7.0, 8.0], [0, 3, 4])
    """
    device = rows.offsets.device
    longer = rows.offsets.long() + torch.arange(last.shape[0] + 1, device=device)
    places = torch.arange(rows.values.shape[0], device=device) + rows.row_of_values
    places = torch.cat([places, longer[1:] - 1])
    index = torch.arange(places.shape[0], device=device)
    index = torch.zeros_like(index).scatter(0, places, index)
    on_host = rows.host_offsets
    if on_host is not None:
        on_host = on_host + np.arange(len(on_host))
    return Ragged(of_rows(torch.cat([rows.values, last]), index), longer, on_host)


def of_rows(values: Tensor, rows: Tensor) -> Tensor:
    """Return `values[rows]`, `[n, dim]`, with the fastest deterministic backward pass."""
    return functional.embedding(rows, values)


def sum_of_rows(values: Tensor, offsets: Tensor) -> Tensor:
    """Return the sums of the values of each row, `[rows, dim]`; zeros for a row without values.

    `values` is `[values, dim]`, and `offsets`, `[rows + 1]`, has the start of each row's values.

    >>> sum_of_rows(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([0, 2, 2, 3])).tolist()
    [[3.0], [0.0], [4.0]]
    """
    if torch.compiler.is_compiling() or not len(values):
        sums = values.new_zeros(offsets.shape[0] - 1, values.shape[1])
        return sums.index_add(0, Ragged(values, offsets).row_of_values, values)
    return torch.segment_reduce(values, "sum", offsets=offsets.long(), axis=0)


def padded(values: Tensor, offsets: Tensor, length: int, *, newest_first: bool = False) -> Tensor:
    """Return each row's vectors, zero-padded to `[rows, length, dim]`.

    Rows with more than `length` vectors keep the latest, in order or with the latest first.

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
    # Padding refers to row 0, which is zeros and gets no gradient.
    with_zeros = torch.cat([values.new_zeros(1, values.shape[1]), values])
    index = torch.where(places < ends - starts, index, 0)
    return functional.embedding(index, with_zeros, padding_idx=0)


class TargetAttention(EventBlock):
    """Sums a row's events, each weighted by an MLP of event and target (arXiv:1706.06978).

    The MLP reads `[q, k, q - k, q * k]` of the target's vector q and the event's k. Its output is
    the weight, without a softmax, as in the paper (section 4.3). A row without events gets zeros.

    Args:
        hidden: Widths of the MLP's hidden layers.
        activation: One of `ACTIVATIONS`, or "dice".

    Shape:
        columns that include the events to `[rows, width]`, as wide as the target's embeddings.
    """

    def __init__(
        self,
        events: str,
        targets: Mapping[str, str],
        hidden: Sequence[int] = (80, 40),
        activation: str = "dice",
    ):
        super().__init__(events, targets)
        self.weigh = MLPBlock([*hidden, 1], activation, no_activation_last_layer=True)

    def build(self, input_shape: Shape) -> Shape:
        width = self.build_vectors(input_shape)
        self.weigh.attach(Flat(4 * width, self.label))
        return Flat(width)

    def forward(self, value: Features) -> Tensor:
        target, events = self.vectors(value)
        first, *others = self.weigh.layers
        assert isinstance(first, nn.Linear)
        of_q, of_k, of_difference, of_product = first.weight.chunk(4, dim=1)
        rows, keys = events.row_of_values, events.values
        # The first layer, without concatenating its inputs. Its product with q is computed once a
        # row.
        asked = functional.linear(target, of_q + of_difference, first.bias)
        weights = torch.addmm(of_rows(asked, rows), keys, (of_k - of_difference).t())
        weights = torch.addmm(weights, of_rows(target, rows) * keys, of_product.t())
        for layer in others:
            weights = layer(weights)
        return sum_of_rows(weights * keys, events.offsets)
