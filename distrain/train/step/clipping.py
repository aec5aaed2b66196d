"""Clips the norm of the gradient over all parameters, without waiting for the device."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from distrain.models.embeddings.collection import TouchedRows
from distrain.models.embeddings.peers import Peers
from distrain.models.embeddings.table_store import Store

_LIMB = 2.0**31
"""The base of the two halves of a 62-bit integer, which are added up separately.

So the sum of each half over up to 2**31 rows fits into an int64.
"""


def clip_scale(sq_norm: Tensor, max_norm: float) -> Tensor:
    """Return the factor that reduces a gradient's norm to `max_norm`, like torch's clipping.

    Args:
        sq_norm: A scalar: the sum of the squares of all gradients.

    Returns:
        `max_norm / (norm + 1e-6)`, at most 1: a scalar on the device of `sq_norm`.

    >>> clip_scale(torch.tensor(16.0), 2.0)
    tensor(0.5000)
    >>> clip_scale(torch.tensor(16.0), 5.0)
    tensor(1.)
    """
    return torch.clamp(max_norm / (sq_norm.sqrt() + 1e-6), max=1.0)


def total_sq_norm(parts: Iterable[Tensor]) -> Tensor:
    """Return the sum of the squares of all values of at least one tensor, a scalar."""
    norms = [torch.linalg.vector_norm(part) for part in parts]
    total: Tensor = torch.stack(norms).square().sum()
    return total


def add_tables(sq_norm: Tensor, stores: Sequence[Store], touched: Sequence[TouchedRows]) -> Tensor:
    """Return `sq_norm` plus the sum of the squares of all gradients of the tables, a scalar.

    A collective operation if ranks hold different rows. All ranks get the same bits, also in a step
    of fixed shapes (`GraphedStep`).
    """
    # Other ranks hold the other rows of sharded tables.
    grads_by_ranks: dict[int, tuple[Peers, list[Tensor]]] = {}
    for store, rows in zip(stores, touched, strict=True):
        shard_group = store.shard_group
        grads_by_ranks.setdefault(shard_group.num_ranks, (shard_group, []))[1].append(rows.grads)
    for _, (shard_group, grads) in sorted(grads_by_ranks.items(), key=lambda item: item[0]):
        sq_norm = sq_norm + shard_group.all_reduce_sum(rows_sq_norm(grads))
    return sq_norm


def scales(
    dense: Tensor,
    stores: Sequence[Store],
    touched: Sequence[TouchedRows],
    max_norm: float,
    apart: bool,
) -> tuple[Tensor, Tensor]:
    """Return the factors that clip the dense gradients and those of the tables, two scalars.

    A collective operation like `add_tables`. `dense` is the sum of the squares of the dense
    gradients. With `apart`, each of the two norms is clipped to `max_norm`, otherwise their joint
    norm.
    """
    if apart:
        of_rows = add_tables(torch.zeros_like(dense), stores, touched)
        return clip_scale(dense, max_norm), clip_scale(of_rows, max_norm)
    scale = clip_scale(add_tables(dense, stores, touched), max_norm)
    return scale, scale


def rows_sq_norm(tables: Sequence[Tensor]) -> Tensor:
    """Return the sum of the squares of all values in several tables' rows.

    Neither the order of the rows nor rows of zeros affect the bits of the result. So a step of
    fixed shapes, whose rows are sorted and padded, clips exactly like `TrainStep`. To achieve this,
    integers are added: 62 bits, scaled so that the square of the largest row is 2**62. Hence sums
    over millions of rows are accurate, too.

    Args:
        tables: At least one tensor `[rows, dim]`; all of one floating type, on one device.

    Returns:
        A scalar of the tables' type; NaN or infinite if a row is.

    >>> rows = torch.tensor([[3.0, 4.0], [0.0, 0.0], [1.0, 1.0]])
    >>> rows_sq_norm([rows]), rows_sq_norm([rows[2:], rows[:1]])
    (tensor(27.), tensor(27.))
    """
    norms = torch.cat([torch.linalg.vector_norm(rows, dim=1) for rows in tables])
    squares = norms.double().square_()
    largest = torch.cat([squares, squares.new_zeros(1)]).amax()
    shares = squares.mul_(_LIMB / largest.clamp(min=torch.finfo(torch.float64).tiny))
    high = shares.long()
    low = shares.sub_(high).mul_(_LIMB).long()
    total = (high.sum().double() + low.sum().double() / _LIMB) * (largest / _LIMB)
    return torch.where(largest.isfinite(), total, largest).to(norms.dtype)
