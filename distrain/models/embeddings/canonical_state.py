"""Tables and their optimizer state in a form that does not depend on placements and ranks.

The canonical tensor of a group (the tables of one width) has the rows of its tables one after
another, in the order of the columns (a shared table at its first column). This is the group's
weight on a single rank. Neither the number of ranks nor the placement affects its rows and their
order. The tensor may be too large for the memory of any rank, so it is read and written in slabs
of rows.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from distrain.loader.host_memory import Slab
from distrain.models.embeddings.collection import EmbeddingCollection
from distrain.models.embeddings.columns import first_of_tables
from distrain.models.embeddings.peers import Peers
from distrain.models.embeddings.sparse_optimizer import SparseOptimizer
from distrain.models.embeddings.table_store import Store


class _Run(NamedTuple):
    """Rows `start .. stop` of a canonical tensor, which are consecutive rows of one store.

    A store is the tables of one width and placement; its rows are numbered by keys (`Store`).
    """

    start: int
    stop: int
    first_key: int
    store: Store
    values: Tensor  # this rank's share of the store's tensor


class _Part(NamedTuple):
    place: slice  # the rows within the slab
    keys: slice
    store: Store
    values: Tensor


@dataclass(frozen=True)
class CanonicalTensor:
    """All rows of one group in canonical order (see the module docstring), as one tensor.

    It is a view of the ranks' own tensors, not a copy.
    """

    shape: tuple[int, ...]  # `[rows, dim]`, or `[rows]` for state that is kept once per row
    dtype: torch.dtype
    peers: Peers
    runs: tuple[_Run, ...]  # where the rows are, in canonical order

    @property
    def shared(self) -> bool:
        return any(run.store.is_sharded for run in self.runs)

    @torch.no_grad()
    def read(self, rows: slice, *, everywhere: bool = False) -> Tensor | None:
        """Return some consecutive rows, `[rows, ...]`, on the CPU.

        If the tensor is `shared` (its rows are on several ranks), this is a collective operation.

        All ranks must pass the same rows. The result may be a view of the live values. It is `None`
        on all ranks except rank 0, unless `everywhere` is True.
        """
        parts = list(self._parts(rows))
        wanted = everywhere or self.peers.rank == 0
        apart = [part for part in parts if part.store.is_sharded]
        if wanted and not apart and len(parts) == 1 and parts[0].values.device.type == "cpu":
            return parts[0].values[parts[0].keys]
        gathered = self._gather(apart, everywhere) if apart else None
        if not wanted:
            return None
        like = self.runs[0].values
        slab = Slab().allocate_like(like, rows.stop - rows.start, like.device)
        for part in parts:
            if not part.store.is_sharded:
                slab[part.place] = part.values[part.keys]
        if gathered is not None:
            self._spread(apart, gathered, slab)
        return slab

    @torch.no_grad()
    def write(self, rows: slice, values: Tensor) -> None:
        """Write consecutive rows; a rank only writes the rows that it holds, and sends nothing.

        `values`, `[rows, ...]`, has the values of all these rows, on every rank.
        """
        for part in self._parts(rows):
            local = part.store.local_part(part.keys)
            part.values[local] = values[part.place][part.store.kept_of(part.keys)].to(
                part.values.device
            )

    @torch.no_grad()
    def write_rows(self, rows: Tensor, values: Tensor) -> None:
        """Write some rows; a rank only writes the rows that it holds, and sends nothing.

        `rows`, `[n]`, int64, on the CPU, are distinct rows of this tensor; `values` is `[n, ...]`.
        """
        for run in self.runs:
            inside = (rows >= run.start) & (rows < run.stop)
            mine, local = run.store.local_rows_of(rows[inside] - run.start + run.first_key)
            if len(local):
                own = values[inside][mine].to(run.values.device, run.values.dtype)
                run.values[local.to(run.values.device)] = own

    def _parts(self, rows: slice) -> Iterator[_Part]:
        for run in self.runs:
            start, stop = max(rows.start, run.start), min(rows.stop, run.stop)
            if start < stop:
                keys = slice(start - run.start + run.first_key, stop - run.start + run.first_key)
                yield _Part(
                    slice(start - rows.start, stop - rows.start), keys, run.store, run.values
                )

    def _gather(self, parts: Sequence[_Part], everywhere: bool) -> list[Tensor] | None:
        own = [part.values[_given(part, self.peers.rank)] for part in parts]
        # As bytes, since a backend may not support the dtype; on the device that the backend uses.
        flat = torch.cat([o.reshape(len(o), math.prod(self.shape[1:])) for o in own])
        flat = flat.to(self.peers.device)
        lengths = [
            sum(_length(_given(part, rank)) for part in parts)
            for rank in range(self.peers.num_ranks)
        ]
        if everywhere:
            return self.peers.gather_rows(flat.view(torch.uint8), lengths)
        return self.peers.gather_rows_on_rank_0(flat.view(torch.uint8), lengths)

    def _spread(self, parts: Sequence[_Part], gathered: Sequence[Tensor], slab: Tensor) -> None:
        for rank, of_rank in enumerate(gathered):
            values = of_rank.cpu().view(self.dtype).view(len(of_rank), *self.shape[1:])
            done = 0
            for part in parts:
                length = _length(_given(part, rank))
                if length:
                    kept = _of_rank(part.store, rank).kept_of(part.keys)
                    slab[part.place][kept] = values[done : done + length]
                done += length


def canonical_weights(tables: EmbeddingCollection) -> dict[str, CanonicalTensor]:
    """Return the live weights of each group as a canonical tensor, named `weights.GROUP`.

    They are valid until the next step. The tables' values are these weights times `tables.factor`.
    Host-cached rows are written back to the host first.
    """
    tables.flush_caches()
    weights = canonical_form(tables, [weight.data for weight in tables.weights])
    return {f"weights.{group}": values for group, values in weights.items()}


def canonical_form(
    tables: EmbeddingCollection, values: Sequence[Tensor]
) -> dict[int, CanonicalTensor]:
    """Return values of the tables' rows as canonical tensors, by the index of the group.

    `values` has for each store, in the order of `tables.weights`, a tensor with this rank's rows.
    """
    return {group: _canonical(tables, group, values) for group in _groups(tables)}


def canonical_state(optimizer: SparseOptimizer) -> dict[str, CanonicalTensor]:
    """Return an optimizer's state as canonical tensors, named `GROUP.NAME`.

    Each is `[rows, dim]`, or `[rows]` for state that is kept once per row.
    """
    tables, state = optimizer.embeddings, optimizer.state_dict()
    names = sorted({name.partition(".")[2] for name in state} - {""})
    return {
        f"{group}.{name}": _canonical(
            tables, group, [state[f"{number}.{name}"] for number in range(len(tables.stores))]
        )
        for group in _groups(tables)
        for name in names
    }


def _groups(tables: EmbeddingCollection) -> range:
    return range(len(tables.groups))


def _canonical(
    tables: EmbeddingCollection, group: int, values: Sequence[Tensor]
) -> CanonicalTensor:
    runs: list[_Run] = []
    row = 0
    for table in first_of_tables(tables.columns[i] for i in tables.groups[group]):
        number, keys = tables.keys_of_table(table.name)
        store, stop = tables.stores[number], row + table.cardinality
        last = runs[-1] if runs else None
        if last and last.store is store and keys.start - last.first_key == row - last.start:
            runs[-1] = last._replace(stop=stop)
        else:
            runs.append(_Run(row, stop, keys.start, store, values[number]))
        row = stop
    first = runs[0].values
    return CanonicalTensor((row, *first.shape[1:]), first.dtype, tables.peers, tuple(runs))


def _of_rank(store: Store, rank: int) -> Store:
    return replace(store, peers=replace(store.peers, rank=rank))


def _given(part: _Part, rank: int) -> slice:
    return _of_rank(part.store, rank).local_part(part.keys)


def _length(rows: slice) -> int:
    return int(rows.stop - rows.start)
