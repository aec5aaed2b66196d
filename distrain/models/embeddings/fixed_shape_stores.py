"""The operations of `fixed_shape.py` for one store, complete on each rank or sharded over ranks.

A store is the tables that share one weight. Each class determines the row of each id (`keys`) and
which lookups of a batch read the same row (`route`, not a collective operation), fetches the rows
(`values`), and adds up each row's gradients over the ranks (`exchange`). The host never waits for
the device, except where capacities change.
"""

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from distrain.models.embeddings import kernels
from distrain.models.embeddings.collection import TouchedRows
from distrain.models.embeddings.kernels import Segments, segments_of, sources_of
from distrain.models.embeddings.padded import PaddedRows, RowCapacities
from distrain.models.embeddings.row_owners import owner_and_row
from distrain.models.embeddings.table_store import Store

_MOST_INT32 = 2**31 - 1


@dataclass(frozen=True)
class FixedStoreRoute:
    # `[columns, rows]`, int32 or int64: the row of each id, in the weight, or in the rows that all
    # owners send
    keys: Tensor
    own: Segments  # the places with equal keys; capacity for as many keys as a batch can have
    # `[columns * rows]`: for each element of `own.order`, the index of its gradient in `[rows *
    # columns of the group, dim]`
    sources: Tensor
    union: Segments | None = None  # which ranks' requests are for one row, for sharded tables
    padded: PaddedRows | None = None  # the request to the owners, for sharded tables


class FixedStore:
    """Base class of `ReplicatedStore` and `ShardedStore`: a store whose tensors have fixed shapes.

    Recorded steps need fixed shapes. List columns and the host cache are not supported. `max_rows`
    is the maximum number of rows of a batch on any rank, `group_columns` the number of columns of
    the store's group.
    """

    def __init__(self, store: Store, max_rows: int, group_columns: int, device: torch.device):
        self._store = store
        self._max_rows = max_rows
        self._group_columns = group_columns
        # Created once: to make a tensor from Python numbers in a step would wait for the device.
        self.places = torch.tensor(store.places, device=device)

    def _sources(self, order: Tensor, num_rows: int) -> Tensor:
        return sources_of(order, num_rows, self.places, self._group_columns)


class ReplicatedStore(FixedStore):
    """A store of which this rank holds all rows."""

    def __init__(self, store: Store, max_rows: int, group_columns: int, device: torch.device):
        super().__init__(store, max_rows, group_columns, device)
        self.capacity = self._capacity(1)  # maximum number of rows that a batch can touch
        # Keys in int32, where they fit, are faster to sort.
        dtype = torch.int32 if store.num_rows <= _MOST_INT32 else torch.int64
        self._column_starts = store.starts[list(store.table_of)].to(dtype).unsqueeze(1).to(device)
        self._flat = torch.tensor(store.flat, device=device)

    def keys(self, ids: Tensor, padded: PaddedRows | None) -> Tensor:
        is_all = len(self._flat) == ids.shape[1]
        by_column = ids.T if is_all else ids.T.index_select(0, self._flat)
        return (by_column + self._column_starts).contiguous()

    def route(self, keys: Tensor, padded: PaddedRows | None) -> FixedStoreRoute:
        own = segments_of(keys.reshape(-1), self.capacity, self._store.num_rows)
        return FixedStoreRoute(keys, own, self._sources(own.order, keys.shape[1]))

    def values(self, weight: Tensor, route: FixedStoreRoute) -> Tensor:
        return weight

    def exchange(self, sums: Tensor, route: FixedStoreRoute) -> TouchedRows:
        """Return the rows that any rank touched, and each row's gradient summed over the ranks.

        `sums`, `[capacity, dim]`, has this rank's sums of gradients for the rows `route.own.keys`.
        A collective operation if there are several ranks.
        """
        peers = self._store.peers
        if peers.num_ranks == 1:
            return TouchedRows(route.own.keys, sums)
        touched = peers.gather_padded(route.own.keys.to(route.keys.dtype), self.capacity)
        union = segments_of(touched, self._capacity(peers.num_ranks), self._store.num_rows)
        every = peers.gather_padded(sums, len(sums))
        return TouchedRows(union.keys, kernels.sum_segments(every, union.order, union))

    def _capacity(self, num_ranks: int) -> int:
        most = self._max_rows * num_ranks
        num_columns = Counter(self._store.table_of)
        return sum(
            min(most * num_columns[number], table.cardinality)
            for number, table in enumerate(self._store.tables)
        )


class ShardedStore(FixedStore):
    """A store whose rows are sharded over ranks.

    Call `request_rows` before the other operations. Each rank sends each owner a block: the
    requested rows, padded with -1 to the capacity, then one number. It is 0 if the rank's requests
    fit the capacities. Otherwise it is the largest number of rows that the rank needs from an owner
    whose capacity is exceeded.
    """

    def __init__(self, store: Store, max_rows: int, group_columns: int, device: torch.device):
        super().__init__(store, max_rows, group_columns, device)
        self.capacities = RowCapacities(store, max_rows)
        ranks = store.shard_group.num_ranks
        # Keys are ordered by owner, then row. The numbers of rows of two ranks differ by at most
        # one.
        self._stride = -(-store.num_rows // ranks) + 1
        fits = ranks * self._stride <= _MOST_INT32
        self._sorted_dtype = torch.int32 if fits else torch.int64
        self._column_starts = store.starts[list(store.table_of)].unsqueeze(1).to(device)
        self._flat = torch.tensor(store.flat, device=device)
        self._owner_keys = (torch.arange(ranks + 1) * self._stride).to(self._sorted_dtype)
        self._owner_keys = self._owner_keys.to(device)
        self._placed: tuple[int, ...] = ()
        self._place_owners()

    def _place_owners(self) -> None:
        """Copy to the device, for each owner, the start of its block of requests and its capacity.

        The host waits for the copy. Nothing is copied unless the capacities have changed.
        """
        if self._placed != self.capacities.now:
            self._placed = self.capacities.now
            device = self._flat.device
            room = torch.tensor(self._placed)
            starts = room.cumsum(0) - room
            blocks = starts + torch.arange(len(room))
            self._room, self._starts_of_slots = room.to(device), starts.to(device)
            self._blocks, self._headers = blocks.to(device), (blocks + room).to(device)

    def raise_capacity(self, wanted: int) -> None:
        """Raise each owner's capacity to at least 1.25 times `wanted` rows; 0 changes nothing."""
        self.capacities.make(wanted)
        self._place_owners()

    def request_rows(self, ids: Tensor) -> tuple[Tensor, ...]:
        """Request a batch's rows from their owners; a collective operation.

        Returns:
            A scalar, int32: 0 if the capacities suffice on every rank, otherwise the largest number
                of rows that any rank needs from an owner whose capacity is exceeded. Then the
                tensors of `PaddedRows`, which are valid only if that scalar is 0.
        """
        shard_group, capacities = self._store.shard_group, self._placed
        ranks, size = shard_group.num_ranks, sum(capacities)
        keys = ids.T.index_select(0, self._flat) + self._column_starts
        owners, rows = owner_and_row(keys.reshape(-1), ranks)
        by_owner = (owners * self._stride + rows).to(self._sorted_dtype)
        in_order, order = torch.sort(by_owner, stable=True)
        first = torch.ones(1, dtype=torch.bool, device=ids.device)
        is_first = torch.cat([first, in_order[1:] != in_order[:-1]])[: len(order)]
        seen = functional.pad(is_first.cumsum(0), (1, 0))  # distinct rows before each place
        before = seen[torch.searchsorted(in_order, self._owner_keys)]
        counts = before.diff()
        owner = owners.index_select(0, order)
        number = seen[1:] - 1 - before.index_select(0, owner)  # the row's number among its owner's
        fits = number < self._room.index_select(0, owner)
        sent = torch.full((size + ranks + 1,), -1, dtype=torch.int32, device=ids.device)
        # Equal rows write equal values to one place; rows above the capacity write after all
        # blocks.
        there = torch.where(fits, self._blocks.index_select(0, owner) + number, size + ranks)
        sent.scatter_(0, there, rows.index_select(0, order).int())
        lacking = torch.where(counts > self._room, counts, 0).amax().int()
        sent.index_copy_(0, self._headers, lacking.expand(ranks))
        own = capacities[shard_group.rank]
        arrived = shard_group.exchange_rows(
            sent[:-1], [room + 1 for room in capacities], [own + 1] * ranks
        ).view(ranks, own + 1)
        asked = arrived[:, :-1].reshape(-1).long()
        requested = torch.where(asked < 0, self._store.num_local_rows, asked)
        slot = (self._starts_of_slots.index_select(0, owner) + number).int()
        slots = torch.empty_like(slot).scatter_(0, order, slot).view(keys.shape)
        return arrived[:, -1].amax(), slots, slot, order, requested

    def keys(self, ids: Tensor, padded: PaddedRows | None) -> Tensor:
        assert padded is not None
        return padded.slots

    def route(self, keys: Tensor, padded: PaddedRows | None) -> FixedStoreRoute:
        assert padded is not None
        size = sum(padded.capacities)
        in_order, order = padded.in_order, padded.order
        # Every slot has a segment, so the sums are in the order in which they are sent. Segments of
        # padding are empty.
        every = torch.arange(size + 1, dtype=keys.dtype, device=keys.device)
        own = Segments(
            every[:-1].long(), torch.searchsorted(in_order, every), in_order, order, size
        )
        end = self._store.num_local_rows
        asked = len(padded.requested)
        union = segments_of(padded.requested, min(asked, end), end)
        sources = self._sources(order, keys.shape[1])
        return FixedStoreRoute(keys, own, sources, union, padded)

    def values(self, weight: Tensor, route: FixedStoreRoute) -> Tensor:
        """Return the requested rows from their owners; a collective operation.

        The result is `[sum of the owners' capacities, dim]`, with arbitrary values in the padding.
        `route.keys` are indices in it. Waits for the rows; on a GPU only its current stream waits.
        """
        assert route.padded is not None
        sent = kernels.gather(weight, route.padded.requested.clamp(max=len(weight) - 1))
        receive, send = self._splits(route.padded)
        return self._store.shard_group.exchange_rows(sent, send, receive)

    def exchange(self, sums: Tensor, route: FixedStoreRoute) -> TouchedRows:
        """Send this rank's sums of gradients to the owners of their rows; a collective operation.

        `sums` has a row for each row of `values`. Returns the rows that this rank owns and any rank
        touched, and each row's gradient summed over the ranks.
        """
        assert route.padded is not None
        assert route.union is not None
        send, receive = self._splits(route.padded)
        arrived = self._store.shard_group.exchange_rows(sums, send, receive)
        return TouchedRows(route.union.keys, _sums(arrived, route.union))

    def _splits(self, padded: PaddedRows) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return padded.capacities, (padded.capacities[self._store.shard_group.rank],) * len(
            padded.capacities
        )


def _sums(rows: Tensor, segments: Segments) -> Tensor:
    if len(segments.keys) == 0:  # a rank may hold no row of a small store
        return rows.new_empty(0, rows.shape[1])
    return kernels.sum_segments(rows, segments.order, segments)
