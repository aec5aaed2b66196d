"""The tables' initial values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from distrain.embeddings.collection import EmbeddingCollection

_SLAB_ROWS = 1 << 16


@torch.no_grad()
def draw_tables(tables: EmbeddingCollection, generator: torch.Generator | None) -> None:
    """Draw every table's values uniformly from `-1/sqrt(cardinality) .. 1/sqrt(cardinality)`.

    A rank that holds a share of a table draws all of it, slab by slab, and keeps its own rows: the
    values must not depend on who holds them.
    """
    for column in tables.tables:
        bound = column.cardinality**-0.5
        number, keys = tables.keys_of_table(column.name)
        store, weight = tables.stores[number], tables.weights[number]
        for start in range(keys.start, keys.stop, _SLAB_ROWS):
            slab = slice(start, min(start + _SLAB_ROWS, keys.stop))
            values = torch.empty(slab.stop - slab.start, column.dim, dtype=_drawn(weight.dtype))
            values.uniform_(-bound, bound, generator=generator)
            mine, kept = store.local_part(slab)
            weight[mine] = values[kept].to(weight.dtype)


def _drawn(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32
