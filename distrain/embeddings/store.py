"""The tables of one width and one placement: one weight, and the verbs of a step on it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional

from distrain.batch import Ragged
from distrain.embeddings import kernels, kernels_torch, replicated, row_wise
from distrain.embeddings.columns import TableColumn
from distrain.embeddings.peers import Peers
from distrain.embeddings.route import (
    ListRoute,
    RowsRoute,
    StoreRoute,
    Traffic,
    table_segments,
)
from distrain.embeddings.row_cache import RowCache


@dataclass(frozen=True)
class Store:
    """Where the tables of one width and one placement are, and what a step does to them.

    The weight itself is the collection's parameter, and is handed in.

    Attributes:
        placement: "replicated", "row_wise" or "host_cached".
        flat: Its columns with one id per row, as positions among all columns.
        lists: Its columns of lists, likewise.
        columns: `flat`, then `lists`.
        tables: The first of `columns` of each table.
        table_of: For each of `columns`, which of `tables` it is looked up in.
        places: For each of `columns`, its place among the columns of its group.
        canonical_starts: For each of `tables`, where it begins among all tables of the group in the
            collection's order, whatever their placement.
        peers: Who shares the rows.
        cache: Of a host-cached store: the rows that lie on the device.
    """

    placement: str
    flat: tuple[int, ...]
    lists: tuple[int, ...]
    columns: tuple[TableColumn, ...]
    tables: tuple[TableColumn, ...]
    table_of: tuple[int, ...]
    places: tuple[int, ...]
    canonical_starts: tuple[int, ...]
    peers: Peers
    cache: RowCache | None = None

    @property
    def spread(self) -> bool:
        """Whether each row lives on one rank only, rather than on all."""
        return self.placement != "replicated" and self.peers.num_ranks > 1

    @property
    def dim(self) -> int:
        """The width of its rows."""
        return self.columns[0].dim

    @property
    def starts(self) -> Tensor:
        """`[tables]`, int64, on the CPU: the key at which each table begins."""
        return torch.tensor(self._bounds[:-1], dtype=torch.int64)

    @property
    def num_rows(self) -> int:
        """Rows of all its tables, over all ranks."""
        return self._bounds[-1]

    @property
    def num_local_rows(self) -> int:
        """Rows of the weight on this rank."""
        if self.spread:
            return row_wise.num_local_rows(self.num_rows, self.peers)
        return self.num_rows

    @property
    def _bounds(self) -> list[int]:
        return list(accumulate((table.cardinality for table in self.tables), initial=0))

    def local_part(self, keys: slice) -> tuple[slice, slice]:
        """Which of neighbouring keys this rank holds.

        Args:
            keys: From key to key, without a step.

        Returns:
            The slice of the weight that holds them, and where they stand among `keys`.
        """
        if not self.spread:
            return keys, slice(0, keys.stop - keys.start)
        ranks, rank = self.peers.num_ranks, self.peers.rank
        first = keys.start + (rank - keys.start) % ranks
        count = max(0, -(-(keys.stop - first) // ranks))
        return slice(first // ranks, first // ranks + count), slice(first - keys.start, None, ranks)

    def local_rows(self, keys: Tensor) -> tuple[Tensor, Tensor]:
        """Which of some keys this rank holds.

        Args:
            keys: `[n]`, int64, in any order.

        Returns:
            `[n]`, bool: whether it does; and for those that it does, their rows of the weight.
        """
        if not self.spread:
            return torch.ones_like(keys, dtype=torch.bool), keys
        mine = keys % self.peers.num_ranks == self.peers.rank
        return mine, keys[mine] // self.peers.num_ranks

    def canonical_keys(self, rows: Tensor) -> Tensor:
        """Which rows of the group's tables, in the collection's order, rows of the weight are.

        Args:
            rows: int64: rows of the weight on this rank, as `TouchedRows` has them.
        """
        if self.cache is not None:
            rows = self.cache.rows_at(rows)
        keys = rows
        if self.spread:
            keys = rows * self.peers.num_ranks + self.peers.rank
        starts = self.starts.to(rows.device)
        tables = torch.searchsorted(starts, keys, right=True) - 1
        moves = torch.tensor(self.canonical_starts, device=rows.device) - starts
        return keys + moves[tables]

    def route(self, ids: Tensor, lists: Sequence[Ragged], peers: Peers) -> StoreRoute:
        """Find out which rows are needed; a collective operation where ranks share the tables.

        Args:
            ids: `[flat columns, rows]`, int32, contiguous.
            lists: The list columns.
            peers: Who shares the rows; the process group may be another than that of the values.
        """
        lengths = [ids.shape[1]] * len(self.flat) + [len(ragged.values) for ragged in lists]
        offsets, counts = table_segments(self.table_of, lengths)
        together = torch.cat([ids.reshape(-1), *(r.values for r in lists)]) if lists else ids
        grouping = kernels.unique(together.reshape(-1), offsets, counts)
        flat_numbers = grouping.numbers[: ids.numel()].view(ids.shape)
        list_numbers = torch.split(
            grouping.numbers[ids.numel() :], [len(ragged.values) for ragged in lists]
        )
        routed = tuple(
            ListRoute(numbers, ragged.offsets)
            for numbers, ragged in zip(list_numbers, lists, strict=True)
        )
        make = row_wise.make_route if self.spread else replicated.make_route
        rows: RowsRoute = make(grouping, self.starts, peers)
        return StoreRoute(flat_numbers, routed, len(grouping.ids), rows)

    def fetch(self, weight: Tensor, route: StoreRoute) -> Tensor:
        """The distinct rows' values, `[u, dim]`."""
        rows = route.rows
        if self.cache is not None:
            # Those that other ranks ask for are among the touched ones.
            self.cache.admit(rows.touched)
            weight = self.cache.values(0)
        if isinstance(rows, row_wise.RowWiseRoute):
            if self.cache is not None:
                rows = replace(rows, requested=self.cache.places(rows.requested))
            return row_wise.fetch(weight, rows, self.peers)
        if self.cache is not None:
            rows = replace(rows, keys=self.cache.places(rows.keys))
        return replicated.fetch(weight, rows, self.peers)

    def expand(self, rows: Tensor, route: StoreRoute, part: slice, out: Tensor) -> None:
        """Write the embeddings of some of the batch's rows to their places in the group's tensor.

        Args:
            rows: From `fetch`.
            route: The batch's.
            part: Which of the batch's rows.
            out: `[rows of the part, columns of the group, dim]`.
        """
        places = torch.tensor(self.places, dtype=torch.int64)
        num_flat = len(self.flat)
        if num_flat:
            kernels.expand(rows, route.numbers[:, part], places[:num_flat], out)
        for place, column, whole in zip(
            self.places[num_flat:], self.columns[num_flat:], route.lists, strict=True
        ):
            own = whole.part(part)
            mode = "mean" if column.combiner == "mean" else "sum"
            pooled = functional.embedding_bag(own.numbers, rows, own.offsets[:-1], mode=mode)
            if column.combiner == "sqrtn":
                pooled *= _factors(own.lengths, column.combiner, pooled.dtype)
            out[:, place] = pooled

    def collect(self, grads: Tensor, route: StoreRoute, part: slice, sums: Tensor) -> None:
        """Add the gradients of some of the batch's rows to the sums of their distinct rows.

        Args:
            grads: `[rows of the part, columns of the group, dim]`.
            route: The batch's.
            part: Which of the batch's rows.
            sums: `[u, dim]`, added to.
        """
        places = torch.tensor(self.places, dtype=torch.int64)
        num_flat = len(self.flat)
        for turn in self._turns:
            own_numbers = route.numbers[:, part]
            if len(turn) < num_flat:
                own_numbers = own_numbers[turn]
            kernels.collect(grads, own_numbers, places[turn], sums)
        for place, column, whole in zip(
            self.places[num_flat:], self.columns[num_flat:], route.lists, strict=True
        ):
            own = whole.part(part)
            of_row = grads[:, place]
            if column.combiner != "sum":
                of_row = of_row * _factors(own.lengths, column.combiner, of_row.dtype)
            of_id = of_row.repeat_interleave(own.lengths, dim=0, output_size=len(own.numbers))
            kernels.collect(
                of_id.unsqueeze(1),
                own.numbers.unsqueeze(0),
                torch.zeros(1, dtype=torch.int64),
                sums,
            )

    def exchange(self, sums: Tensor, route: StoreRoute) -> tuple[Tensor, Tensor]:
        """The rows to update on this rank `[v]`, and their gradients `[v, dim]`."""
        if isinstance(route.rows, row_wise.RowWiseRoute):
            touched, grads = row_wise.exchange(sums, route.rows, self.peers)
        else:
            touched, grads = replicated.exchange(sums, route.rows, self.peers)
        if self.cache is not None:
            touched = self.cache.places(touched)
            self.cache.changed(touched)
        return touched, grads

    @cached_property
    def _turns(self) -> list[list[int]]:
        """Its flat columns, such that no two of a turn share a table: one turn if none do."""
        turns: list[list[int]] = []
        of_table = Counter[int]()
        for column, table in enumerate(self.table_of[: len(self.flat)]):
            if of_table[table] == len(turns):
                turns.append([])
            turns[of_table[table]].append(column)
            of_table[table] += 1
        return turns

    def traffic(self, route: StoreRoute, value_bytes: int) -> Traffic:
        """What a step on this route looks up and sends, for values of so many bytes."""
        lookups = route.numbers.numel() + sum(len(own.numbers) for own in route.lists)
        sent = route.rows.sent_bytes(self.dim * value_bytes)
        return Traffic(lookups, route.num_distinct, route.rows.num_updated, sent)


def _factors(lengths: Tensor, combiner: str | None, dtype: torch.dtype) -> Tensor:
    """What the sum of each row's embeddings is multiplied with, `[rows, 1]`.

    The reciprocal, since nn.EmbeddingBag takes it in its gradients: the same bits for a mean.
    """
    counts = lengths.clamp(min=1).to(dtype)
    if combiner == "sqrtn":
        counts = kernels_torch.sqrt(counts)
    return counts.reciprocal().unsqueeze(1)
