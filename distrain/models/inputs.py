"""The inputs of a model from a schema: tables, their ids, and the order of both."""

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
    """The tables of one part of a model, one for each of its categorical columns.

    Attributes:
        dim: The width of all embeddings, or by column name. A column without a width here has the
            width in the schema, or else `infer_embedding_dim(cardinality)`.
        part: The part's name. In the part "wide" the table of C1 is called `wide/C1`. Each part
            has its own table of a column.
        names: The categorical columns; `None` for all.
        crosses: Hashed crosses of columns. Each has a table with the name of the cross.
        combiners: The combiner of each list column; the default is the mean. With "sequence" the
            list is a field of events, together with the others of the same `event` in the schema.
        max_length: The largest number of events of a row. Only the newest events are kept.
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
    """The inputs of a model: tables over categorical columns, and continuous columns.

    It has no parameters. It defines the tables, which ids of a batch are looked up in them, and the
    shape of the input of the first block.

    Args:
        schema: The schema of the data. Its targets are excluded.
        embeddings: The parts; the default is a single part of width 16.
        continuous: Whether the model uses the continuous columns.
        draws: Draws items for the rows in training, which are looked up in their column's table.

    Attributes:
        columns: The tables, in the order of the ids.
        shape: The input of the first block, `Columns`.
        categorical_names: The flat categorical columns that a batch must have, in order.
        list_names: The list columns of ids that a batch must have.
        number_names: The list columns of numbers that a batch must have. They are fields of
            events; the columns that the model does not use are last.
        combiners: For each of `list_names`, the combiner in the first part that uses the column;
            "mean" if no part does.
        continuous_names: The continuous columns that a batch must have, in order.
        list_limits: The `max_list_length` of the lists that are looked up, by the name in
            `columns`; those without a limit are missing. The loader has cut a batch's lists.

    Raises:
        SchemaError: A cardinality is missing (all such columns are listed), a continuous list
            column is not a field of an event, a part names unknown columns, crosses list columns or
            has a combiner for a flat column, or there are no inputs.
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
        limits = {table: features[source].max_list_length for table, source in self._lists.items()}
        self.list_limits = {table: most for table, most in limits.items() if most is not None}
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
        # Whether the ids are looked up as stored in the batch: each column once, in order.
        self._as_they_are = [t.source for t in self._tables] == list(self.categorical_names)

    def connect(self, *blocks: Block) -> Chain:
        """Return a chain of blocks, and attach it to these inputs."""
        chain = Chain(blocks)
        chain.attach(self.shape)
        return chain

    def connect_branch(self, *branches: Block, aggregation: str | None = "concat") -> Chain:
        """Return a chain with one `ParallelBlock` of these branches, attached to these inputs.

        `aggregation` is that of `ParallelBlock`.
        """
        return self.connect(Chain().connect_branch(*branches, aggregation=aggregation))

    def table_ids(self, batch: Batch) -> tuple[Tensor, Mapping[str, Ragged]]:
        """Return the ids that a batch looks up, as `EmbeddingCollection.lookup` needs them.

        The first result has the ids of the flat columns, in the order of `columns`, `[rows, flat
        columns]`, in the batch's dtype. The second has the lists of ids by table name: of events,
        only the newest `max_length`; with `draws`, also the drawn items. It may also have lists
        that belong to no table.
        """
        lists = batch.lists
        if self._newest or any(table != source for table, source in self._lists.items()):
            lists = {t: batch.lists[s] for t, s in self._lists.items() if s in batch.lists}
            lists |= {t: lists[t].newest(most) for t, most in self._newest.items() if t in lists}
        if self.draws is not None:
            lists = {**lists, _DRAWN: self.draws.of(batch)}
        if self._as_they_are:
            return batch.categorical, lists
        ids = [_ids_of(table.source, batch) for table in self._tables]
        return (torch.stack(ids).t() if ids else batch.categorical[:, :0]), lists

    def event_lists(self, batch: Batch) -> tuple[EventLists, ...]:
        """Return for each of `shape.events` the offsets of the rows' events, and their numbers.

        Only the newest `max_length` events of a row are included. Their embeddings come from the
        tables.
        """
        lists = []
        for events in self.shape.events:
            given = [batch.lists[column.name] for column in events.numbers]
            ids = [batch.lists[self._lists[column.table]] for column in events.lists.values()]
            newest = [column.newest(events.max_length) for column in [*given, ids[0]]]
            values = [column.values for column in newest[:-1]]
            none = batch.continuous.new_zeros(newest[-1].values.shape[0], 0)
            numbers = torch.stack(values, 1) if values else none
            offsets, on_host = newest[-1].offsets, newest[-1].host_offsets
            # Always None on a CPU, since another type would make torch.compile compile again.
            lists.append(EventLists(offsets, numbers, None if offsets.is_cpu else on_host))
        return tuple(lists)

    def check_columns(self, batch: Batch) -> None:
        """Check that the batch has the model's columns.

        Raises:
            SchemaError: The batch has other columns, or the same columns in another order (list
                columns may be in any order), or the lists of a row's events differ in length.
        """
        for kind, given, needed in (
            ("categorical", batch.categorical_names, self.categorical_names),
            ("continuous", batch.continuous_names, self.continuous_names),
            ("list", tuple(sorted(batch.lists)), self._every_list),
        ):
            if given != needed:
                raise SchemaError(
                    f"the batch's {kind} columns differ from the model's",
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
                        hint="The lists of events must be equally long in each row.",
                    )


def infer_embedding_dim(cardinality: int) -> int:
    """Return a width for a column's embeddings: `min(16, round(1.6 * cardinality**0.56))`.

    This is fastai's rule (`emb_sz_rule` in fastai/tabular/model.py), capped at the 16 of the
    NVTabular notebooks instead of at 600.

    >>> [infer_embedding_dim(c) for c in (1, 4, 63, 10_000_000)]
    [2, 3, 16, 16]
    """
    return min(16, round(1.6 * math.pow(cardinality, 0.56)))


@dataclass(frozen=True)
class _Table:
    """A table, the column or cross with its ids, and the name of its embeddings in the model."""

    column: TableColumn
    source: str | HashedCross
    seen_as: Column


def _tables(features: Schema, part: Embeddings) -> list[_Table]:
    names = features.categorical.names
    wanted = names if part.names is None else tuple(part.names)
    crossed = {name for cross in part.crosses for name in cross.columns}
    flat = {c.name for c in features.categorical if not c.holds_lists}
    _refuse("unknown categorical columns", set(wanted) - set(names), names)
    _refuse("crosses need flat categorical columns, not", crossed - flat, flat)
    lists = set(names) - flat
    _refuse("combiners need categorical columns of lists, not", set(part.combiners) - lists, lists)
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
    """Return the tables of each width as a group, ordered like those of `EmbeddingCollection`."""
    pooled = [table for table in tables if not table.column.is_sequence]
    return tuple(
        Group(dim, tuple(t.seen_as for t in pooled if t.column.dim == dim))
        for dim in sorted({t.column.dim for t in tables})
    )


def _events(
    features: Schema, tables: Sequence[_Table], parts: Sequence[Embeddings]
) -> Iterator[Events]:
    """Yield the events of each part: all its sequences with the same property `event`.

    The list columns of numbers with this property belong to them, too.
    """
    by_event: dict[tuple[str, str], dict[int, _Table]] = {}
    sequences = [table for table in tables if table.column.is_sequence]
    for place, table in enumerate(sequences):
        name = features[str(table.source)].event
        by_event.setdefault((table.seen_as.part, name), {})[place] = table
    lengths = {part.part: part.max_length for part in parts}
    for (part, name), own in by_event.items():
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


def _refuse(problem: str, names: set[str], known: Sequence[str] | set[str]) -> None:
    if names:
        raise SchemaError(
            f"{problem}: {', '.join(sorted(names))}",
            hint=f"Available: {', '.join(sorted(known)) or 'none'}.",
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
    """Return the names of the lists of numbers; SchemaError if one is not a field of an event."""
    lists = [column for column in features.continuous if column.holds_lists]
    alone = [column.name for column in lists if column.event == column.name]
    if alone:
        raise SchemaError(
            f"continuous columns of lists cannot be model inputs: {', '.join(alone)}",
            hint="Leave them out of the schema, reduce each list to one value, or make them fields "
            "of an event. Lists of ids can be inputs: tag them `categorical`.",
        )
    return [column.name for column in lists]
