"""The operations of a training step on rows of embedding tables.

On a CPU, sums are added in the order of a batch's rows, so the same input gives the same bits for
any number of threads. "Distinct rows" below are the rows that a batch looks up, each listed once;
`u` is their number. *Inverse indices* give the distinct row of each id, like those of
`torch.unique`. *Places* are the positions of columns among the columns of the embeddings.

On a CPU, the C kernels run if they are built, for float32 and for weights in bfloat16; otherwise
torch runs, with the same results bit by bit. On a GPU, Triton runs `expand` and `collect` where
`fixed_shape.runs_triton` allows it; otherwise torch runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from distrain.loader.host_memory import to_device
from distrain.models.embeddings.kernels import (
    cpu as kernels_cpu,
    fixed_shape as kernels_fixed,
    on_torch as kernels_torch,
    random_bits,
)
from distrain.models.embeddings.kernels.segments import RowRule


@dataclass(frozen=True)
class Grouping:
    inverse: Tensor  # int32, on the device of the ids: the index of each id among the distinct ids
    # `[u]`, int32: the distinct ids of the first column in order of first appearance, then those
    # of the second column, and so on
    ids: Tensor
    counts: Tensor  # `[columns]`, int64, on the CPU: the number of distinct ids of each column


def unique(ids: Tensor, offsets: Tensor, counts: Tensor) -> Grouping:
    """Find the distinct ids of each column.

    `ids` is `[total]`, int32, not negative, contiguous. `offsets` and `counts`, `[columns,
    segments]`, int64, on the CPU, give the start in `ids` and the length of each segment of a
    column.

    >>> offsets, counts = torch.tensor([[0], [3]]), torch.tensor([[3], [2]])
    >>> grouping = unique(torch.tensor([7, 2, 7, 7, 7], dtype=torch.int32), offsets, counts)
    >>> grouping.inverse.tolist(), grouping.ids.tolist(), grouping.counts.tolist()
    ([0, 1, 0, 2, 2], [7, 2, 7], [2, 1])
    """
    make = kernels_cpu.unique if _in_c(ids, torch.int32) else kernels_torch.unique
    return Grouping(*make(ids, offsets, counts))


def gather(weight: Tensor, keys: Tensor) -> Tensor:
    """Return the rows `keys`, `[u]`, int64, of a weight: `[u, dim]`, float32.

    The result is float64 for a float64 weight.
    """
    get = kernels_cpu.gather if _in_c(weight, *_WEIGHTS) else kernels_torch.gather
    return get(weight, keys)


def expand(rows: Tensor, inverse: Tensor, places: Tensor, out: Tensor) -> None:
    """Write each looked-up row to its place: `out[i, places[c]] = rows[inverse[c, i]]`.

    `rows` is `[u, dim]`, `inverse` `[columns, n]`, int32, `places` `[columns]`, int64, on the CPU,
    distinct. `out`, `[n, places, dim]`, is contiguous, and its other places are not changed.
    """
    if kernels_fixed.runs_triton(out):
        kernels_fixed.lookup(rows, inverse, kernels_torch.placed_on(out.device, places), out)
        return
    in_c = _in_c(rows, torch.float32) and _in_c(out, torch.float32)
    put = kernels_cpu.expand if in_c else kernels_torch.expand
    put(rows, inverse, places, out)


def collect(grads: Tensor, inverse: Tensor, places: Tensor, sums: Tensor) -> None:
    """Add gradients of equal rows: `sums[inverse[c, i]] += grads[i, places[c]]`, i ascending.

    `grads` is `[n, places, dim]`, `sums` `[u, dim]`, contiguous, `places` `[columns]`, int64, on
    the CPU. `inverse`, `[columns, n]`, int32, is from `unique`: no index is in two columns.
    """
    if kernels_fixed.runs_triton(sums):
        on_device = kernels_torch.placed_on(sums.device, places)
        kernels_fixed.collect(grads, inverse, on_device, sums)
        return
    in_c = _in_c(sums, torch.float32) and grads.dtype == torch.float32
    add = kernels_cpu.collect if in_c else kernels_torch.collect
    add(grads, inverse, places, sums)


def update(
    rule: RowRule,
    weight: Tensor,
    state: Sequence[Tensor],
    keys: Tensor,
    grads: Tensor,
    *,
    rate: float,
    rounding_seed: int = 0,
    global_keys: Tensor | None = None,
) -> None:
    """Update rows by a rule of `distrain.jobs.optimizers`; `on_torch.updated` has the formulas.

    Args:
        weight: `[rows, dim]`, of any floating type, contiguous, updated in place. The computation
            is in float32 (float64 for float64). A weight in bfloat16 is rounded stochastically, see
            `random_bits.py`.
        state: The rule's `state`, `[rows, dim]`, then its `row_state`, `[rows]`: float32
            (float64), updated in place.
        keys: `[v]`, int64, distinct: the rows to update. Other rows are not changed.
        grads: `[v, dim]`, float32 (float64).
        rate: The learning rate. For Adam it includes the bias correction.
        rounding_seed: 64 bits, different in each step, the same on all ranks.
        global_keys: `[v]`, int64: the keys of the rows in the numbering of all ranks. `None` if
            `keys` already are these.

    Raises:
        InputError: The rule is unknown.
    """
    in_c = (
        rule.name in kernels_cpu.RULES
        and _in_c(weight, *_WEIGHTS)
        and all(_in_c(own, torch.float32) for own in state)
        and grads.dtype == torch.float32
    )
    do = kernels_cpu.update if in_c else kernels_torch.update
    do(rule, weight, state, keys, grads, rate, rounding_seed, global_keys)


def draw(key: int, rows: Tensor, bound: float, out: Tensor) -> None:
    """Draw the initial values of rows `[n]`, int64, uniformly from `-bound .. bound` into `out`.

    `out` is `[n, dim]`, of any floating dtype. Values are multiples of `bound / 2**23`. They depend
    only on `key`, 64 bits that identify the table, the row, and the place in the row.
    """
    scale = random_bits.scale_of(bound)
    drawn = out
    if out.dtype == torch.bfloat16 or not out.is_contiguous():
        dtype = torch.float64 if out.dtype == torch.float64 else torch.float32
        drawn = out.new_empty(out.shape, dtype=dtype)
    if _in_c(drawn, torch.float32):
        kernels_cpu.draw(key, rows, scale, drawn)
    else:
        random_bits.scaled(key, rows, scale, drawn)
    if drawn is not out:
        out.copy_(drawn)


def add_rows(rows: Tensor, inverse: Tensor, total: Tensor) -> None:
    """Add row `i` of `rows`, `[n, dim]`, to `total[inverse[i]]`, for i ascending, in place."""
    if len(rows):
        place = torch.zeros(1, dtype=torch.int64)
        collect(rows.unsqueeze(1), inverse.unsqueeze(0), place, total)


def keys_of(grouping: Grouping, starts: Tensor) -> Tensor:
    """Return each distinct id plus `starts`, the first row of its column's table: `[u]`, int64."""
    return repeated(starts, grouping.counts, grouping.ids).add_(grouping.ids)


def repeated(numbers: Tensor, counts: Tensor, like: Tensor) -> Tensor:
    """Repeat `numbers[i]` `counts[i]` times: `[len(like)]`, int64, on the device of `like`.

    The sum of `counts` must be `len(like)`.
    """
    both = to_device(torch.stack([numbers, counts]), like.device)
    return both[0].repeat_interleave(both[1], output_size=len(like))


def padded_positions(
    lengths: Sequence[int], capacities: Sequence[int], device: torch.device
) -> Tensor:
    """Return the positions of the rows of a padded tensor that are not padding, int64.

    The tensor has parts one after another. Part `i` has `capacities[i]` rows, of which the first
    `lengths[i]` are not padding.

    >>> padded_positions([2, 0, 1], [3, 1, 2], torch.device("cpu")).tolist()
    [0, 1, 4]
    """
    counts = torch.tensor([*lengths])
    places = torch.arange(sum(lengths), device=device)
    starts, firsts = (torch.cumsum(torch.tensor([0, *s[:-1]]), 0) for s in (capacities, lengths))
    return places.add_(repeated(starts - firsts, counts, places))


def part_segments(counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return the arguments `offsets` and `counts` of `unique` for ids in parts, such as of ranks.

    Both are `[columns, parts]`. The ids are concatenated part after part, and within a part column
    after column. `counts`, `[parts, columns]`, int64, has the number of ids of each column in each
    part.
    """
    ends = torch.cumsum(counts.flatten(), 0).view(counts.shape)
    return (ends - counts).T.contiguous(), counts.T.contiguous()


def is_built() -> bool:
    return kernels_cpu.AVAILABLE


_WEIGHTS = (torch.float32, torch.bfloat16)


def _in_c(values: Tensor, *dtypes: torch.dtype) -> bool:
    return (
        kernels_cpu.AVAILABLE
        and values.device.type == "cpu"
        and values.dtype in dtypes
        and values.is_contiguous()
    )
