"""Kernels of the step with fixed shapes: Triton on a GPU, otherwise torch.

No operation here reads a size from the device. Buffers have capacity for the most that a batch can
use, and the unused part is *padding*. So the host never waits, and a CUDA graph can hold the whole
step. The learning rate and other values that change from step to step are tensors, because a graph
would keep the numbers of the step in which it was captured.

The values of one row are summed in a fixed order, in float32 (float64 for float64 tables), so the
same input gives the same bits.
"""

import importlib.util
import logging
import os
from functools import cache
from types import ModuleType

import torch
from torch import Tensor
from torch.nn import functional

from distrain.models.embeddings.kernels import on_torch as kernels_torch
from distrain.models.embeddings.kernels.random_bits import round_to_bfloat16
from distrain.models.embeddings.kernels.segments import (
    RowRule,
    Segments,
    StepRates,
    sums_in_pieces,
    true_positions,
)


def lookup(weight: Tensor, keys: Tensor, places: Tensor, out: Tensor) -> None:
    """Gather and expand in one operation: `out[i, places[c]] = weight[keys[c, i]]`.

    `weight` is `[rows, dim]`, `out` `[n, places, dim]`, of any floating types, contiguous; `keys`
    `[columns, n]`, int32 or int64, with `stride(1) == 1`; `places` `[columns]`, int64, distinct, on
    the same device. Other places of `out` are not changed.
    """
    if on_triton := _triton_for(weight):
        on_triton.lookup(weight, keys, places, out)
        return
    values = weight.index_select(0, keys.T.reshape(-1)).view(len(out), len(keys), weight.shape[1])
    out.index_copy_(1, places, values.to(out.dtype))


def segments_of(keys: Tensor, capacity: int, end: int) -> Segments:
    """Sort the positions of `keys` by key, and find where the positions of each key begin.

    `keys`, `[places]`, are in `0 .. end`, where `end` marks padding. At most `capacity` of those
    below `end` are distinct.

    >>> segments = segments_of(torch.tensor([4, 2, 9, 4]), capacity=3, end=9)
    >>> segments.keys.tolist(), segments.starts.tolist(), segments.order.tolist()
    ([2, 4, 9], [0, 1, 3, 4], [1, 0, 3, 2])
    """
    if on_triton := _triton_for(keys):
        found: Segments = on_triton.segments_of(keys, capacity, end)
        return found
    in_order, order = torch.sort(keys, stable=True)
    first = torch.ones(1, dtype=torch.bool, device=keys.device)
    is_start = torch.cat([first, in_order[1:] != in_order[:-1]])[: len(keys)]
    starts = true_positions(is_start, capacity + 1)
    with_end = functional.pad(in_order, (0, 1), value=end)
    return Segments(with_end[starts[:-1]].long(), starts, in_order, order, end)


def sources_of(order: Tensor, num_rows: int, places: Tensor, columns: int) -> Tensor:
    """Return the index of each lookup in `order` among the vectors of a batch, int64 or int32.

    A lookup is numbered `c * num_rows + i` for row `i` of the batch and column `places[c]` of its
    embeddings. The vectors are `[num_rows * columns, dim]`, so the index is
    `i * columns + places[c]`.
    """
    if on_triton := _triton_for(order):
        sources: Tensor = on_triton.sources_of(order, num_rows, places, columns)
        return sources
    rows, numbers = order % max(1, num_rows), order // max(1, num_rows)
    return rows * columns + places[numbers]


def collect(grads: Tensor, inverse: Tensor, places: Tensor, sums: Tensor) -> None:
    """Add gradients of equal rows to `sums`, like `dispatch.collect`, with the same arguments.

    Uses `sum_segments`, so the host does not wait for the device.
    """
    in_order, order = torch.sort(inverse.reshape(-1), stable=True)
    sources = sources_of(order, inverse.shape[1], places, grads.shape[1])
    starts, count = kernels_torch.starts_of(in_order, len(sums) + 1), len(sums)
    keys = torch.arange(count, device=sums.device)
    sums += sum_segments(
        grads.reshape(-1, grads.shape[2]), sources, Segments(keys, starts, in_order, order, count)
    )


def sum_segments(rows: Tensor, sources: Tensor, segments: Segments) -> Tensor:
    """Return the sum of each segment's rows, `[capacity, dim]`.

    The sums are float64 if `rows` is float64, otherwise float32. The sums after the last used
    segment are 0.

    Args:
        rows: `[n, dim]`.
        sources: The index in `rows` of each element of `segments.order`, `[elements]`.
    """
    if on_triton := _triton_for(rows):
        sums: Tensor = on_triton.sum_segments(rows, sources, segments)
        return sums
    values = rows if rows.dtype == torch.float64 else rows.float()
    # The last sum is of the places after the last segment, such as the padding.
    if values.device.type == "cpu":
        sums = functional.embedding_bag(sources, values, segments.starts, mode="sum")[:-1]
    else:
        place = torch.arange(len(sources), device=values.device)
        segment = torch.searchsorted(segments.starts, place, right=True) - 1
        sums = sums_in_pieces(values, sources, segments.starts, segment)[:-1]
    return torch.where((segments.keys < segments.end).unsqueeze(1), sums, 0)


def update_padded(
    rule: RowRule,
    weight: Tensor,
    state: tuple[Tensor, ...],
    keys: Tensor,
    grads: Tensor,
    rates: StepRates,
    global_keys: Tensor | None = None,
) -> None:
    """Update rows in place like `kernels.update`, but with padding, and with the rates as tensors.

    The learning rate may be rounded differently, since it is a tensor.

    `keys` is `[capacity]`, int64, distinct and ascending; the padding holds the weight's number of
    rows. `grads`, `[capacity, dim]`, and `global_keys`, `[capacity]`, may have any values in the
    padding.
    """
    if len(keys) == 0:
        return
    if on_triton := _triton_for(weight):
        segments = Segments(keys, keys, keys, keys, len(weight))
        on_triton.add_and_update(rule, weight, state, grads, None, segments, rates, global_keys)
        return
    # At most as many rows as the weight has are updated, and they come first.
    keys, grads = keys[: len(weight)], grads[: len(weight)]
    named = keys if global_keys is None else global_keys[: len(weight)]
    is_row = keys < len(weight)
    keys = _with_spare_rows(keys, is_row, len(weight))
    old = [values.index_select(0, keys) for values in state]
    rows = kernels_torch.gather(weight, keys)
    new_rows, *new = kernels_torch.updated(rule, rows, old, grads * rates.scale, rates.rate)
    for values, before, after in zip(state, old, new, strict=True):
        has_row = is_row.unsqueeze(1) if before.dim() == 2 else is_row
        values.index_copy_(0, keys, torch.where(has_row, after, before))
    if weight.dtype == torch.bfloat16:
        new_rows = round_to_bfloat16(new_rows, rates.seed, named)
    new_rows = torch.where(is_row.unsqueeze(1), new_rows, rows)
    weight.index_copy_(0, keys, new_rows.to(weight.dtype))


def sum_and_update(
    rule: RowRule,
    weight: Tensor,
    state: tuple[Tensor, ...],
    rows: Tensor,
    sources: Tensor,
    segments: Segments,
    rates: StepRates,
    global_keys: Tensor | None = None,
) -> None:
    """Combine `sum_segments` and `update_padded`. Triton does not write the sums to memory."""
    if on_triton := _triton_for(weight):
        on_triton.add_and_update(rule, weight, state, rows, sources, segments, rates, global_keys)
        return
    sums = sum_segments(rows, sources, segments)
    update_padded(rule, weight, state, segments.keys, sums, rates, global_keys)


def _with_spare_rows(keys: Tensor, is_row: Tensor, num_rows: int) -> Tensor:
    """Return the keys with each padding key replaced by a row that is not among the keys.

    The value of that row is written back unchanged. If all padding keys named one row instead,
    CUDA's deterministic kernels would write its copies one after another.

    >>> keys = torch.tensor([1, 2, 5, 6, 6])
    >>> _with_spare_rows(keys, keys < 6, 6).tolist()
    [1, 2, 5, 0, 3]
    """
    place = torch.arange(len(keys), device=keys.device)
    # The number of unused rows before each key. It ascends, because the keys do.
    spare_before = torch.where(is_row, keys - place, num_rows)
    number = place - is_row.sum()
    spare = number + torch.searchsorted(spare_before, number, right=True)
    return torch.where(is_row, keys, spare)


def _triton_for(values: Tensor) -> ModuleType | None:
    if not runs_triton(values):
        return None
    from distrain.models.embeddings.kernels import on_triton

    return on_triton


_SWITCH = "DISTRAIN_TRITON"
_log = logging.getLogger("distrain")


def runs_triton(tensor: Tensor) -> bool:
    """Return True if Triton's kernels run for this tensor's device and dtype.

    They run on NVIDIA GPUs with the package installed, for any dtype except float64, outside of
    `torch.compile`. The environment variable `DISTRAIN_TRITON=0` switches them off. If Triton
    cannot compile, torch runs with a warning; with `DISTRAIN_TRITON=1` Triton's error is raised.
    On a CPU they run in Triton's interpreter, for tests, if `DISTRAIN_TRITON` and
    `TRITON_INTERPRET` are 1.
    """
    wish, kind = os.environ.get(_SWITCH), tensor.device.type
    if wish == "0" or tensor.dtype == torch.float64 or torch.compiler.is_compiling():
        return False
    if kind == "cpu":
        return wish == "1" and os.environ.get("TRITON_INTERPRET") == "1" and _is_installed()
    if kind != "cuda" or torch.version.hip is not None or not _is_installed():
        return False
    return wish == "1" or _compiles(tensor.device)


@cache
def _is_installed() -> bool:
    return importlib.util.find_spec("triton") is not None


@cache
def _compiles(device: torch.device) -> bool:
    from distrain.models.embeddings.kernels import on_triton

    try:
        none = torch.zeros(1, dtype=torch.int64, device=device)
        on_triton.sources_of(none, 1, none, 1)
    except Exception as error:  # of compilers, files or drivers: Triton documents no class
        _log.warning(
            "Triton cannot compile here, so torch is used instead, which is slower: %s: %s. "
            "Triton needs a C compiler and a writable folder (TRITON_CACHE_DIR). "
            "DISTRAIN_TRITON=0 silences this warning.",
            type(error).__name__,
            str(error).strip().split("\n")[0],
        )
        return False
    return True
