"""Blocks that select columns or branches by name, and blocks that encode columns."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Literal

import torch
from torch import Tensor, nn

from distrain.errors import ModelError
from distrain.models.blocks.block import Block
from distrain.models.blocks.layers import normalisation_layer
from distrain.models.shapes import (
    Branches,
    Column,
    Columns,
    Features,
    Flat,
    Group,
    Shape,
    Value,
    Vectors,
)

Kind = Literal["categorical", "continuous"]


class Filter(Block):
    """Selects some of the columns, or of the branches.

    A column is selected if it passes all given conditions. Whole groups and adjacent columns are
    not copied. Events are dropped.

    Args:
        names: Names of columns ("C1") or of their tables ("wide/C1"), or of branches.
        tags: A column needs one of these tags.
        part: The part of the model of a column's table, such as "wide"; "" is the main part, which
            includes continuous columns.
        kind: "categorical" or "continuous".
        exclude: Select the columns or branches that do not pass.

    Shape:
        columns to columns; branches to branches, in the order of the names, or to the branch itself
        if one name is given.

    Raises:
        ModelError: The kind is unknown; or, at `attach`, a name is unknown, nothing is selected,
            the input has neither columns nor branches, or branches are selected by more than names.

    >>> str(Filter("deep").attach(Branches({"wide": Flat(2), "deep": Flat(7)})))
    '[rows, 7]'
    """

    def __init__(
        self,
        *names: str,
        tags: str | Iterable[str] = (),
        part: str | None = None,
        kind: Kind | None = None,
        exclude: bool = False,
    ):
        super().__init__()
        self.names = names
        self.tags = (tags,) if isinstance(tags, str) else tuple(tags)
        self.part = part
        self.kind = kind
        self.exclude = exclude
        if kind not in (None, "categorical", "continuous"):
            raise ModelError(
                f"a Filter has no kind {kind!r}", hint="Use categorical or continuous."
            )

    @property
    def label(self) -> str:
        conditions = [*map(repr, self.names)]
        conditions += [f"tags={list(self.tags)}"] if self.tags else []
        conditions += [f"part={self.part!r}"] if self.part is not None else []
        conditions += [f"kind={self.kind!r}"] if self.kind is not None else []
        conditions += ["exclude=True"] if self.exclude else []
        return f"Filter({', '.join(conditions)})"

    def build(self, input_shape: Shape) -> Shape:
        if isinstance(input_shape, Branches):
            return self._build_branches(input_shape)
        if isinstance(input_shape, Columns):
            return self._build_columns(input_shape)
        raise ModelError(
            f"{self.label} needs columns or branches, but {input_shape.made_by} returns "
            f"{input_shape}, which has no names",
            hint="Filter before that block, or use a ParallelBlock with aggregation=None.",
        )

    def forward(self, value: Value) -> Value:
        if isinstance(value, dict):
            picked = {name: value[name] for name in self.picked}
            return picked if len(self.names) != 1 or self.exclude else picked[self.names[0]]
        assert isinstance(value, Features)
        groups = zip(self.pick_embedded, value.embedded, strict=True)
        embedded = tuple(pick(group) for pick, group in groups if pick.count)
        return Features(embedded, self.pick_continuous(value.continuous))

    def _build_branches(self, input_shape: Branches) -> Shape:
        if self.tags or self.part is not None or self.kind is not None or not self.names:
            raise ModelError(f"{self.label} picks branches: give their names")
        self._check_names(input_shape.shapes, input_shape, "branch")
        # Plain names, no parameters: the keys of the dictionary to keep.
        self.picked = self.names
        if self.exclude:
            self.picked = tuple(name for name in input_shape.shapes if name not in self.names)
        if not self.picked:
            raise ModelError(f"{self.label} leaves nothing of {', '.join(input_shape.shapes)}")
        if len(self.names) == 1 and not self.exclude:
            return input_shape.shapes[self.names[0]]
        return Branches({name: input_shape.shapes[name] for name in self.picked})

    def _build_columns(self, input_shape: Columns) -> Shape:
        every = [column for group in input_shape.groups for column in group.columns]
        columns = (*every, *input_shape.continuous)
        called = {name for column in columns for name in (column.name, column.table)}
        self._check_names(called, input_shape, "column", [column.table for column in columns])
        picks = [_Pick(g.columns, self._passes("categorical")) for g in input_shape.groups]
        self.pick_embedded = nn.ModuleList(picks)
        self.pick_continuous = _Pick(input_shape.continuous, self._passes("continuous"))
        groups = zip(input_shape.groups, picks, strict=True)
        kept = tuple(Group(group.dim, pick.columns) for group, pick in groups if pick.count)
        if not kept and not self.pick_continuous.count:
            raise ModelError(
                f"{self.label} picks none of the columns of {input_shape.made_by}",
                where={
                    "embedded": ", ".join(map(_described, every)),
                    "continuous": ", ".join(map(_described, input_shape.continuous)),
                },
            )
        return Columns(kept, self.pick_continuous.columns)

    def _passes(self, kind: Kind) -> Callable[[Column], bool]:
        def passes(column: Column) -> bool:
            fits = (
                (not self.names or column.name in self.names or column.table in self.names)
                and (not self.tags or bool(set(self.tags) & set(column.tags)))
                and (self.part is None or column.part == self.part)
                and (self.kind is None or kind == self.kind)
            )
            return fits != self.exclude

        return passes

    def _check_names(
        self,
        known: Iterable[str],
        input_shape: Shape,
        what: str,
        shown: Iterable[str] | None = None,
    ) -> None:
        known = list(known)
        unknown = [name for name in self.names if name not in known]
        if unknown:
            raise ModelError(
                f"{input_shape.made_by} returns no {what} {', '.join(map(repr, unknown))}",
                where={"there are": ", ".join(known if shown is None else shown)},
            )


class _Pick(nn.Module):
    """Selects columns of a tensor; only a selection of columns that are not adjacent is copied."""

    places: Tensor

    def __init__(self, columns: Sequence[Column], passes: Callable[[Column], bool]):
        super().__init__()
        places = [place for place, column in enumerate(columns) if passes(column)]
        self.columns = tuple(columns[place] for place in places)
        self.count = len(places)
        self.takes_all = len(places) == len(columns)
        self.start = places[0] if places else 0
        self.takes_neighbours = places == list(range(self.start, self.start + len(places)))
        if not self.takes_neighbours:
            self.register_buffer("places", torch.tensor(places), persistent=False)

    def forward(self, tensor: Tensor) -> Tensor:
        if self.takes_all:
            return tensor
        if self.takes_neighbours:
            return tensor.narrow(1, self.start, self.count)
        return tensor.index_select(1, self.places)


def _described(column: Column) -> str:
    return f"{column.table} ({', '.join(column.tags)})" if column.tags else column.table


class ContinuousFeatures(Block):
    """Selects the continuous columns, or some of them, and optionally normalises them.

    Args:
        names: Names of the columns; by default all.
        tags: Only columns with one of these tags.
        normalisation: "batch_norm", "layer_norm" or "none". fastai's TabularModel uses a batch
            norm.

    Shape:
        columns to `[rows, continuous columns]`.

    Raises:
        ModelError: There are no such columns, or the normalisation is unknown.

    >>> str(ContinuousFeatures().attach(Columns((), (Column("price"), Column("age")))))
    '[rows, 2]'
    """

    def __init__(self, *names: str, tags: str | Iterable[str] = (), normalisation: str = "none"):
        super().__init__()
        self.pick = Filter(*names, tags=tags, kind="continuous")
        self.normalisation = normalisation

    def build(self, input_shape: Shape) -> Shape:
        width = self.pick.attach(input_shape).width
        self.norm = normalisation_layer(self.normalisation, width)
        return Flat(width)

    def forward(self, value: Value) -> Tensor:
        picked = self.pick(value)
        assert isinstance(picked, Features)
        result: Tensor = self.norm(picked.continuous)
        return result


class PiecewiseLinear(Block):
    """Appends the piecewise linear encodings of the continuous columns.

    With knots `k[0] < ... < k[n]`, a value x has n encodings, for i from 0 to n - 1:
    `min(1, max(0, (x - k[i]) / (k[i+1] - k[i])))` (arXiv:2203.05556, section 3.2). The paper's
    knots are quantiles of the column. Here they are quantiles of the normal distribution, from 0.02
    to 0.98, so no rows are needed. The columns should have mean 0 and standard deviation 1, as from
    `normalize`. A linear layer over the result is a piecewise linear function of each column.

    Args:
        pieces: n, the number of encodings of each column; 0 appends nothing.

    Shape:
        columns to columns, with `1 + pieces` values for each continuous column: first all columns
        themselves, then the encodings, column by column.

    >>> block = PiecewiseLinear(2)
    >>> str(block.attach(Columns((), (Column("price"),))))
    '3 continuous columns'
    >>> block(Features((), torch.tensor([[-9.0], [0.0], [9.0]]))).continuous.tolist()
    [[-9.0, 0.0, 0.0], [0.0, 1.0, 0.0], [9.0, 1.0, 1.0]]
    """

    knots: Tensor

    def __init__(self, pieces: int):
        super().__init__()
        self.pieces = pieces

    def build(self, input_shape: Shape) -> Shape:
        if not isinstance(input_shape, Columns):
            raise ModelError(
                f"{self.label} needs columns, but {input_shape.made_by} returns {input_shape}"
            )
        # Computed with Python's floats, so the knots are the same on every device, also on `meta`.
        shares = [0.02 + 0.96 * place / max(1, self.pieces) for place in range(self.pieces + 1)]
        knots = torch.tensor([NormalDist().inv_cdf(share) for share in shares])
        self.register_buffer("knots", knots, persistent=False)
        repeated = (column for column in input_shape.continuous for _ in range(self.pieces))
        return replace(input_shape, continuous=(*input_shape.continuous, *repeated))

    def forward(self, value: Features) -> Features:
        numbers, lows = value.continuous, self.knots[:-1]
        encoded = (numbers.unsqueeze(2) - lows) / (self.knots[1:] - lows)
        parts = [numbers, encoded.clamp(0, 1).flatten(1)]
        return value._replace(continuous=torch.cat(parts, dim=1))


class FieldVectors(Block):
    """Turns all columns into vectors: embeddings, and continuous values times learnt vectors.

    The learnt vector of a continuous column follows arXiv:1810.11921, eq. 4. It is initialised like
    a linear layer of `dim` inputs.

    Shape:
        columns, with embeddings of equal width, to `[rows, columns, dim]`.
    """

    def build(self, input_shape: Shape) -> Shape:
        if (
            not isinstance(input_shape, Columns)
            or len(input_shape.groups) != 1
            or input_shape.events
        ):
            raise ModelError(
                f"{self.label} needs embeddings of equal width, but {input_shape.made_by} returns "
                f"{input_shape}",
                hint="Set one embedding_dim for all columns, with at least one categorical column.",
            )
        (group,) = input_shape.groups
        bound = group.dim**-0.5
        values = torch.empty(len(input_shape.continuous), group.dim).uniform_(-bound, bound)
        self.of_numbers = nn.Parameter(values)
        return Vectors(len(group.columns) + len(input_shape.continuous), group.dim)

    def forward(self, value: Features) -> Tensor:
        (vectors,) = value.embedded
        if not self.of_numbers.shape[0]:
            return vectors
        return torch.cat([vectors, value.continuous.unsqueeze(2) * self.of_numbers], dim=1)
