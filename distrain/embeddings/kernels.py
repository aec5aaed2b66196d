"""The few operations on rows that a step of embedding tables consists of.

Sums run in the order of a batch's rows, so the same input gives the same bits, whatever the number
of threads. "Distinct rows" below are those that a batch looks up, each once; a *number* says which
of them an id means.

Who does the work: the C kernels where they were built, for float32 on a CPU and weights in
bfloat16; else torch, with the same results bit by bit.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from distrain.embeddings import kernels_cpu, kernels_torch


@dataclass(frozen=True)
class Grouping:
    """Which ids of some columns are the same.

    Attributes:
        numbers: int32, lying where the ids lay: which of the distinct ids each is.
        ids: `[u]`, int32: the distinct ids of the first column in order of first appearance, then
            those of the second, ...
        counts: `[columns]`, int64, on the CPU: how many each column has.
    """

    numbers: Tensor
    ids: Tensor
    counts: Tensor


def unique(ids: Tensor, offsets: Tensor, counts: Tensor) -> Grouping:
    """Number the distinct ids of each column.

    Args:
        ids: `[total]`, int32, not negative, contiguous.
        offsets: `[columns, segments]`, int64, on the CPU: where in `ids` each segment of a column
            begins.
        counts: `[columns, segments]`, int64, on the CPU: how long it is.

    >>> offsets, counts = torch.tensor([[0], [3]]), torch.tensor([[3], [2]])
    >>> grouping = unique(torch.tensor([7, 2, 7, 7, 7], dtype=torch.int32), offsets, counts)
    >>> grouping.numbers.tolist(), grouping.ids.tolist(), grouping.counts.tolist()
    ([0, 1, 0, 2, 2], [7, 2, 7], [2, 1])
    """
    make = kernels_cpu.unique if _in_c(ids, torch.int32) else kernels_torch.unique
    return Grouping(*make(ids, offsets, counts))


def gather(weight: Tensor, keys: Tensor) -> Tensor:
    """Copy rows.

    Args:
        weight: `[rows, dim]`, of any floating type.
        keys: `[u]`, int64: which rows.

    Returns:
        `[u, dim]`, float32, or float64 for float64. Its memory is used again once it is dropped.
    """
    get = kernels_cpu.gather if _in_c(weight, *_WEIGHTS) else kernels_torch.gather
    return get(weight, keys)


def expand(rows: Tensor, numbers: Tensor, places: Tensor, out: Tensor) -> None:
    """Write each looked-up row to its place: `out[i, places[c]] = rows[numbers[c, i]]`.

    Args:
        rows: `[u, dim]`.
        numbers: `[columns, n]`, int32.
        places: `[columns]`, int64, on the CPU, distinct.
        out: `[n, places, dim]`, contiguous; other places are left alone.
    """
    in_c = _in_c(rows, torch.float32) and _in_c(out, torch.float32)
    put = kernels_cpu.expand if in_c else kernels_torch.expand
    put(rows, numbers, places, out)


def collect(grads: Tensor, numbers: Tensor, places: Tensor, sums: Tensor) -> None:
    """Add gradients of equal rows: `sums[numbers[c, i]] += grads[i, places[c]]`, i rising.

    Args:
        grads: `[n, places, dim]`.
        numbers: `[columns, n]`, int32; no number in two columns, as `unique` makes them.
        places: `[columns]`, int64, on the CPU.
        sums: `[u, dim]`, contiguous.
    """
    in_c = _in_c(sums, torch.float32) and grads.dtype == torch.float32
    add = kernels_cpu.collect if in_c else kernels_torch.collect
    add(grads, numbers, places, sums)


def update_sgd(
    weight: Tensor,
    keys: Tensor,
    grads: Tensor,
    *,
    lr: float,
    rounding_seed: int = 0,
    global_keys: Tensor | None = None,
) -> None:
    """`weight -= lr * grad`, with the bits of `torch.optim.SGD` in float32.

    Args:
        weight: `[rows, dim]`, of any floating type, contiguous, updated in place. What is computed
            is float32 (float64 for float64). A weight in bfloat16 is rounded stochastically, see
            `stochastic.py`.
        keys: `[v]`, int64, distinct: the rows to update; all others are left alone.
        grads: `[v, dim]`, float32 (float64).
        lr: The learning rate.
        rounding_seed: 64 bits, another in each step, the same on all ranks.
        global_keys: `[v]`, int64: the rows' numbers among the rows of all ranks; `None` if `keys`
            are these.
    """
    update = kernels_cpu.update_sgd if _updates_in_c(weight, grads) else kernels_torch.update_sgd
    update(weight, keys, grads, lr=lr, rounding_seed=rounding_seed, global_keys=global_keys)


def update_adagrad(
    weight: Tensor,
    total: Tensor,
    keys: Tensor,
    grads: Tensor,
    *,
    lr: float,
    eps: float,
    rounding_seed: int = 0,
    global_keys: Tensor | None = None,
) -> None:
    """`total += grad^2`, `weight -= lr * grad / (sqrt(total) + eps)`, as `torch.optim.Adagrad`.

    As `update_sgd`, and `total` is `[rows, dim]`, float32 (float64), updated in place.
    """
    in_c = _updates_in_c(weight, grads, total)
    update = kernels_cpu.update_adagrad if in_c else kernels_torch.update_adagrad
    update(
        weight,
        total,
        keys,
        grads,
        lr=lr,
        eps=eps,
        rounding_seed=rounding_seed,
        global_keys=global_keys,
    )


def update_rowwise_adagrad(
    weight: Tensor,
    total: Tensor,
    keys: Tensor,
    grads: Tensor,
    *,
    lr: float,
    eps: float,
    rounding_seed: int = 0,
    global_keys: Tensor | None = None,
) -> None:
    """`total += mean(grad^2)`, `weight -= lr / (sqrt(total) + eps) * grad`, one total per row.

    The formula is that of fbgemm's EXACT_ROWWISE_ADAGRAD. As `update_sgd`, and `total` is
    `[rows]`, float32 (float64), updated in place.
    """
    in_c = _updates_in_c(weight, grads, total)
    update = kernels_cpu.update_rowwise_adagrad if in_c else kernels_torch.update_rowwise_adagrad
    update(
        weight,
        total,
        keys,
        grads,
        lr=lr,
        eps=eps,
        rounding_seed=rounding_seed,
        global_keys=global_keys,
    )


def update_adam(
    weight: Tensor,
    mean: Tensor,
    square: Tensor,
    keys: Tensor,
    grads: Tensor,
    *,
    step_size: float,
    betas: tuple[float, float],
    eps: float,
    rounding_seed: int = 0,
    global_keys: Tensor | None = None,
) -> None:
    """Lazy Adam: both moments move towards `grad` and `grad^2`, then the row moves.

    `weight -= step_size * mean / (sqrt(square) + eps)`

    As `update_sgd`, and `mean` and `square` are `[rows, dim]`, float32 (float64), updated in place;
    `step_size` is the learning rate with the bias correction in it, `betas` are the moments' rates
    of decay.
    """
    in_c = _updates_in_c(weight, grads, mean, square)
    update = kernels_cpu.update_adam if in_c else kernels_torch.update_adam
    update(
        weight,
        mean,
        square,
        keys,
        grads,
        step_size=step_size,
        betas=betas,
        eps=eps,
        rounding_seed=rounding_seed,
        global_keys=global_keys,
    )


_WEIGHTS = (torch.float32, torch.bfloat16)


def _in_c(values: Tensor, *dtypes: torch.dtype) -> bool:
    """Whether the C kernels serve this tensor."""
    return (
        kernels_cpu.AVAILABLE
        and values.device.type == "cpu"
        and values.dtype in dtypes
        and values.is_contiguous()
    )


def _updates_in_c(weight: Tensor, grads: Tensor, *memory: Tensor) -> bool:
    return (
        _in_c(weight, *_WEIGHTS)
        and all(_in_c(own, torch.float32) for own in memory)
        and grads.dtype == torch.float32
    )
