"""The verbs of a step on replicated tables, in shapes that are known before the batch is.

The verbs of `EmbeddingCollection` work on as many rows as a batch touches, and asking a GPU how
many that is makes the host wait for it. Here every shape follows from the batch's: there is room
for `sum(min(rows * columns, cardinality))` rows of the tables, which is the most that can be
touched, and what is left is padding whose key is one past the last row. Nothing waits for the
device, so a CUDA graph can hold the whole step; what changes from step to step are tensors: ids,
learning rate, number of the step. The price is work on padding, and with several ranks its
transport.

A step::

    route = fixed.route(ids)                    # collective if ranks share the tables
    embedded = fixed.lookup(route)              # leaves for the dense model
    ...                                         # loss, backward
    fixed.update(route, [leaf.grad for leaf in embedded], lr, scale)

Who looks at the sums in between, such as for clipping, calls `collect`, `exchange` and `apply`.

To capture a step in a graph: fill one tensor with each batch's ids, one with the learning rate,
and call the verbs on these. `num_steps` counts on the device; see `read_steps` and `write_steps`.
A batch of another number of rows needs another graph, or a call outside of it: all fit, up to
`max_rows`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from distrain.embeddings import kernels
from distrain.embeddings.collection import EmbeddingCollection, TouchedRows, values_dtype
from distrain.embeddings.kernels import Rates, Segments, segments_of
from distrain.embeddings.peers import Peers
from distrain.embeddings.sparse_optimizer import SparseOptimizer, rounding_seed
from distrain.embeddings.store import Store
from distrain.errors import InputError

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
    """A batch's route through all tables, store by store."""

    num_rows: int
    stores: tuple[FixedStoreRoute, ...]


class Router:
    """Makes the routes of one store, for batches of at most `max_rows` rows on any rank.

    The store is replicated, without columns of lists. `places` is each column's place in its group,
    `[columns]`, int64, on the device; `capacity` is the most rows that a batch can touch.
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
            every = peers.gather_padded(sent, self.capacity)
            union = segments_of(every, self._capacity(peers.num_ranks), self._store.num_rows)
        return FixedStoreRoute(keys, own, rows * num_columns + columns, union)

    def _capacity(self, num_ranks: int) -> int:
        most = self._max_rows * num_ranks
        num_columns = Counter(self._store.table_of)
        return sum(
            min(most * num_columns[number], table.cardinality)
            for number, table in enumerate(self._store.tables)
        )


class FixedTables:
    """Looks up and updates the tables of a collection without waiting for the device.

    Its results are those of the collection's verbs and `SparseOptimizer.apply`: on a CPU the same
    bits, on a GPU to rounding, for the sums there run in another order.

    Args:
        tables: On their device; all columns replicated, with one id per row.
        optimizer: Theirs. Its state is used and updated, its `num_steps` is not.
        max_rows: The most rows a batch has, on any rank.
        dtype: Of what `lookup` returns; `None` for what the tables compute in.

    Attributes:
        num_steps: A scalar on the device, int64: how many updates were made.

    Raises:
        InputError: There are columns of lists, or tables that are not on every rank.
    """

    def __init__(
        self,
        tables: EmbeddingCollection,
        optimizer: SparseOptimizer,
        max_rows: int,
        *,
        dtype: torch.dtype | None = None,
    ):
        _check(tables)
        self.tables = tables
        self.optimizer = optimizer
        self.max_rows = max_rows
        self._dtype = dtype
        self._device = tables.weights[0].device
        self.num_steps = torch.zeros((), dtype=torch.int64, device=self._device)
        self._routers = [Router(store, max_rows, self._device) for store in tables.stores]
        # The live tensors: loading a state copies into them.
        state = optimizer.state_dict()
        self._state_tensors = [
            tuple(values for name, values in state.items() if name.startswith(f"{number}."))
            for number in range(len(tables.stores))
        ]
        self.write_steps()

    @torch.no_grad()
    def route(self, ids: Tensor) -> FixedRoute:
        """Find out which rows a batch needs, and which the others need.

        A collective operation where ranks share the tables. May be made ahead.

        Args:
            ids: As for `EmbeddingCollection.route`, on the tables' device.

        Raises:
            ValueError: More rows than `max_rows`, or other columns.
        """
        if len(ids) > self.max_rows or ids.shape[1] != len(self.tables.columns):
            raise ValueError(
                f"ids {list(ids.shape)} for {len(self.tables.columns)} tables and at most "
                f"{self.max_rows} rows"
            )
        peers = self.tables.route_peers
        return FixedRoute(len(ids), tuple(router.route(ids, peers) for router in self._routers))

    def lookup(self, route: FixedRoute) -> tuple[Tensor, ...]:
        """The embeddings of a batch.

        Returns:
            For each group `[rows, columns of the group, dim]`. Where gradients are enabled, each
            is a leaf that requires grad.
        """
        leaves = []
        for weight, own, router in zip(
            self.tables.weights, route.stores, self._routers, strict=True
        ):
            shape = (route.num_rows, len(router.places), weight.shape[1])
            dtype = self._dtype or values_dtype(weight)
            out = torch.empty(shape, dtype=dtype, device=weight.device)
            with torch.no_grad():
                kernels.lookup(weight, own.keys, router.places, out)
            leaves.append(out.requires_grad_(torch.is_grad_enabled()))
        return tuple(leaves)

    @torch.no_grad()
    def collect(self, route: FixedRoute, grads: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        """Add up the gradients of each distinct row, in the order of the batch's rows.

        Args:
            grads: For each group the gradient of what `lookup` returned; `None` counts as zeros.

        Returns:
            For each store `[capacity, dim]`: this rank's sums, zeros in the padding.
        """
        return tuple(
            weight.new_zeros(len(own.own.keys), weight.shape[1], dtype=values_dtype(weight))
            if grad is None
            else kernels.sum_segments(_as_rows(grad), own.sources, own.own)
            for weight, own, grad in zip(self.tables.weights, route.stores, grads, strict=True)
        )

    @torch.no_grad()
    def exchange(self, route: FixedRoute, sums: Sequence[Tensor]) -> tuple[TouchedRows, ...]:
        """Add the ranks' sums, in rank order; collective where ranks share the tables.

        Returns:
            For each store the rows to update and their gradients; in the padding the number of
            rows of the weight, and zeros.
        """
        return tuple(
            TouchedRows(own.own.keys, own_sums)
            if own.union is None
            else TouchedRows(
                own.union.keys,
                kernels.sum_segments(self._all(own_sums), own.union.order, own.union),
            )
            for own, own_sums in zip(route.stores, sums, strict=True)
        )

    @torch.no_grad()
    def apply(
        self, touched: Sequence[TouchedRows], lr: Tensor | float, scale: Tensor | float = 1.0
    ) -> None:
        """Update the touched rows.

        Args:
            lr: The learning rate; a scalar on the device where a graph shall not keep its value.
            scale: Factor on the gradients; as a scalar on the device for a graph.
        """
        self.num_steps.add_(1)
        for number, rows in enumerate(touched):
            weight, state = self._state(number)
            rates = self._rates(lr, scale, weight.shape[1])
            kernels.update_padded(self.optimizer.rule, weight, state, rows.keys, rows.grads, rates)

    @torch.no_grad()
    def update(
        self,
        route: FixedRoute,
        grads: Sequence[Tensor | None],
        lr: Tensor | float,
        scale: Tensor | float = 1.0,
    ) -> None:
        """`collect`, `exchange` and `apply`; for a rank alone on a GPU in one kernel."""
        if self.tables.peers.num_ranks > 1 or any(grad is None for grad in grads):
            self.apply(self.exchange(route, self.collect(route, grads)), lr, scale)
            return
        self.num_steps.add_(1)
        for number, (own, grad) in enumerate(zip(route.stores, grads, strict=True)):
            assert grad is not None
            weight, state = self._state(number)
            rates = self._rates(lr, scale, weight.shape[1])
            kernels.sum_and_update(
                self.optimizer.rule, weight, state, _as_rows(grad), own.sources, own.own, rates
            )

    def read_steps(self) -> None:
        """Set the optimizer's number of steps, as before saving; waits for the device."""
        self.optimizer.num_steps = int(self.num_steps)

    def write_steps(self) -> None:
        """Take over the optimizer's number of steps, as after loading it; does not wait."""
        self.num_steps.fill_(self.optimizer.num_steps)

    def _all(self, rows: Tensor) -> Tensor:
        """All ranks' rows, rank after rank."""
        return self.tables.peers.gather_padded(rows, len(rows))

    def _state(self, number: int) -> tuple[Tensor, tuple[Tensor, ...]]:
        return self.tables.weights[number], self._state_tensors[number]

    def _rates(self, lr: Tensor | float, scale: Tensor | float, dim: int) -> Rates:
        rate, scale = self._scalar(lr), self._scalar(scale)
        if self.optimizer.corrects_bias:
            beta1, beta2 = self.optimizer.rule.betas
            steps = self.num_steps.double()
            rate = rate * ((1 - beta2**steps).sqrt() / (1 - beta1**steps))
        # The seed is linear in the number of steps, and int64 wraps around as the formula does.
        start = rounding_seed(self.optimizer.seed, 0, dim)
        seed = self.num_steps * rounding_seed(0, 1, 0) + (start - 2**64 * (start >= 2**63))
        return Rates(rate, scale, seed)

    def _scalar(self, value: Tensor | float) -> Tensor:
        if isinstance(value, Tensor):
            return value.double()
        return torch.full((), value, dtype=torch.float64, device=self._device)


def _check(tables: EmbeddingCollection) -> None:
    if tables.list_names:
        raise InputError(
            "columns of lists have no fixed number of ids",
            where={"columns": ", ".join(tables.list_names)},
            hint="Use the verbs of EmbeddingCollection.",
        )
    shared = sorted({store.placement for store in tables.stores} - {"replicated"})
    if shared:
        raise InputError(
            "only replicated tables can be looked up in shapes known beforehand",
            where={"placement": ", ".join(shared)},
            hint="Place all tables replicated, or use the verbs of EmbeddingCollection.",
        )


def _as_rows(grad: Tensor) -> Tensor:
    return grad.reshape(-1, grad.shape[2])
