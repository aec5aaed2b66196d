"""Kernels of the fixed-capacity step for NVIDIA GPUs, in Triton.

`fixed_shape.py` documents each kernel and contains its torch fallback. Import this file only if
`fixed_shape.runs_triton` is True: it needs the package `triton`. The programs are in
`triton_programs.py`.
"""

import torch
import triton
from torch import Tensor

from distrain.jobs.optimizers import UPDATE_RULES
from distrain.models.embeddings.kernels import triton_programs
from distrain.models.embeddings.kernels.segments import RowRule, Segments, StepRates, unknown_rule

_TILE = 32
_SUM = RowRule("sum")  # sums are written, and nothing is updated
_BLOCK_VALUES = 1024  # values that a program holds at once
# A program takes as long as its longest segment, so it has few segments and few threads.
_UPDATED_VALUES = 256
_UPDATING_WARPS = 1


def lookup(weight: Tensor, keys: Tensor, places: Tensor, out: Tensor) -> None:
    num_columns, num_rows = keys.shape
    dim = weight.shape[1]
    rows, width = _block(dim, _BLOCK_VALUES)
    if keys.numel():
        # A grid's first axis has 2^31 - 1 programs at most, the others 65,535.
        triton_programs.lookup[(triton.cdiv(num_rows, rows) * num_columns,)](
            weight,
            keys,
            places,
            out,
            num_columns,
            num_rows,
            out.shape[1],
            dim,
            keys.stride(0),
            rows,
            width,
        )


def segments_of(keys: Tensor, capacity: int, end: int) -> Segments:
    in_order, order = torch.sort(keys, stable=True)
    count = len(keys)
    starts = torch.full((capacity + 1,), count, dtype=torch.int64, device=keys.device)
    distinct = torch.full((capacity,), end, dtype=torch.int64, device=keys.device)
    if count:
        numbers = torch.zeros(count, dtype=torch.int32, device=keys.device)
        is_start = torch.ne(in_order[1:], in_order[:-1])
        torch.cumsum(is_start, 0, dtype=torch.int32, out=numbers[1:])
        triton_programs.begin_segments[(triton.cdiv(count, _BLOCK_VALUES),)](
            in_order, numbers, starts, distinct, count, capacity, _BLOCK_VALUES
        )
    return Segments(distinct, starts, in_order, order, end)


def sources_of(order: Tensor, num_rows: int, places: Tensor, columns: int) -> Tensor:
    most = num_rows * columns
    sources = torch.empty_like(order, dtype=torch.int32 if most < 2**31 else torch.int64)
    if len(order):
        triton_programs.sources_of[(triton.cdiv(len(order), _BLOCK_VALUES),)](
            order, places, sources, len(order), num_rows, columns, _BLOCK_VALUES
        )
    return sources


def sum_segments(rows: Tensor, sources: Tensor, segments: Segments) -> Tensor:
    sums = rows.new_empty((len(segments.keys), rows.shape[1]), dtype=torch.float32)
    none = torch.zeros((), dtype=torch.int64, device=rows.device)
    add_and_update(_SUM, sums, (), rows, sources, segments, StepRates(none, none, none))
    return sums


def add_and_update(
    rule: RowRule,
    target: Tensor,
    state: tuple[Tensor, ...],
    rows: Tensor,
    sources: Tensor | None,
    segments: Segments,
    rates: StepRates,
    global_keys: Tensor | None = None,
) -> None:
    """Sum gradients `rows` by segment, and update the segments' rows of `target` by the rule.

    If `sources` is `None`, `rows` already are the sums. The rule `_SUM` only writes the sums to
    `target`. Raises `InputError` for an unknown rule.
    """
    if rule is not _SUM and rule.name not in UPDATE_RULES:
        raise unknown_rule(rule)
    count, dim = len(segments.keys), rows.shape[1]
    if count == 0:
        return
    slots, width = _block(dim, _UPDATED_VALUES)
    tiles = groups = rows
    if sources is not None:
        count_tiles, span = len(sources) // _TILE, _TILE * _TILE
        tiles = _sums_of_tiles(rows, sources, count_tiles, segments, span=_TILE, by_source=True)
        groups = _sums_of_tiles(
            tiles, segments.in_order, count_tiles // _TILE, segments, span=span, by_source=False
        )
    first, second = (*state, target, target)[:2]
    triton_programs.add_and_update[(triton.cdiv(count, slots),)](
        target,
        first,
        second,
        rows,
        segments.order if sources is None else sources,
        segments.starts,
        segments.keys,
        segments.keys if global_keys is None else global_keys,
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
        RULE=rule.name,
        SUMS=sources is not None,
        ROUNDS=target.dtype == torch.bfloat16,
        TILE=_TILE,
        SLOTS=slots,
        WIDTH=width,
        num_warps=_UPDATING_WARPS,
    )


def _sums_of_tiles(
    rows: Tensor, sources: Tensor, count: int, segments: Segments, *, span: int, by_source: bool
) -> Tensor:
    """Return the sums of `count` tiles or groups (see `triton_programs.py`), float32.

    The result is `[count, dim]`. Each sum adds `_TILE` vectors and covers `span` lookups, which are
    sorted by key. A tile covers `_TILE` lookups; with `by_source`, it adds their gradients
    `rows[sources]`. A group covers `_TILE`² lookups and, without `by_source`, adds adjacent tiles.
    A sum over lookups of several segments, or of padding, is undefined.
    """
    sums = rows.new_empty((count, rows.shape[1]), dtype=torch.float32)
    if count:
        triton_programs.sum_tiles[(count,)](
            rows,
            sources,
            segments.in_order,
            sums,
            segments.end,
            rows.shape[1],
            SPAN=span,
            TILE=_TILE,
            BY_SOURCE=by_source,
            WIDTH=triton.next_power_of_2(rows.shape[1]),
        )
    return sums


def _block(dim: int, values: int) -> tuple[int, int]:
    width = triton.next_power_of_2(dim)
    return max(1, values // width), width
