"""The tables of one width and one placement: one weight, and the operations of a step on it."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from distrain.errors import InputError
from distrain.loader.batch import Ragged
from distrain.metrics.exchange_stats import ExchangeStats
from distrain.models.embeddings import kernels, replicated, row_owners, row_wise
from distrain.models.embeddings.columns import (
    PLACEMENTS,
    PlacementFacts,
    TableColumn,
    first_of_tables,
)
from distrain.models.embeddings.device_row_cache import DeviceRowCache
from distrain.models.embeddings.peers import Peers
from distrain.models.embeddings.route import ListRoute, RowsRoute, StoreRoute, table_segments


@dataclass(frozen=True)
class Store:
    """The tables of one width and placement, and the operations of a step on their weight.

    A *key* is the number of a row among the rows of all tables of the store, on all ranks.
    """

    placement: str  # one of `PLACEMENTS`
    flat: tuple[int, ...]  # its columns with one id per row, as positions among all columns
    lists: tuple[int, ...]  # its columns of lists, as positions among all columns
    columns: tuple[TableColumn, ...]  # `flat`, then `lists`
    tables: tuple[TableColumn, ...]  # the first of `columns` of each table
    table_of: tuple[int, ...]  # for each of `columns`, the index in `tables` of its table
    # for each of `columns`, its position among the columns of its group that are not sequences; -1
    # for a sequence
    places: tuple[int, ...]
    # for each of `tables`, its first row in the canonical order of the group's rows
    # (`canonical_state.py`), which does not depend on placements
    canonical_starts: tuple[int, ...]
    peers: Peers
    cache: DeviceRowCache | None = None  # of a host-cached store: the rows that are on the device

    @property
    def shard_group(self) -> Peers:
        """The ranks that together hold one copy of all rows: only this rank if replicated."""
        return self.peers if self.facts.is_dealt else replace(self.peers, rank=0, num_ranks=1)

    @property
    def facts(self) -> PlacementFacts:
        return PLACEMENTS[self.placement]

    @property
    def is_sharded(self) -> bool:
        """Whether the rows are sharded over several ranks."""
        return self.shard_group.num_ranks > 1

    @property
    def dim(self) -> int:
        return self.columns[0].dim

    @property
    def starts(self) -> Tensor:
        """The first key of each table: `[tables]`, int64, on the CPU."""
        return torch.tensor(self._bounds[:-1], dtype=torch.int64)

    @property
    def num_rows(self) -> int:
        return self._bounds[-1]

    @property
    def num_local_rows(self) -> int:
        return int(self.local_part(slice(0, self.num_rows)).stop)

    @property
    def _bounds(self) -> list[int]:
        return list(accumulate((table.cardinality for table in self.tables), initial=0))

    def local_part(self, keys: slice) -> slice:
        """Return the rows of this rank's weight whose keys are in the range `keys`."""
        if not self.is_sharded:
            return keys
        rank, ranks = self.shard_group.rank, self.shard_group.num_ranks
        return slice(*(row_owners.num_rows_before(k, rank, ranks) for k in (keys.start, keys.stop)))

    def kept_of(self, keys: slice) -> slice | Tensor:
        """Return the indices, within `keys`, of the keys that this rank holds."""
        if not self.is_sharded:
            return slice(0, keys.stop - keys.start)
        local = self.local_part(keys)
        own: Tensor = self.keys_at(torch.arange(local.start, local.stop)) - keys.start
        return own

    def keys_at(self, rows: Tensor) -> Tensor:
        """Return the keys of rows of this rank's weight: `[n]`, int64."""
        if not self.is_sharded:
            return rows
        keys: Tensor = row_owners.key_at(rows, self.shard_group.rank, self.shard_group.num_ranks)
        return keys

    def local_rows_of(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Return a mask of the `keys` that this rank holds, and their rows in its weight.

        `keys` and the mask are `[n]`. There is one row for each True value of the mask.
        """
        if not self.is_sharded:
            return torch.ones_like(keys, dtype=torch.bool), keys
        owners, rows = row_owners.owner_and_row(keys, self.shard_group.num_ranks)
        mine = owners == self.shard_group.rank
        return mine, rows[mine]

    def canonical_keys(self, rows: Tensor) -> Tensor:
        """Return the positions of this rank's rows in the group's canonical order, `[n]`, int64.

        That order has all rows of the tables of one width (`canonical_state.py`). `rows`, `[n]`,
        int64, has rows of this rank's weight, or for a host-cached store places in the cache.
        """
        if self.cache is not None:
            rows = self.cache.rows_at(rows)
        keys = self.keys_at(rows)
        starts = self._bounds[:-1]
        if tuple(starts) == self.canonical_starts:
            return keys
        moves = [there - here for there, here in zip(self.canonical_starts, starts, strict=True)]
        on = partial(kernels.cached_tensor, rows.device)
        tables = torch.searchsorted(on(tuple(starts)), keys, right=True) - 1
        return keys + on(tuple(moves))[tables]

    def route(self, ids: Tensor, lists: Sequence[Ragged], peers: Peers) -> StoreRoute:
        """Return the route of a batch; a collective operation if ranks share the tables.

        `ids` is `[flat columns, rows]`, int32, contiguous, for the columns `flat`; `lists` are
        those of the columns `lists`. `peers` are the same ranks as the attribute `peers`, possibly
        with another process group.
        """
        lengths = [ids.shape[1]] * len(self.flat) + [len(ragged.values) for ragged in lists]
        offsets, counts = table_segments(self.table_of, lengths)
        together = torch.cat([ids.reshape(-1), *(r.values for r in lists)]) if lists else ids
        grouping = kernels.unique(together.reshape(-1), offsets, counts)
        flat_inverse = grouping.inverse[: ids.numel()].view(ids.shape)
        list_inverse = torch.split(
            grouping.inverse[ids.numel() :], [len(ragged.values) for ragged in lists]
        )
        routed = tuple(
            ListRoute(inverse, ragged.offsets)
            for inverse, ragged in zip(list_inverse, lists, strict=True)
        )
        make: Callable[..., RowsRoute]
        make = row_wise.make_route if self.is_sharded else replicated.make_route
        rows = make(grouping, self.starts, peers)
        return StoreRoute(flat_inverse, routed, len(grouping.ids), rows)

    def fetch(self, weight: Tensor, route: StoreRoute) -> Tensor:
        if self.cache is None:
            return route.rows.fetch(weight, self.peers)
        # The rows that other ranks request are among the touched rows.
        self.cache.admit(route.rows.touched)
        return route.rows.at(self.cache.places).fetch(self.cache.values(0), self.peers)

    def expand(self, rows: Tensor, route: StoreRoute, part: slice, out: Tensor) -> None:
        """Write the embeddings of some of a batch's rows to the store's columns of `out`.

        `rows`, `[u, dim]`, has the values of the route's distinct rows, and `part` selects rows of
        the batch. `out` is `[rows of the part, columns of the group, dim]`, without the group's
        sequences. The embeddings of a list are combined to one.
        """
        places = torch.tensor(self.places, dtype=torch.int64)
        num_flat = len(self.flat)
        if num_flat:
            kernels.expand(rows, route.inverse[:, part], places[:num_flat], out)
        for place, column, whole in self._pooled(route):
            own = whole.part(part)
            mode = "mean" if column.combiner == "mean" else "sum"
            pooled = functional.embedding_bag(own.inverse, rows, own.offsets[:-1], mode=mode)
            if column.combiner == "sqrtn":
                pooled *= _factors(own.lengths, column.combiner, pooled.dtype)
            out[:, place] = pooled

    def collect(self, grads: Tensor, route: StoreRoute, part: slice, sums: Tensor) -> None:
        """Add each embedding's gradient to the sum of its distinct row, in place.

        `grads`, `[rows of the part, columns of the group, dim]`, belongs to the embeddings that
        `expand` wrote for the same part. `sums`, `[u, dim]`, has a row for each distinct row of the
        route.
        """
        places = torch.tensor(self.places, dtype=torch.int64)
        num_flat = len(self.flat)
        for turn in self._turns:
            own_inverse = route.inverse[:, part]
            if len(turn) < num_flat:
                own_inverse = own_inverse[turn]
            kernels.collect(grads, own_inverse, places[turn], sums)
        for place, column, whole in self._pooled(route):
            own = whole.part(part)
            of_row = grads[:, place]
            if column.combiner != "sum":
                of_row = of_row * _factors(own.lengths, column.combiner, of_row.dtype)
            of_id = of_row.repeat_interleave(own.lengths, dim=0, output_size=len(own.inverse))
            kernels.collect(
                of_id.unsqueeze(1),
                own.inverse.unsqueeze(0),
                torch.zeros(1, dtype=torch.int64),
                sums,
            )

    def _pooled(self, route: StoreRoute) -> Iterator[tuple[int, TableColumn, ListRoute]]:
        num_flat = len(self.flat)
        places, columns = self.places[num_flat:], self.columns[num_flat:]
        for place, column, own in zip(places, columns, route.lists, strict=True):
            if not column.is_sequence:
                yield place, column, own

    def begin_exchange(
        self, sums: Tensor, route: StoreRoute
    ) -> Callable[[], tuple[Tensor, Tensor]]:
        """Begin to add up the sums of gradients of all ranks; collective if they share the tables.

        `sums`, `[u, dim]`, are those of this rank, from `collect`. The returned function waits. It
        returns the rows that this rank must update, `[v]`, and their gradients, `[v, dim]`. Rows
        are indices in this rank's weight, or for a host-cached store places in the cache.
        """
        end = route.rows.begin_exchange(sums, self.peers)
        return end if self.cache is None else partial(self._in_cache, end, self.cache)

    @staticmethod
    def _in_cache(
        end: Callable[[], tuple[Tensor, Tensor]], cache: DeviceRowCache
    ) -> tuple[Tensor, Tensor]:
        touched, grads = end()
        cache.changed()  # all rows that `fetch` has copied to the device
        return cache.places(touched), grads

    @cached_property
    def _turns(self) -> list[list[int]]:
        """Group the indices of the flat columns such that no two in a group share a table.

        So a kernel that adds the gradients of a group has no row in two columns.
        """
        turns: list[list[int]] = []
        of_table = Counter[int]()
        for column, table in enumerate(self.table_of[: len(self.flat)]):
            if of_table[table] == len(turns):
                turns.append([])
            turns[of_table[table]].append(column)
            of_table[table] += 1
        return turns

    def traffic(self, route: StoreRoute, value_bytes: int) -> ExchangeStats:
        lookups = route.inverse.numel() + sum(len(own.inverse) for own in route.lists)
        sent = route.rows.sent_bytes(self.dim * value_bytes)
        touched = len(route.rows.touched)
        return ExchangeStats(
            lookups=lookups, distinct=route.num_distinct, updated=touched, sent_bytes=sent
        )


class StoreWeights(nn.ParameterList):
    """The weights of all stores; those of host-cached tables stay on the host if a model moves."""

    def __init__(self, weights: Iterable[nn.Parameter]):
        super().__init__(weights)
        self._on_host: set[int] = set()

    def stay_on_host(self, weight: nn.Parameter) -> None:
        """Keep this weight on the host when the model is moved to a device."""
        self._on_host.add(id(weight))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        own = dict(self._parameters)
        moving = {name: p for name, p in own.items() if id(p) not in self._on_host}
        self._parameters.clear()
        self._parameters.update(moving)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        moved = dict(self._parameters)
        self._parameters.clear()
        # Restore their order, which is that of the stores.
        self._parameters.update({name: moved.get(name, p) for name, p in own.items()})
        return self


def column_placements(
    columns: Sequence[TableColumn], placements: Sequence[str] | None, num_ranks: int
) -> tuple[str, ...]:
    """Return each column's placement; on a single rank, "row_wise" becomes "replicated".

    `None` means that all are "replicated". Raises ValueError if the numbers of placements and
    columns differ. Raises InputError if a placement is unknown, or if columns of one table have
    different placements.
    """
    placed = ("replicated",) * len(columns) if placements is None else tuple(placements)
    if len(placed) != len(columns):
        raise ValueError(f"{len(placed)} placements for {len(columns)} tables")
    first: dict[str, tuple[str, str]] = {}
    for column, placement in zip(columns, placed, strict=True):
        if placement not in PLACEMENTS:
            raise InputError(
                f"unknown placement {placement!r}", hint=f"Allowed: {', '.join(PLACEMENTS)}."
            )
        other, other_placement = first.setdefault(column.table_name, (column.name, placement))
        if placement != other_placement:
            raise InputError(
                f"{other!r} and {column.name!r} share the table {column.table_name!r}, which "
                f"cannot be both {other_placement} and {placement}"
            )
    if num_ranks > 1:
        return placed
    return tuple(p if PLACEMENTS[p].on_host else "replicated" for p in placed)


def make_stores(
    columns: Sequence[TableColumn],
    groups: Sequence[Sequence[int]],
    placed: Sequence[str],
    peers: Peers,
) -> Iterator[Store]:
    """Yield a store for each width and placement that columns have, without caches.

    `groups` has the positions in `columns` of the columns of each width; `placed` the placement of
    each column, as `column_placements` returns it.
    """
    for group in groups:
        pooled = [i for i in group if not columns[i].is_sequence]
        of_group = first_of_tables(columns[i] for i in group)
        starts = accumulate((table.cardinality for table in of_group), initial=0)
        start_of = dict(zip((table.table_name for table in of_group), starts, strict=False))
        for placement in PLACEMENTS:
            flat = tuple(i for i in group if placed[i] == placement and columns[i].combiner is None)
            lists = tuple(
                i for i in group if placed[i] == placement and columns[i].combiner is not None
            )
            if not flat + lists:
                continue
            own = tuple(columns[i] for i in flat + lists)
            tables = first_of_tables(own)
            number_of = {table.table_name: number for number, table in enumerate(tables)}
            yield Store(
                placement=placement,
                flat=flat,
                lists=lists,
                columns=own,
                tables=tables,
                table_of=tuple(number_of[column.table_name] for column in own),
                places=tuple(pooled.index(i) if i in pooled else -1 for i in flat + lists),
                canonical_starts=tuple(start_of[table.table_name] for table in tables),
                peers=peers,
            )


def _factors(lengths: Tensor, combiner: str | None, dtype: torch.dtype) -> Tensor:
    """Return the factor from a row's sum of `n` embeddings to its mean or "sqrtn": `[rows, 1]`.

    This is `1 / sqrt(n)` for the combiner "sqrtn" and `1 / n` for any other, with `n` = 1 for a row
    without ids, as in nn.EmbeddingBag.
    """
    counts = lengths.clamp(min=1).to(dtype)
    if combiner == "sqrtn":
        counts = kernels.sqrt(counts)
    return counts.reciprocal().unsqueeze(1)
