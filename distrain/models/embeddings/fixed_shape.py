"""The operations of a step on embedding tables, in shapes that are known before the batch.

The operations of `EmbeddingCollection` return as many rows as a batch touches, and reading that
number from a GPU makes the host wait. Here every shape follows from the batch's shape. For
replicated tables the capacity is `sum(min(rows * columns, cardinality))` rows, an upper bound of
the touched rows; the rest is padding whose key is one past the last row. Nothing waits for the
device, so a CUDA graph can hold the whole step. Ids, learning rate and step number are tensors,
which may change from step to step. The price is work on padding; several ranks also send it.

If tables are sharded over ranks, the ranks request rows before the step, up to a fixed capacity
(see `padded.py`). The result of `request_rows` says whether the capacity was sufficient.

A step::

    wanted, *answers = fixed.request_rows(ids)           # collective; only if tables are sharded
    padded = fixed.routes_of(answers)           # if all of `wanted` are 0
    route = fixed.route(ids, padded)
    embedded = fixed.lookup(route)              # leaves for the dense model
    ...                                         # loss, backward
    fixed.begin_step()                          # outside of a captured graph
    fixed.update(route, [leaf.grad for leaf in embedded], lr, scale)

Only the update needs the sorted ids. So `route` sorts on a second stream (`Branch`), beside the
lookup and the dense model, and `collect` or `update` waits for it.

Callers that need the sums in between, for example for clipping, call `collect`, `exchange` and
`apply`.

To capture a step in a graph: fill one tensor with each batch's ids, one with the learning rate, the
tensors of `padded` with the batch's, and call the methods on these tensors; `request_rows` needs
its own graph. A batch of another number of rows, or other capacities of `padded`, needs another
graph, or calls without a graph, which accept all batches of up to `max_rows` rows.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from distrain.errors import InputError
from distrain.models.embeddings import kernels
from distrain.models.embeddings.branch import Branch
from distrain.models.embeddings.collection import EmbeddingCollection, TouchedRows, values_dtype
from distrain.models.embeddings.fixed_shape_stores import (
    FixedStoreRoute,
    ReplicatedStore,
    ShardedStore,
)
from distrain.models.embeddings.kernels import StepRates
from distrain.models.embeddings.padded import PaddedRoutes
from distrain.models.embeddings.sparse_optimizer import SparseOptimizer, rounding_seed

_NOT_SHARDED = PaddedRoutes(())


@dataclass(frozen=True)
class FixedRoute:
    num_rows: int
    stores: tuple[FixedStoreRoute, ...]


class FixedTables:
    """Looks up and updates the tables of a collection without waiting for the device.

    The results equal those of the collection's operations and `SparseOptimizer.apply`: on a CPU bit
    by bit, on a GPU up to rounding, since sums have another order there. Gaps to the averages of
    the weights are always equal up to rounding only.

    `tables` must be on their device already. `max_rows` is the maximum number of rows of a batch on
    any rank. The optimizer's state is used and updated. Raises InputError if there are list
    columns or host-cached tables.
    """

    def __init__(self, tables: EmbeddingCollection, optimizer: SparseOptimizer, max_rows: int):
        _check(tables)
        self.tables = tables
        self.optimizer = optimizer
        self.max_rows = max_rows
        self._device = tables.weights[0].device
        self._sorting = Branch(self._device)
        # the optimizer's `num_steps`, where a captured graph reads and raises it, and its value
        self._num_steps = torch.zeros((), dtype=torch.int64, device=self._device)
        self._counted = 0
        self._stores = [
            (ShardedStore if store.is_sharded else ReplicatedStore)(
                store, max_rows, len(tables.groups[tables.group_of(store)]), self._device
            )
            for store in tables.stores
        ]
        self._group_of = [tables.group_of(store) for store in tables.stores]
        self._sharded = [store for store in self._stores if isinstance(store, ShardedStore)]
        # `Averaging.growth` of the step; on the device, because a CUDA graph reads it there
        self._growth = self._scalar(1.0)

    @property
    def needs_requests(self) -> bool:
        """Whether some tables are sharded, so that `request_rows` must precede `route`."""
        return bool(self._sharded)

    @property
    def capacities(self) -> tuple[tuple[int, ...], ...]:
        """For each sharded store, how many rows a rank may request from each owner (a rank)."""
        return tuple(store.capacities.now for store in self._sharded)

    def raise_capacity(self, wanted: Sequence[int]) -> None:
        """Raise the capacities of the sharded stores to 1.25 times the rows that a batch needs.

        `wanted` is the first tensor that `request_rows` returned, as numbers on the host, one for
        each sharded store; 0 changes nothing. Pass the same numbers on all ranks, then call
        `request_rows` again.
        """
        for store, rows in zip(self._sharded, wanted, strict=True):
            store.raise_capacity(rows)

    @torch.no_grad()
    def request_rows(self, ids: Tensor) -> tuple[Tensor, ...]:
        """Request a batch's rows of sharded tables from their owners; a collective operation.

        The host does not wait for the device. `ids` is like the argument of
        `EmbeddingCollection.route`, on the tables' device. Raises ValueError if it has more than
        `max_rows` rows, or another number of columns.

        Returns:
            `[sharded stores]`, int32: 0 if the store's capacities suffice on every rank, otherwise
            the largest number of rows that any rank needs from an owner whose capacity is exceeded.
            Then the tensors of `PaddedRoutes`.
        """
        self._check_ids(ids)
        asked = [store.request_rows(ids) for store in self._sharded]
        answers = [tensor for _, *own in asked for tensor in own]
        return torch.stack([wanted for wanted, *_ in asked]), *answers

    def routes_of(self, answers: Sequence[Tensor]) -> PaddedRoutes:
        """Return the batch's routes.

        `answers` is the result of `request_rows` without its first tensor. Call this method only if
        the capacities sufficed, and before they change.
        """
        return PaddedRoutes.of(self.capacities, answers)

    @torch.no_grad()
    def route(self, ids: Tensor, padded: PaddedRoutes = _NOT_SHARDED) -> FixedRoute:
        """Return the route of a batch's ids; keep it until `collect` or `update`.

        `padded` is the result of `routes_of`, only needed if tables are sharded over ranks.
        """
        self._check_ids(ids)
        answers = iter(padded.stores)
        own = [next(answers) if isinstance(s, ShardedStore) else None for s in self._stores]
        keys = [store.keys(ids, answer) for store, answer in zip(self._stores, own, strict=True)]
        each = zip(self._stores, keys, own, strict=True)
        with self._sorting.on_side_stream():
            routes = tuple(store.route(mine, answer) for store, mine, answer in each)
        return FixedRoute(len(ids), routes)

    def lookup(self, route: FixedRoute, dtype: torch.dtype | None = None) -> tuple[Tensor, ...]:
        """Return a batch's embeddings, like `EmbeddingCollection.expand`; collective if sharded.

        `dtype` is the dtype of the embeddings, and so of their gradients. The default is float32,
        or float64 for float64 tables.
        """
        tables = self.tables
        leaves = [
            torch.empty(
                (route.num_rows, len(group), tables.columns[group[0]].dim),
                dtype=dtype or values_dtype(tables.weights[0]),
                device=self._device,
            )
            for group in tables.groups
        ]
        with torch.no_grad():
            for number, (store, own) in enumerate(zip(self._stores, route.stores, strict=True)):
                values = store.values(tables.weights[number], own)
                kernels.lookup(values, own.keys, store.places, leaves[self._group_of[number]])
        return tuple(leaf.requires_grad_(torch.is_grad_enabled()) for leaf in leaves)

    @torch.no_grad()
    def collect(self, route: FixedRoute, grads: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        """Sum gradients like `EmbeddingCollection.collect`.

        Returns for each store `[keys of the route, dim]`, with zeros in the padding; all zeros if
        the gradient is `None`.
        """
        self._sorting.join()
        return tuple(
            weight.new_zeros(len(own.own.keys), weight.shape[1], dtype=values_dtype(weight))
            if (grad := grads[group]) is None
            else kernels.sum_segments(_as_rows(grad), own.sources, own.own)
            for weight, own, group in zip(
                self.tables.weights, route.stores, self._group_of, strict=True
            )
        )

    @torch.no_grad()
    def exchange(self, route: FixedRoute, sums: Sequence[Tensor]) -> tuple[TouchedRows, ...]:
        """Add up the ranks' sums of gradients, like `EmbeddingCollection.exchange`.

        The padding has the weight's number of rows as keys, and zeros as gradients.
        """
        return tuple(
            store.exchange(own_sums, own)
            for store, own, own_sums in zip(self._stores, route.stores, sums, strict=True)
        )

    def begin_step(self) -> None:
        """Count a step, and prepare what an update reads from the device.

        Call it before each update, and not in a captured graph, since it differs by step.
        """
        if self._counted != self.optimizer.num_steps:  # a state was loaded
            self._num_steps.fill_(self.optimizer.num_steps)
        self.optimizer.begin_step()
        self._counted = self.optimizer.num_steps
        if self.optimizer.averaging is not None:
            self._growth.fill_(self.optimizer.averaging.growth(self.optimizer.num_steps))

    @torch.no_grad()
    def apply(
        self, touched: Sequence[TouchedRows], lr: Tensor | float, scale: Tensor | float = 1.0
    ) -> None:
        """Update the rows that `exchange` returned; `scale` is a factor of the gradients.

        In a CUDA graph, `lr` and `scale` must be scalar tensors on the device.
        """
        self._num_steps.add_(1)
        for number, rows in enumerate(touched):
            weight, state = self._state(number)
            rates = self._rates(lr, scale, weight.shape[1])
            named = self._named(number, rows.keys)
            with self._averaging(number, rows.keys):
                kernels.update_padded(
                    self.optimizer.rule, weight, state, rows.keys, rows.grads, rates, named
                )

    @torch.no_grad()
    def update(
        self,
        route: FixedRoute,
        grads: Sequence[Tensor | None],
        lr: Tensor | float,
        scale: Tensor | float = 1.0,
    ) -> None:
        """Run `collect`, `exchange` and `apply`; collective if ranks share the tables.

        On a single rank, if no gradient is `None`, Triton does not write the sums to memory.
        """
        if self.tables.peers.num_ranks > 1 or any(grad is None for grad in grads):
            self.apply(self.exchange(route, self.collect(route, grads)), lr, scale)
            return
        self._sorting.join()
        self._num_steps.add_(1)
        for number, own in enumerate(route.stores):
            grad = grads[self._group_of[number]]
            assert grad is not None
            weight, state = self._state(number)
            rates = self._rates(lr, scale, weight.shape[1])
            named = self._named(number, own.own.keys)
            with self._averaging(number, own.own.keys):
                kernels.sum_and_update(
                    self.optimizer.rule,
                    weight,
                    state,
                    _as_rows(grad),
                    own.sources,
                    own.own,
                    rates,
                    named,
                )

    @contextmanager
    def _averaging(self, number: int, keys: Tensor) -> Iterator[None]:
        """Return a context in which to update the rows `keys` of a store.

        It also updates the gaps to the rows' averages (`averaging.py`), if averages are kept.
        """
        weight, gaps = self.tables.weights[number], self.optimizer.gaps(number)
        if gaps is None or len(weight) == 0:
            yield
            return
        is_row = keys < len(weight)
        # Padding adds zeros, to different rows, because additions to one row wait for each other.
        anywhere = torch.arange(len(keys), dtype=keys.dtype, device=keys.device) % len(weight)
        rows = torch.where(is_row, keys, anywhere)
        before = weight.index_select(0, rows).to(gaps.dtype)
        yield
        fallen = before - weight.index_select(0, rows).to(gaps.dtype)
        gaps.index_add_(0, rows, torch.where(is_row.unsqueeze(1), fallen * self._growth, 0))

    def _check_ids(self, ids: Tensor) -> None:
        if len(ids) > self.max_rows or ids.shape[1] != len(self.tables.columns):
            raise ValueError(
                f"ids {list(ids.shape)} for {len(self.tables.columns)} tables and at most "
                f"{self.max_rows} rows"
            )

    def _named(self, number: int, keys: Tensor) -> Tensor | None:
        """Return the numbers by which the rows of store `number` seed their stochastic rounding.

        They are the rows' positions in the group's canonical order, so they do not depend on the
        sharding. `keys`, `[n]`, are rows of this rank's weight; where these are padding, the result
        is arbitrary. Returns `None` if the weights are not bfloat16, and so are not rounded.
        """
        if self.tables.weights[number].dtype != torch.bfloat16:
            return None
        return self.tables.stores[number].canonical_keys(keys)

    def _state(self, number: int) -> tuple[Tensor, tuple[Tensor, ...]]:
        return self.tables.weights[number], tuple(self.optimizer.rule_state(number))

    def _rates(self, lr: Tensor | float, scale: Tensor | float, dim: int) -> StepRates:
        rate, scale = self._scalar(lr), self._scalar(scale)
        if self.optimizer.corrects_bias:
            beta1, beta2 = self.optimizer.rule.betas
            steps = self._num_steps.double()
            rate = rate * ((1 - beta2**steps).sqrt() / (1 - beta1**steps))
        # The seed is linear in the number of steps. int64 wraps around like the 64-bit formula.
        start = rounding_seed(self.optimizer.seed, 0, dim)
        seed = self._num_steps * rounding_seed(0, 1, 0) + (start - 2**64 * (start >= 2**63))
        return StepRates(rate, scale, seed)

    def _scalar(self, value: Tensor | float) -> Tensor:
        if isinstance(value, Tensor):
            return value.double()
        return torch.full((), value, dtype=torch.float64, device=self._device)


def _check(tables: EmbeddingCollection) -> None:
    if tables.list_names:
        raise InputError(
            "columns of lists have no fixed number of ids",
            where={"columns": ", ".join(tables.list_names)},
            hint="Use the methods of EmbeddingCollection.",
        )
    if any(store.cache is not None for store in tables.stores):
        raise InputError(
            "host-cached tables do not support lookups with fixed shapes",
            where={"placement": "host_cached"},
            hint="Choose another placement for all tables, or use the methods of "
            "EmbeddingCollection.",
        )


def _as_rows(grad: Tensor) -> Tensor:
    return grad.reshape(-1, grad.shape[2])
