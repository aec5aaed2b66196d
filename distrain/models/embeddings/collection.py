"""All embedding tables of a model, and the five operations of a training step on them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
import xxhash
from torch import Tensor, nn

from distrain.errors import InputError
from distrain.loader.batch import Ragged
from distrain.loader.host_memory import HostMemory, empty
from distrain.metrics.exchange_stats import ExchangeStats
from distrain.models.embeddings import kernels
from distrain.models.embeddings.columns import TableColumn, first_of_tables
from distrain.models.embeddings.device_row_cache import DeviceRowCache
from distrain.models.embeddings.peers import Peers
from distrain.models.embeddings.route import Route
from distrain.models.embeddings.table_store import (
    Store,
    StoreWeights,
    column_placements,
    make_stores,
)

DEFAULT_CACHE_BYTES = 1 << 30
_DRAWN_VALUES = 1 << 18  # initial values that this rank draws at once on the host
_FIRST = torch.zeros(1, dtype=torch.int64)
_DRAWN_ON_DEVICE = 1 << 23  # the same on a GPU, with fewer kernel launches; 18 bytes per value


class TouchedRows(NamedTuple):
    """The rows of one store (the tables of one weight) that this rank must update after a step."""

    keys: Tensor  # `[v]`, int64, distinct: rows of this rank's weight
    grads: Tensor  # `[v, dim]`: the sums of their gradients over all ranks


class EmbeddingCollection(nn.Module):
    """The embedding tables of categorical columns; those of one width and placement share a weight.

    The columns of one width are a *group*. A lookup returns one tensor per group, then one for
    each sequence, a list column whose embeddings are not pooled. Groups are ordered by width, the
    columns of a group as in `columns`. The tables of a group with the same placement are a
    *store*, which has one weight. The weights are parameters without gradients: `expand` returns
    leaves of the autograd graph, from whose gradients a `SparseOptimizer` updates touched rows. A
    step::

        route = tables.route(ids)               # needs only ids: may run ahead
        rows = tables.fetch(route)              # distinct rows
        embedded = tables.expand(route, rows)   # leaves for the dense model
        ...                                     # loss, backward
        sums = tables.collect(route, [leaf.grad for leaf in embedded])
        optimizer.apply(tables.exchange(route, sums), lr)

    If ranks share the tables, `route`, `fetch` and `exchange` are collective operations.

    Each column has its own table, or shares the table of columns with the same table name. A row
    that is looked up through several columns is fetched, exchanged and updated once, with the sum
    of all its gradients.

    Each value of a table is drawn uniformly from `-1/sqrt(cardinality) .. 1/sqrt(cardinality)`,
    the rule of facebookresearch/dlrm (`create_emb`), or within another bound (`init`). It depends
    only on the generator's state, the table's name, the row and the place in the row (`_draw`), so
    the tables are the same for any number of ranks and any placement.

    Args:
        columns: The columns with one id per row, in the order of the columns of `ids`; list columns
            may be anywhere between them.
        placements: For each column "replicated" (all ranks hold all rows), "row_wise" (each row
            is on one rank) or "host_cached" (row-wise in the host's memory, with recently used
            rows on the device); `None` for all replicated. A single rank holds everything. Columns
            of one table must have one placement.
        peers: The ranks that share the tables; `None` for a single rank.
        generator: Generator of the initial values; `None` for torch's default generator.
        dtype: Dtype of the weights: float32, bfloat16 or float64.
        cache_bytes: Device memory for the weights of host-cached tables. Stores share it in
            proportion to their sizes. The cached rows of an optimizer's state need more memory.
        init: The bound of the initial values: one for all tables, or by the name of a table's first
            column. Tables without a bound here have `1/sqrt(cardinality)`.
        device: The device on which tables are created and drawn; `None` for the host.
            Host-cached tables are always on the host.

    Attributes:
        groups: For each group, the positions of its columns in `columns`.
        sequences: The positions of the columns whose combiner is "sequence".
        weights: For each store, `[rows on this rank, dim]`.

    >>> tables = EmbeddingCollection([TableColumn("a", 3, 2), TableColumn("b", 5, 2)])
    >>> [tuple(weight.shape) for weight in tables.weights]
    [(8, 2)]
    >>> ids = torch.tensor([[2, 0], [0, 4], [2, 4]], dtype=torch.int32)
    >>> traffic = tables.route(ids).traffic
    >>> traffic.lookups, traffic.distinct, traffic.updated, traffic.sent_bytes
    (6, 4, 4, 0)
    >>> [tuple(values.shape) for values in tables(ids)]
    [(3, 2, 2)]
    """

    def __init__(
        self,
        columns: Sequence[TableColumn],
        *,
        placements: Sequence[str] | None = None,
        peers: Peers | None = None,
        generator: torch.Generator | None = None,
        dtype: torch.dtype = torch.float32,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        device: torch.device | None = None,
        init: float | Mapping[str, float] | None = None,
    ):
        super().__init__()
        self.columns = tuple(columns)
        # the first column of each table, in the order of the columns
        self.tables = first_of_tables(self.columns)
        self.peers = peers or Peers()
        # A table's value is its weight's value times this factor. So one number decays all rows.
        self.factor = 1.0
        self._memory = HostMemory()
        placed = column_placements(self.columns, placements, self.peers.num_ranks)
        dims = sorted({column.dim for column in self.columns})
        self.groups = tuple(
            tuple(i for i, column in enumerate(self.columns) if column.dim == dim) for dim in dims
        )
        self.sequences = tuple(i for i, column in enumerate(self.columns) if column.is_sequence)
        self.stores = tuple(make_stores(self.columns, self.groups, placed, self.peers))
        self.weights = StoreWeights(
            nn.Parameter(_new_weight(store, dtype, device), requires_grad=False)
            for store in self.stores
        )
        self._draw(generator, init)
        self.stores = tuple(self._cached(cache_bytes))
        # torch has not annotated its hooks.
        self.register_state_dict_pre_hook(self._apply_factor_before)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(self._apply_factor_before)  # type: ignore[no-untyped-call]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns if column.combiner is None)

    @property
    def list_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns if column.combiner is not None)

    def table(self, name: str) -> Tensor:
        """Return one column's table, `[cardinality, dim]`: a view of its store's weight.

        The view has the table's values until the next step. Host caches are written back first.

        Raises:
            KeyError: There is no such column.
            InputError: This rank holds only a share of the table's rows.
        """
        number, keys = self.keys_of_table(name)
        store = self.stores[number]
        if store.num_local_rows != store.num_rows:
            raise InputError(
                f"a rank holds a share of the rows of {name!r} only",
                where={"placement": store.placement, "ranks": self.peers.num_ranks},
            )
        self.apply_factor()
        whole: Tensor = self.weights[number].data
        return whole[keys]

    def route(self, ids: Tensor, lists: Mapping[str, Ragged] | None = None) -> Route:
        """Determine the rows that a batch needs, their owners, and the other ranks that need them.

        A collective operation if ranks share the tables.

        Args:
            ids: `[rows, flat columns]`, int32 or int64. Each must be in `0 .. cardinality-1` of its
                column. This is not checked here, since a check would cost as much as the lookup:
                the loader rejects other ids earlier. An id beyond its column's end would read a row
                of another table.
            lists: The list columns by name. Columns that the collection does not have are ignored.
                The ids must be in the same range.

        Raises:
            ValueError: `ids` has another number of columns, or a list column is missing or has
                another number of rows.
        """
        by_column = self._by_column(ids)
        place = {name: i for i, name in enumerate(self.names)}
        routes = []
        for store in self.stores:
            flat = [place[self.columns[i].name] for i in store.flat]
            own = by_column if flat == list(range(len(by_column))) else by_column[flat]
            own_lists = [_list_of(self.columns[i].name, lists, len(ids)) for i in store.lists]
            routes.append(store.route(own.contiguous(), own_lists, self.peers))
        traffic = sum(
            (
                store.traffic(route, values_dtype(weight).itemsize)
                for store, route, weight in zip(self.stores, routes, self.weights, strict=True)
            ),
            ExchangeStats(),
        )
        return Route(len(ids), tuple(routes), traffic)

    def _by_column(self, ids: Tensor) -> Tensor:
        """Return ids as `[flat columns, rows]`, int32; `ValueError` for another number of columns.

        The result is a view if `ids` is int32.
        """
        if ids.shape[1] != len(self.names):
            raise ValueError(f"{ids.shape[1]} columns of ids for {len(self.names)} tables")
        return ids.T.int()

    @property
    def fetches_from_peers(self) -> bool:
        """Whether `fetch` reads rows of other ranks."""
        return any(store.is_sharded for store in self.stores)

    @torch.no_grad()
    def fetch(self, route: Route) -> tuple[Tensor, ...]:
        """Return the distinct rows that a batch needs; collective if tables are sharded over ranks.

        Returns for each store `[distinct rows, dim]`: float64 for float64 tables, else float32.
        """
        rows = tuple(
            store.fetch(weight, own)
            for store, weight, own in zip(self.stores, self.weights, route.stores, strict=True)
        )
        if self.factor != 1.0:
            for fetched in rows:
                fetched *= self.factor
        return rows

    def expand(
        self, route: Route, rows: Sequence[Tensor], part: slice | None = None
    ) -> tuple[Tensor, ...]:
        """Return the embeddings of a batch, or of `part` of its rows, a slice without a step.

        For each group `[rows, columns of the group, dim]`, without its sequences; then for each
        sequence `[ids of the rows, dim]`, row after row. Each is a leaf that requires grad if
        gradients are enabled. On a CPU, the memory is reused after the last reference is gone.
        """
        bounded, num_rows = _bounded(part, route.num_rows)
        with torch.no_grad():
            embedded = [
                self._allocate_like(
                    rows, num_rows, len({*group} - {*self.sequences}), self.columns[group[0]].dim
                )
                for group in self.groups
            ]
            for store, own, values in zip(self.stores, route.stores, rows, strict=True):
                store.expand(values, own, bounded, embedded[self.group_of(store)])
            for i in self.sequences:
                number, inverse = self._sequence(i, route, bounded)
                found = self._allocate_like(rows, len(inverse), self.columns[i].dim)
                kernels.expand(rows[number], inverse[None], _FIRST, found.unsqueeze(1))
                embedded.append(found)
        if torch.is_grad_enabled():
            for leaf in embedded:
                leaf.requires_grad_()
        return tuple(embedded)

    @torch.no_grad()
    def collect(
        self,
        route: Route,
        grads: Sequence[Tensor | None],
        part: slice | None = None,
        into: Sequence[Tensor] | None = None,
    ) -> tuple[Tensor, ...]:
        """Sum the gradients of each distinct row, in a fixed order.

        On a CPU, the gradients of a column are added in the order of the batch's rows. `grads` are
        the gradients of what `expand` returned for `part` of the rows; `None` counts as zeros. They
        are added, in place, to `into`, the sums of earlier parts; `None` for new sums. Returns the
        sums of each store, `[distinct rows, dim]`.
        """
        bounded, _ = _bounded(part, route.num_rows)
        sums = []
        for number, (store, own) in enumerate(zip(self.stores, route.stores, strict=True)):
            grad = grads[self.group_of(store)]
            shape, dtype = (own.num_distinct, store.dim), values_dtype(self.weights[number])
            # On the batch's device: the weight of host-cached tables is on the host.
            total = (
                self._allocate(shape, dtype, own.inverse.device).zero_()
                if into is None
                else into[number]
            )
            if grad is not None:
                store.collect(grad, own, bounded, total)
            sums.append(total)
        for i, grad in zip(self.sequences, grads[len(self.groups) :], strict=True):
            if grad is not None:
                number, inverse = self._sequence(i, route, bounded)
                kernels.collect(grad.unsqueeze(1), inverse[None], _FIRST, sums[number])
        return tuple(sums)

    def exchange(self, route: Route, sums: Sequence[Tensor]) -> tuple[TouchedRows, ...]:
        """Add up the sums of gradients of all ranks, in rank order.

        `sums` are those of this rank, as `collect` returns them. If ranks share the tables, this is
        a collective operation: every rank must call it, also for an empty batch.

        Returns for each store the rows to update on this rank and their gradients: all touched rows
        if the store is replicated, otherwise those that this rank owns.
        """
        return self.begin_exchange(route, sums)()

    @torch.no_grad()
    def begin_exchange(
        self, route: Route, sums: Sequence[Tensor]
    ) -> Callable[[], tuple[TouchedRows, ...]]:
        """Begin an `exchange`, and return a function that waits for its result and returns it.

        Only the beginning is a collective operation: ranks may call the returned function at
        different times.
        """
        ends = [
            store.begin_exchange(own_sums, own)
            for store, own, own_sums in zip(self.stores, route.stores, sums, strict=True)
        ]

        @torch.no_grad()
        def finish() -> tuple[TouchedRows, ...]:
            return tuple(TouchedRows(*end()) for end in ends)

        return finish

    def lookup(self, ids: Tensor, lists: Mapping[str, Ragged] | None = None) -> tuple[Tensor, ...]:
        """Return the embeddings of a batch, as `expand` does.

        Copies them directly from the tables, without a route, if gradients are disabled and
        `_can_look_up` is True. Otherwise it is a collective operation if ranks share the tables.
        """
        if self._can_look_up and not torch.is_grad_enabled():
            return self._copied(ids)
        route = self.route(ids, lists)
        return self.expand(route, self.fetch(route))

    @property
    def _can_look_up(self) -> bool:
        """Whether `lookup` can copy embeddings directly from the weights, without a route.

        This rank must hold all rows, without a host cache or list columns, and the numbers of the
        rows must fit 32 bits.
        """
        whole = all(s.cache is None and not s.is_sharded for s in self.stores)
        return whole and not self.list_names and all(s.num_rows < 2**31 for s in self.stores)

    def _copied(self, ids: Tensor) -> tuple[Tensor, ...]:
        by_column = self._by_column(ids)
        embedded = tuple(
            self._allocate(
                (len(ids), len(group), self.columns[group[0]].dim),
                values_dtype(self.weights[0]),
                ids.device,
            )
            for group in self.groups
        )
        for store, weight in zip(self.stores, self.weights, strict=True):
            flat, starts = store.flat, store.starts[list(store.table_of)]
            on = partial(kernels.cached_tensor, ids.device)
            keys = by_column.index_select(0, on(flat)) + on(tuple(starts.tolist())).int()[:, None]
            out = embedded[self.group_of(store)]
            if weight.is_cpu and weight.dtype == torch.float32:
                kernels.expand(weight, keys, torch.tensor(store.places), out)
            else:
                kernels.lookup(weight, keys, on(store.places), out)
        if self.factor != 1.0:
            for values in embedded:
                values *= self.factor
        return embedded

    def forward(self, ids: Tensor, lists: Mapping[str, Ragged] | None = None) -> tuple[Tensor, ...]:
        return self.lookup(ids, lists)

    def flush_caches(self) -> None:
        """Write changed rows of host-cached tables back to the host, and empty their caches."""
        for store in self.stores:
            if store.cache is not None:
                store.cache.flush()

    @torch.no_grad()
    def apply_factor(self, factor: float = 1.0) -> None:
        """Multiply the weights by `self.factor / factor`, then set `self.factor` to `factor`.

        A table's values are its weights times `self.factor`, which a weight decay lowers, so the
        values stay the same. With 1.0, the weights are the values, as in a state dict. Host caches
        are written back and emptied first.
        """
        self.flush_caches()
        if self.factor != factor:
            for weight in self.weights:
                weight *= self.factor / factor
            self.factor = factor

    def _apply_factor_before(self, *_: object) -> None:
        self.apply_factor()

    def keys_of_table(self, name: str) -> tuple[int, slice]:
        """Return where the rows of a column's table are: the index of the store, and their keys.

        A key is the number of a row among the rows of all tables of the store, on all ranks.

        Raises:
            KeyError: There is no such column.
        """
        for number, store in enumerate(self.stores):
            for table, column in zip(store.table_of, store.columns, strict=True):
                if column.name == name:
                    start = int(store.starts[table])
                    return number, slice(start, start + column.cardinality)
        raise KeyError(name)

    @torch.no_grad()
    def _draw(
        self, generator: torch.Generator | None, init: float | Mapping[str, float] | None
    ) -> None:
        seed = int(torch.randint(2**63 - 1, (), generator=generator))
        for column in self.tables:
            key = xxhash.xxh3_64_intdigest(f"{seed}/{column.table_name}".encode())
            number, keys = self.keys_of_table(column.name)
            store, weight = self.stores[number], self.weights[number]
            own = init.get(column.name) if isinstance(init, Mapping) else init
            bound = column.cardinality**-0.5 if own is None else own
            at_once = _DRAWN_VALUES if weight.is_cpu else _DRAWN_ON_DEVICE
            step = store.shard_group.num_ranks * max(1, at_once // column.dim)
            for start in range(keys.start, keys.stop, step):
                mine = store.local_part(slice(start, min(start + step, keys.stop)))
                rows = torch.arange(mine.start, mine.stop, device=weight.device)
                rows = store.keys_at(rows) - keys.start
                kernels.draw(key, rows, bound, weight[mine])

    def _cached(self, cache_bytes: int) -> Iterator[Store]:
        sizes = [w.numel() * w.element_size() for w in self.weights]
        cached = [store.facts.on_host for store in self.stores]
        total = sum(size for size, wanted in zip(sizes, cached, strict=True) if wanted)
        for store, weight in zip(self.stores, self.weights, strict=True):
            if store.facts.on_host:
                rows = len(weight) * cache_bytes // max(total, 1)
                cache = DeviceRowCache(len(weight), max(1, min(len(weight), rows)))
                cache.attach(weight.data)
                self.weights.stay_on_host(weight)
                store = replace(store, cache=cache)
            yield store

    def group_of(self, store: Store) -> int:
        first = (store.flat + store.lists)[0]
        return next(n for n, group in enumerate(self.groups) if first in group)

    def _sequence(self, column: int, route: Route, part: slice) -> tuple[int, Tensor]:
        """Return the index of a sequence column's store, and where the rows of its ids are.

        `column` is the column's position in `columns`. The second result is `[ids]`, int32: for
        each id in the batch's rows `part`, an index in the store's result of `fetch`. Raises
        `IndexError` if `column` is not a list column.
        """
        for number, (store, own) in enumerate(zip(self.stores, route.stores, strict=True)):
            if column in store.lists:
                return number, own.lists[store.lists.index(column)].part(part).inverse
        raise IndexError(column)

    def _allocate_like(self, rows: Sequence[Tensor], *shape: int) -> Tensor:
        return self._allocate(shape, values_dtype(rows[0]), rows[0].device)

    def _allocate(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        if device.type == "cpu":
            return self._memory.allocate(shape, dtype)
        return torch.empty(shape, dtype=dtype, device=device)


def _new_weight(store: Store, dtype: torch.dtype, device: torch.device | None) -> Tensor:
    shape = (store.num_local_rows, store.dim)
    if device is None or device.type == "cpu" or store.facts.on_host:
        return empty(shape, dtype)
    return torch.empty(shape, dtype=dtype, device=device)


def values_dtype(weight: Tensor) -> torch.dtype:
    return torch.float64 if weight.dtype == torch.float64 else torch.float32


def _list_of(name: str, lists: Mapping[str, Ragged] | None, num_rows: int) -> Ragged:
    column = (lists or {}).get(name)
    if column is None:
        raise ValueError(f"no lists for the column {name!r}")
    if len(column.offsets) != num_rows + 1:
        raise ValueError(
            f"{name!r} has lists for {len(column.offsets) - 1} rows, the batch has {num_rows}"
        )
    return Ragged(column.values.int(), column.offsets.int())


def _bounded(part: slice | None, num_rows: int) -> tuple[slice, int]:
    start, stop, _ = (part or slice(None)).indices(num_rows)
    return slice(start, stop), max(0, stop - start)
