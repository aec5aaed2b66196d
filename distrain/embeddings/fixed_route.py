"""What a batch's ids mean for replicated tables, in shapes that follow from the batch's."""

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor

from distrain.embeddings.peers import Peers
from distrain.embeddings.segments import Segments, segments_of
from distrain.embeddings.store import Store

_MOST_INT32 = 2**31 - 1


@dataclass(frozen=True)
class FixedStoreRoute:
    """A batch's route through the tables of one store.

    Attributes:
        keys: `[columns, rows]`, int32 or int64: which row of the weight each id means.
        own: Which of these are the same, with room for `capacity` rows.
        sources: `[columns * rows]`, int64: for each of `own.order` where its gradient lies in
            `[rows * columns, dim]`.
        union: Which of the ranks' `own.keys`, rank after rank, are the same; `None` for a rank
            alone.
    """

    keys: Tensor
    own: Segments
    sources: Tensor
    union: Segments | None


@dataclass(frozen=True)
class FixedRoute:
    """A batch's route through all tables.

    Attributes:
        num_rows: Rows of the batch.
        stores: One for each store.
    """

    num_rows: int
    stores: tuple[FixedStoreRoute, ...]


class Router:
    """Makes the routes of one store.

    Args:
        store: Replicated, without columns of lists.
        max_rows: The most rows a batch has, on any rank.
        device: Where the tables are.

    Attributes:
        places: `[columns]`, int64, on the device: each column's place in its group.
        capacity: How many rows there is room for: the most that a batch can touch.
    """

    def __init__(self, store: Store, max_rows: int, device: torch.device):
        self._store = store
        self._max_rows = max_rows
        self.capacity = self._capacity(1)
        # Made once: a tensor made of Python's numbers in a step would be a copy that waits.
        # Keys in int32, where they fit, are faster to sort.
        dtype = torch.int32 if store.num_rows <= _MOST_INT32 else torch.int64
        self._starts = store.starts[list(store.table_of)].to(dtype).unsqueeze(1).to(device)
        self._flat = torch.tensor(store.flat, device=device)
        self.places = torch.tensor(store.places, device=device)

    def route(self, ids: Tensor, peers: Peers) -> FixedStoreRoute:
        """See `FixedTables.route`."""
        is_all = len(self._flat) == ids.shape[1]
        by_column = ids.T if is_all else ids.T.index_select(0, self._flat)
        keys = (by_column + self._starts).contiguous()
        num_columns, num_rows = keys.shape
        own = segments_of(keys.reshape(-1), self.capacity, self._store.num_rows)
        rows, columns = own.order % max(1, num_rows), own.order // max(1, num_rows)
        union = None
        if peers.num_ranks > 1:
            sent = own.keys.to(self._starts.dtype)
            every = torch.cat(peers.gather_rows(sent, [self.capacity] * peers.num_ranks))
            union = segments_of(every, self._capacity(peers.num_ranks), self._store.num_rows)
        return FixedStoreRoute(keys, own, rows * num_columns + columns, union)

    def _capacity(self, num_ranks: int) -> int:
        most = self._max_rows * num_ranks
        num_columns = Counter(self._store.table_of)
        return sum(
            min(most * num_columns[number], table.cardinality)
            for number, table in enumerate(self._store.tables)
        )
