"""From a schema to a model's inputs: which tables, looked up with which ids, in what order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from distrain.errors import SchemaError
from distrain.loader.batch import Batch, Ragged
from distrain.models.blocks.block import Block, Chain
from distrain.models.blocks.hashed_cross import HashedCross
from distrain.models.embeddings.columns import Combiner, TableColumn
from distrain.models.negative_sampling import ItemDraws
from distrain.models.shapes import Column, Columns, EventLists, Events, Group
from distrain.schema.column import ColumnSchema, Tags
from distrain.schema.schema import Schema

_DRAWN = "drawn items"


@dataclass(frozen=True)
class Embeddings:
    """The tables of one part of a model: one for each of its categorical columns.

    Attributes:
        dim: The width of all, or of each column by name; a column without one gets its own from the
            schema, or else `infer_embedding_dim(cardinality)`.
        part: The part's name: its tables are called `wide/C1` where it is "wide". Two parts have
            two tables over the same column.
        names: The categorical columns; `None` for all.
        crosses: Hashed crosses of columns; each has a table too, named as the cross.
        combiners: The combiner of each column of lists; the mean for others. With "sequence" the
            list is a field of events, beside the others that the schema gives the same `event`.
        max_length: The most events of a row, its newest ones.
    """

    dim: int | Mapping[str, int] | None = 16
    part: str = ""
    names: Sequence[str] | None = None
    crosses: Sequence[HashedCross] = ()
    combiners: Mapping[str, Combiner] = field(default_factory=dict)
    max_length: int = 50

    def width(self, column: ColumnSchema) -> int:
        own = self.dim.get(column.name) if isinstance(self.dim, Mapping) else self.dim
        return own or column.embedding_dim or infer_embedding_dim(column.cardinality or 1)


class InputBlock:
    """What a model takes: tables over categorical columns, and continuous columns.

    It has no parameters: it says which tables there must be, which ids of a batch they are looked
    up with, and in what shape all that reaches the first block.

    Args:
        schema: Of the data. Its targets are left out.
        embeddings: The parts; a single one of width 16 if none is given.
        continuous: Whether the model takes the continuous columns.
        draws: Items that are drawn for rows in training, and looked up in their column's table.

    Attributes:
        columns: The tables, in the order of the ids.
        shape: What the first block gets: `Columns`.
        categorical_names: The flat categorical columns that a batch must have, in order.
        list_names: The columns of lists of ids that it must have.
        number_names: The columns of lists of numbers that it must have: fields of events, those
            that the model leaves out last.
        combiners: For each of these how its ids' embeddings become one, in the first part that
            takes it; "mean" if none does.
        continuous_names: The continuous columns that it must have, in order.

    Raises:
        SchemaError: A cardinality is missing (all such columns are listed), a continuous column
            holds lists, a part names columns that are not there, or there is no input at all.
    """

    def __init__(
        self,
        schema: Schema,
        *embeddings: Embeddings,
        continuous: bool = True,
        draws: ItemDraws | None = None,
    ):
        features = schema.remove_by_tag(Tags.TARGET)
        _check_features(features)
        self.schema = features
        self.parts = embeddings or (Embeddings(),)
        categorical = features.categorical
        self.categorical_names = tuple(c.name for c in categorical if not c.holds_lists)
        self.list_names = tuple(c.name for c in categorical if c.holds_lists)
        self.continuous_names = tuple(c.name for c in features.continuous if not c.holds_lists)
        tables = [table for part in self.parts for table in _tables(features, part)]
        self.draws = draws
        self.columns = tuple(table.column for table in tables)
        if draws is not None:
            of_items = next(column for column in self.columns if column.name == draws.column)
            drawn = replace(of_items, name=_DRAWN, table=of_items.table_name)
            self.columns += (replace(drawn, combiner="sequence"),)
        self._tables = tuple(table for table in tables if table.column.combiner is None)
        self._lists = {t.column.name: t.source for t in tables if isinstance(t.source, str)}
        known = {t.source: t.column.combiner for t in reversed(tables) if t.column.combiner}
        self.combiners = {name: known.get(name, "mean") for name in self.list_names}
        events = tuple(_events(features, tables, self.parts))
        self._newest = {t.table: one.max_length for one in events for t in one.lists.values()}
        taken = [c.name for one in events for c in one.numbers]
        self.number_names = tuple(dict.fromkeys([*taken, *_numbers_of_events(features)]))
        flat = self.continuous_names if continuous else ()
        numbers = tuple(Column(name, features[name].tags) for name in flat)
        self.shape = Columns(_groups(tables), numbers, made_by="InputBlock", events=events)
        self.takes_continuous = continuous
        self._every_list = tuple(sorted((*self.list_names, *self.number_names)))
        # The ids as they lie in the batch, unless there is more to look up than they are.
        self._as_they_are = [t.source for t in self._tables] == list(self.categorical_names)

    def connect(self, *blocks: Block) -> Chain:
        """Blocks over these inputs, one after another, attached."""
        chain = Chain(blocks)
        chain.attach(self.shape)
        return chain

    def connect_branch(self, *branches: Block, aggregation: str | None = "concat") -> Chain:
        """Branches that all take these inputs, attached; see `ParallelBlock`."""
        return self.connect(Chain().connect_branch(*branches, aggregation=aggregation))

    def table_ids(self, batch: Batch) -> tuple[Tensor, Mapping[str, Ragged]]:
        """The ids of a batch.

        For the flat columns in their order, `[rows, flat columns]`, int32; for the list columns by
        the names of their tables, of events the newest ones.
        """
        lists = batch.lists
        if self._newest or any(table != source for table, source in self._lists.items()):
            lists = {t: batch.lists[s] for t, s in self._lists.items() if s in batch.lists}
            lists |= {t: lists[t].newest(most) for t, most in self._newest.items() if t in lists}
        if self.draws is not None:
            lists = {**lists, _DRAWN: self.draws.of(batch)}
        if self._as_they_are:
            return batch.categorical, lists
        found = [_ids_of(table.source, batch) for table in self._tables]
        return (torch.stack(found).t() if found else batch.categorical[:, :0]), lists

    def event_lists(self, batch: Batch) -> tuple[EventLists, ...]:
        """For each of the shape's events what its `EventValues` have beside embeddings."""
        lists = []
        for events in self.shape.events:
            given = [batch.lists[column.name] for column in events.numbers]
            ids = [batch.lists[self._lists[column.table]] for column in events.lists.values()]
            newest = [column.newest(events.max_length) for column in [*given, ids[0]]]
            values = [column.values for column in newest[:-1]]
            none = batch.continuous.new_zeros(newest[-1].values.shape[0], 0)
            numbers = torch.stack(values, 1) if values else none
            lists.append(EventLists(newest[-1].offsets, numbers, newest[-1].host_offsets))
        return tuple(lists)

    def check_columns(self, batch: Batch) -> None:
        """Raise if the batch's columns are not the model's.

        Raises:
            SchemaError: The batch has other columns, or the same ones in another order (list
                columns may have any order), or a row's lists of events differ in length.
        """
        for kind, given, needed in (
            ("categorical", batch.categorical_names, self.categorical_names),
            ("continuous", batch.continuous_names, self.continuous_names),
            ("list", tuple(sorted(batch.lists)), self._every_list),
        ):
            if given != needed:
                raise SchemaError(
                    f"the batch's {kind} columns are not the model's",
                    where={"batch": ", ".join(given), "model": ", ".join(needed)},
                    hint="Read the data with the schema that the model was built or saved with.",
                )
        for events in self.shape.events:
            names = [self._lists[column.table] for column in events.lists.values()]
            first, *others = [*names, *(column.name for column in events.numbers)]
            expected = batch.lists[first].offsets_on_host()
            for name in others:
                if not np.array_equal(expected, batch.lists[name].offsets_on_host()):
                    raise SchemaError(
                        f"the lists {first!r} and {name!r} differ in length in a row",
                        where={"events": events.name},
                        hint="Fields of events are aligned: each row's lists are equally long.",
                    )


def infer_embedding_dim(cardinality: int) -> int:
    """A width for a column's embeddings: `min(16, round(1.6 * cardinality**0.56))`.

    fastai's rule (`emb_sz_rule` in fastai/tabular/model.py), capped at the 16 of the NVTabular
    notebooks instead of at 600.

    >>> [infer_embedding_dim(c) for c in (1, 4, 63, 10_000_000)]
    [2, 3, 16, 16]
    """
    return min(16, round(1.6 * math.pow(cardinality, 0.56)))


@dataclass(frozen=True)
class _Table:
    """A table, what its ids are, and what its embeddings are called in the model."""

    column: TableColumn
    source: str | HashedCross
    seen_as: Column


def _tables(features: Schema, part: Embeddings) -> list[_Table]:
    names = features.categorical.names
    wanted = names if part.names is None else tuple(part.names)
    crossed = {name for cross in part.crosses for name in cross.columns}
    flat = {c.name for c in features.categorical if not c.holds_lists}
    _refuse("there is no categorical column", set(wanted) - set(names), names)
    _refuse("crosses are of flat categorical columns", crossed - flat, flat)
    lists = set(names) - flat
    _refuse("combiners are for categorical columns of lists", set(part.combiners) - lists, lists)
    return [
        *(_table(features[name], part) for name in names if name in wanted),
        *(_cross_table(cross, part) for cross in part.crosses),
    ]


def _table(column: ColumnSchema, part: Embeddings) -> _Table:
    seen_as = Column(column.name, column.tags, part.part)
    combiner = part.combiners.get(column.name, "mean") if column.holds_lists else None
    cardinality, width = column.cardinality or 1, part.width(column)
    own = column.domain == column.name
    shared = None if own else Column(column.domain, part=part.part).table
    table = TableColumn(seen_as.table, cardinality, width, combiner, shared)
    return _Table(table, column.name, seen_as)


def _cross_table(cross: HashedCross, part: Embeddings) -> _Table:
    dim = cross.dim or (part.dim if isinstance(part.dim, int) else None)
    seen_as = Column(cross.name, (), part.part)
    width = dim or infer_embedding_dim(cross.num_bins)
    return _Table(TableColumn(seen_as.table, cross.num_bins, width), cross, seen_as)


def _groups(tables: Sequence[_Table]) -> tuple[Group, ...]:
    """As `EmbeddingCollection` lays them out: by width, then as given."""
    pooled = [table for table in tables if not table.column.is_sequence]
    return tuple(
        Group(dim, tuple(t.seen_as for t in pooled if t.column.dim == dim))
        for dim in sorted({t.column.dim for t in tables})
    )


def _events(
    features: Schema, tables: Sequence[_Table], parts: Sequence[Embeddings]
) -> Iterator[Events]:
    """The sequences of each part that the schema calls fields of the same events."""
    found: dict[tuple[str, str], dict[int, _Table]] = {}
    sequences = [table for table in tables if table.column.is_sequence]
    for place, table in enumerate(sequences):
        name = features[str(table.source)].event
        found.setdefault((table.seen_as.part, name), {})[place] = table
    lengths = {part.part: part.max_length for part in parts}
    for (part, name), own in found.items():
        yield Events(
            Column(name, part=part).table,
            {place: table.seen_as for place, table in own.items()},
            tuple(table.column.dim for table in own.values()),
            tuple(
                Column(column.name, column.tags)
                for column in features.continuous
                if column.holds_lists and column.event == name
            ),
            lengths[part],
        )


def _ids_of(source: str | HashedCross, batch: Batch) -> Tensor:
    if isinstance(source, str):
        return batch[source]
    return source.ids([batch[name] for name in source.columns]).to(batch.categorical.dtype)


def _refuse(what: str, names: set[str], known: Sequence[str] | set[str]) -> None:
    if names:
        raise SchemaError(
            f"{what}, and these are none: {', '.join(sorted(names))}",
            hint=f"There are: {', '.join(sorted(known)) or 'none'}.",
        )


def _check_features(features: Schema) -> None:
    unknown = [c.name for c in features.categorical if c.cardinality is None]
    if unknown:
        raise SchemaError(
            f"no cardinality is known for: {', '.join(unknown)}",
            hint="Prepare the data with `distrain prep`, which writes it to the schema, "
            "or set the columns' cardinality there.",
        )
    if not len(features.categorical) + len(features.continuous):
        raise SchemaError(
            "the schema has no inputs for a model",
            hint="Tag its columns `categorical` or `continuous`.",
        )


def _numbers_of_events(features: Schema) -> list[str]:
    """The lists of numbers; a `SchemaError` where one is no field of an event."""
    lists = [column for column in features.continuous if column.holds_lists]
    alone = [column.name for column in lists if column.event == column.name]
    if alone:
        raise SchemaError(
            f"continuous columns of lists cannot be model inputs: {', '.join(alone)}",
            hint="Leave them out of the schema, reduce each list to one value, or make them fields "
            "of an event. Lists of ids can be inputs: tag them `categorical`.",
        )
    return [column.name for column in lists]
