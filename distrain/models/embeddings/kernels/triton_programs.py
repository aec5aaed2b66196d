"""Triton programs that `on_triton.py` starts on the GPU.

How a row's gradients are summed: Lookups are sorted by key, so each row has a segment of them. The
segments may be long: a column with three distinct ids has segments of a third of the batch. A
*tile* is `TILE` adjacent places (sorted lookups), a *group* is `TILE` adjacent tiles. Two kernels
sum the tiles, then the groups, that are inside one segment (its first key equals its last). The
last kernel then adds, for each segment: the places before its first whole tile, its tiles up to its
first whole group, its groups, tiles, places. The order depends only on the keys, so a step always
gives the same bits.
"""

from typing import Any

import triton
import triton.language as tl


@triton.jit
def lookup(
    weight,
    keys,
    places,
    out,
    num_columns,
    num_rows,
    num_places,
    dim,
    keys_of_column,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> Any:
    # Neighbouring programs write neighbouring columns of the same rows.
    column = tl.program_id(0) % num_columns
    rows = (tl.program_id(0) // num_columns * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    values = tl.arange(0, WIDTH)
    is_row = rows < num_rows
    mask = is_row[:, None] & (values < dim)[None, :]
    key = tl.load(keys + column * keys_of_column + rows, mask=is_row, other=0).to(tl.int64)
    read = tl.load(weight + key[:, None] * dim + values[None, :], mask=mask)
    to = (rows * num_places + tl.load(places + column)) * dim
    tl.store(out + to[:, None] + values[None, :], read.to(out.dtype.element_ty), mask=mask)


@triton.jit
def sources_of(order, places, sources, num_places, num_rows, columns, SLOTS: tl.constexpr) -> Any:
    at = tl.program_id(0).to(tl.int64) * SLOTS + tl.arange(0, SLOTS)
    mask = at < num_places
    place = tl.load(order + at, mask=mask, other=0)
    column = place // num_rows
    to = (place - column * num_rows) * columns + tl.load(places + column, mask=mask, other=0)
    tl.store(sources + at, to.to(sources.dtype.element_ty), mask=mask)


@triton.jit
def begin_segments(
    in_order, numbers, starts, keys, num_places, capacity, SLOTS: tl.constexpr
) -> Any:
    """Write each segment's start and key to `starts` and `keys`, at the segment's number.

    `in_order` are the sorted keys, and `numbers` has for each of them the number of its segment.
    """
    at = tl.program_id(0).to(tl.int64) * SLOTS + tl.arange(0, SLOTS)
    mask = at < num_places
    number = tl.load(numbers + at, mask=mask, other=0)
    before = tl.load(numbers + at - 1, mask=mask & (at > 0), other=-1)
    is_start = mask & (number != before)
    tl.store(starts + number, at, mask=is_start & (number <= capacity))
    key = tl.load(in_order + at, mask=mask, other=0).to(tl.int64)
    tl.store(keys + number, key, mask=is_start & (number < capacity))


@triton.jit
def sum_tiles(
    rows,
    sources,
    in_order,
    sums,
    end,
    dim,
    SPAN: tl.constexpr,
    TILE: tl.constexpr,
    BY_SOURCE: tl.constexpr,
    WIDTH: tl.constexpr,
) -> Any:
    """Sum the `TILE` rows of each tile, `SPAN` places in sorted order, that is inside one segment.

    The sum of tile `t` is written to `sums[t]`.
    """
    tile = tl.program_id(0).to(tl.int64)
    key = tl.load(in_order + tile * SPAN)
    if (key == tl.load(in_order + tile * SPAN + SPAN - 1)) & (key < end):
        values = tl.arange(0, WIDTH)
        mask = values < dim
        row = tile * TILE + tl.arange(0, TILE)
        if BY_SOURCE:
            row = tl.load(sources + row).to(tl.int64)
        at = rows + row[:, None] * dim + values[None, :]
        read = tl.load(at, mask=mask[None, :], other=0).to(tl.float32)
        tl.store(sums + tile * dim + values, tl.sum(read, axis=0), mask=mask)


@triton.jit
def _add_run(total, rows, sources, first, stop, dim, values, BY_SOURCE: tl.constexpr) -> Any:
    # Add the rows `first .. stop-1` to each segment's total, one after another.
    for step in range(tl.max(stop - first, axis=0)):
        row = first + step
        mask = (row < stop)[:, None] & (values < dim)[None, :]
        if BY_SOURCE:
            # A place of the segment instead of a mask: Triton 3.6 and 3.7 cannot compile a mask
            # here.
            row = tl.load(sources + tl.maximum(tl.minimum(row, stop - 1), 0)).to(tl.int64)
        total += tl.load(rows + row[:, None] * dim + values[None, :], mask=mask, other=0).to(
            tl.float32
        )
    return total


@triton.jit
def _total(grads, sources, tiles, groups, start, stop, dim, values, TILE: tl.constexpr) -> Any:
    first_tile = (start + TILE - 1) // TILE
    last_tile = tl.maximum(stop // TILE, first_tile)
    has_tile = first_tile < last_tile
    first_group = (first_tile + TILE - 1) // TILE
    last_group = tl.maximum(last_tile // TILE, first_group)
    has_group = first_group < last_group
    head_stop = tl.where(has_tile, first_tile * TILE, stop)
    tail_start = tl.where(has_tile, last_tile * TILE, stop)
    head_tile = tl.where(has_group, first_group * TILE, last_tile)
    tail_tile = tl.where(has_group, last_group * TILE, last_tile)
    total = start[:, None] * tl.zeros_like(values)[None, :].to(tl.float32)
    total = _add_run(total, grads, sources, start, head_stop, dim, values, True)
    total = _add_run(total, tiles, sources, first_tile, head_tile, dim, values, False)
    total = _add_run(total, groups, sources, first_group, last_group, dim, values, False)
    total = _add_run(total, tiles, sources, tail_tile, last_tile, dim, values, False)
    return _add_run(total, grads, sources, tail_start, stop, dim, values, True)


@triton.jit
def _hash(x) -> Any:
    # lowbias32, as in random_bits.py; x is uint32.
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def _round(new, seed, key, values) -> Any:
    # Round to bfloat16 like random_bits.round_to_bfloat16.
    base = _hash(
        _hash((seed & 0xFFFFFFFF).to(tl.uint32)) ^ ((seed >> 32) & 0xFFFFFFFF).to(tl.uint32)
    )
    row = _hash(base ^ (key & 0xFFFFFFFF).to(tl.uint32))
    row = _hash(row ^ ((key >> 32) & 0xFFFFFFFF).to(tl.uint32))
    noise = _hash(row[:, None] + values[None, :].to(tl.uint32) * 0x9E3779B9) >> 16
    bits = new.to(tl.uint32, bitcast=True)
    is_finite = (bits & 0x7F800000) != 0x7F800000
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    rounded = tl.where(is_finite, bits + noise, tl.where(is_nan, bits | 0x400000, bits)) >> 16
    return rounded.to(tl.uint16).to(tl.bfloat16, bitcast=True)


@triton.jit
def add_and_update(
    target,
    first,
    second,
    grads,
    sources,
    starts,
    keys,
    rounding_keys,
    tiles,
    groups,
    rate,
    scale,
    seed,
    num_slots,
    end,
    dim,
    eps,
    new_of_mean,
    old_of_square,
    new_of_square,
    RULE: tl.constexpr,
    SUMS: tl.constexpr,
    ROUNDS: tl.constexpr,
    TILE: tl.constexpr,
    SLOTS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> Any:
    """Sum the gradients of `SLOTS` segments, and update the tables' rows or write the sums.

    If `SUMS` is False, `grads` already are the sums.
    """
    slot = tl.program_id(0).to(tl.int64) * SLOTS + tl.arange(0, SLOTS)
    values = tl.arange(0, WIDTH)
    is_slot = slot < num_slots
    key = tl.load(keys + slot, mask=is_slot, other=end).to(tl.int64)
    is_live = key < end
    if SUMS:
        start = tl.load(starts + slot, mask=is_live, other=0)
        stop = tl.load(starts + slot + 1, mask=is_live, other=0)
        grad = _total(grads, sources, tiles, groups, start, stop, dim, values, TILE)
    else:
        mask = is_live[:, None] & (values < dim)[None, :]
        at = slot[:, None] * dim + values[None, :]
        grad = tl.load(grads + at, mask=mask, other=0).to(tl.float32)
    if RULE == "sum":
        mask = is_slot[:, None] & (values < dim)[None, :]
        tl.store(target + slot[:, None] * dim + values[None, :], grad, mask=mask)
    else:
        mask = is_live[:, None] & (values < dim)[None, :]
        at = key[:, None] * dim + values[None, :]
        grad *= tl.load(scale).to(tl.float32)
        step = tl.load(rate).to(tl.float32)
        old = tl.load(target + at, mask=mask, other=0).to(tl.float32)
        if RULE == "sgd":
            new = old - step * grad
        elif RULE == "adagrad":
            squares = tl.load(first + at, mask=mask, other=0) + grad * grad
            tl.store(first + at, squares, mask=mask)
            new = old - step * tl.div_rn(grad, tl.sqrt_rn(squares) + eps)
        elif RULE == "rowwise_adagrad":
            mean = tl.sum(grad * grad, axis=1) / dim
            squares = tl.load(first + key, mask=is_live, other=0) + mean
            # Threads may have copies of these few values. No thread may read a value that another
            # has already written.
            tl.debug_barrier()
            tl.store(first + key, squares, mask=is_live)
            new = (
                old
                - grad
                * tl.div_rn(step + tl.zeros_like(squares), tl.sqrt_rn(squares) + eps)[:, None]
            )
        elif RULE == "adam":
            moment = tl.load(first + at, mask=mask, other=0)
            moment += new_of_mean * (grad - moment)
            tl.store(first + at, moment, mask=mask)
            squares = tl.load(second + at, mask=mask, other=0) * old_of_square
            squares += new_of_square * grad * grad
            tl.store(second + at, squares, mask=mask)
            new = old - step * tl.div_rn(moment, tl.sqrt_rn(squares) + eps)
        else:
            tl.static_assert(False, "no such update rule")
        if ROUNDS:
            named = tl.load(rounding_keys + slot, mask=is_live, other=0).to(tl.int64)
            tl.store(target + at, _round(new, tl.load(seed), named, values), mask=mask)
        else:
            tl.store(target + at, new, mask=mask)
