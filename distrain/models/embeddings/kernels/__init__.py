"""Kernels that gather, sum and update rows of embedding tables, in C, torch and Triton.

On a CPU, C and torch give the same bits. Sums on a GPU have another, fixed order.
"""

from distrain.models.embeddings.kernels.dispatch import (
    Grouping as Grouping,
    add_rows as add_rows,
    collect as collect,
    draw as draw,
    expand as expand,
    gather as gather,
    is_built as is_built,
    keys_of as keys_of,
    padded_positions as padded_positions,
    part_segments as part_segments,
    repeated as repeated,
    unique as unique,
    update as update,
)
from distrain.models.embeddings.kernels.fixed_shape import (
    lookup as lookup,
    runs_triton as runs_triton,
    segments_of as segments_of,
    sources_of as sources_of,
    sum_and_update as sum_and_update,
    sum_segments as sum_segments,
    update_padded as update_padded,
)
from distrain.models.embeddings.kernels.on_torch import cached_tensor as cached_tensor, sqrt as sqrt
from distrain.models.embeddings.kernels.random_bits import lowbias32 as lowbias32, words as words
from distrain.models.embeddings.kernels.segments import (
    RowRule as RowRule,
    Segments as Segments,
    StepRates as StepRates,
)
