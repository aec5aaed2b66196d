"""The kernels of the fixed-capacity step for NVIDIA's GPUs, in Triton.

`kernels_fixed.py` says what each does and holds its twin in torch. Import this file only where
`triton_use.runs_triton` says so: it needs the package `triton`. The programs themselves are in
`triton_programs.py`.
"""

import torch
import triton
from torch import Tensor

from distrain.embeddings import triton_programs
from distrain.embeddings.segments import Rates, Rule, Segments

_TILE = 64
_BLOCK_VALUES = 1024  # values that a program holds at once


def lookup(weight: Tensor, keys: Tensor, places: Tensor, out: Tensor) -> None:
    """See `kernels_fixed.lookup`."""
    num_columns, num_rows = keys.shape
    dim = weight.shape[1]
    rows, width = _block(dim)
    if keys.numel():
        triton_programs.lookup[(num_columns, triton.cdiv(num_rows, rows))](
            weight, keys, places, out, num_rows, out.shape[1], dim, keys.stride(0), rows, width
        )


def sum_segments(rows: Tensor, sources: Tensor, segments: Segments) -> Tensor:
    """See `kernels_fixed.sum_segments`."""
    sums = rows.new_empty((len(segments.keys), rows.shape[1]), dtype=torch.float32)
    none = torch.zeros((), dtype=torch.int64, device=rows.device)
    _launch(Rule("sum"), sums, (), rows, sources, segments, Rates(none, none, none))
    return sums


def update(
    rule: Rule,
    weight: Tensor,
    memory: tuple[Tensor, ...],
    keys: Tensor,
    grads: Tensor,
    rates: Rates,
) -> None:
    """See `kernels_fixed.update`."""
    segments = Segments(keys, keys, keys, keys, len(weight))
    _launch(rule, weight, memory, grads, None, segments, rates)


def sum_and_update(
    rule: Rule,
    weight: Tensor,
    memory: tuple[Tensor, ...],
    rows: Tensor,
    sources: Tensor,
    segments: Segments,
    rates: Rates,
) -> None:
    """See `kernels_fixed.sum_and_update`."""
    _launch(rule, weight, memory, rows, sources, segments, rates)


def _launch(
    rule: Rule,
    target: Tensor,
    memory: tuple[Tensor, ...],
    rows: Tensor,
    sources: Tensor | None,
    segments: Segments,
    rates: Rates,
) -> None:
    """Sum if `rows` have sources, else take them as sums; write the sums or update rows."""
    count, dim = len(segments.keys), rows.shape[1]
    if count == 0:
        return
    slots, width = _block(dim)
    tiles = groups = rows
    if sources is not None:
        tiles = _sums_of_tiles(rows, sources, segments)
        groups = _sums_of_groups(tiles, segments)
    first, second = (*memory, target, target)[:2]
    triton_programs.add_and_update[(triton.cdiv(count, slots),)](
        target,
        first,
        second,
        rows,
        segments.order if sources is None else sources,
        segments.starts,
        segments.keys,
        tiles,
        groups,
        rates.rate,
        rates.scale,
        rates.seed,
        count,
        segments.end,
        dim,
        rule.eps,
        1 - rule.betas[0],
        rule.betas[1],
        1 - rule.betas[1],
        KIND=rule.kind,
        SUMS=sources is not None,
        ROUNDS=target.dtype == torch.bfloat16,
        TILE=_TILE,
        SLOTS=slots,
        WIDTH=width,
    )


def _sums_of_tiles(rows: Tensor, sources: Tensor, segments: Segments) -> Tensor:
    count, dim = len(sources) // _TILE, rows.shape[1]
    sums = rows.new_empty((count, dim), dtype=torch.float32)
    if count:
        triton_programs.sum_tiles[(count,)](
            rows,
            sources,
            segments.in_order,
            sums,
            segments.end,
            dim,
            SPAN=_TILE,
            TILE=_TILE,
            BY_SOURCE=True,
            WIDTH=triton.next_power_of_2(dim),
        )
    return sums


def _sums_of_groups(tiles: Tensor, segments: Segments) -> Tensor:
    count, dim = len(tiles) // _TILE, tiles.shape[1]
    sums = tiles.new_empty((count, dim))
    if count:
        triton_programs.sum_tiles[(count,)](
            tiles,
            segments.in_order,
            segments.in_order,
            sums,
            segments.end,
            dim,
            SPAN=_TILE * _TILE,
            TILE=_TILE,
            BY_SOURCE=False,
            WIDTH=triton.next_power_of_2(dim),
        )
    return sums


def _block(dim: int) -> tuple[int, int]:
    """How many rows a program works on at once, and their width as a power of two."""
    width = triton.next_power_of_2(dim)
    return max(1, _BLOCK_VALUES // width), width
