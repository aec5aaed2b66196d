"""The tables' initial values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import xxhash
from torch import Tensor

from distrain.embeddings import kernels_cpu, philox

if TYPE_CHECKING:
    from distrain.embeddings.collection import EmbeddingCollection

_SLAB_VALUES = 1 << 18  # of this rank's own


@torch.no_grad()
def draw_tables(tables: EmbeddingCollection, generator: torch.Generator | None) -> None:
    """Draw every table's values uniformly from `-1/sqrt(cardinality) .. 1/sqrt(cardinality)`.

    One seed is taken from the generator. A value depends on it, on the table's name, on the row
    and on the place in the row, and on nothing else. So each rank draws the rows that it holds, and
    has the values that any other rank would have in its place.
    """
    seed = int(torch.randint(2**63 - 1, (), generator=generator))
    for column in tables.tables:
        key = xxhash.xxh3_64_intdigest(f"{seed}/{column.table_name}".encode())
        bound = column.cardinality**-0.5
        number, keys = tables.keys_of_table(column.name)
        store, weight = tables.stores[number], tables.weights[number]
        sharing = store.peers.num_ranks if store.spread else 1
        step = sharing * max(1, _SLAB_VALUES // column.dim)
        for start in range(keys.start, keys.stop, step):
            mine, kept = store.local_part(slice(start, min(start + step, keys.stop)))
            first = start - keys.start + kept.start
            count = mine.stop - mine.start
            rows = torch.arange(
                first, first + count * sharing, sharing, dtype=torch.int64, device=weight.device
            )
            draw_rows(key, rows, bound, weight[mine])


def draw_rows(key: int, rows: Tensor, bound: float, out: Tensor) -> None:
    """Draw some rows of a table uniformly from `-bound .. bound`.

    Args:
        key: Of the table, 64 bits.
        rows: `[n]`, int64: which rows.
        bound: Of their values, which are multiples of `bound / 2**23`.
        out: `[n, dim]`, written over; float32, bfloat16 or float64.
    """
    scale = philox.scale_of(bound)
    drawn = out
    if out.dtype == torch.bfloat16 or not out.is_contiguous():
        drawn = out.new_empty(out.shape, dtype=_drawn(out.dtype))
    if kernels_cpu.DRAWS and drawn.device.type == "cpu" and drawn.dtype == torch.float32:
        kernels_cpu.draw(key, rows, scale, drawn)
    else:
        philox.scaled(key, rows, scale, drawn)
    if drawn is not out:
        out.copy_(drawn)


def _drawn(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32
