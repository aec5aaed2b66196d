"""Clipping of the gradient's norm over all parameters, without a wait for the device."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from distrain.models.embeddings.collection import TouchedRows
from distrain.models.embeddings.peers import Peers
from distrain.models.embeddings.store import Store

_LIMB = 2.0**31
"""What a half of a sum in fixed point counts to: space for 2**31 rows in an int64."""


def clip_scale(sq_norm: Tensor, max_norm: float) -> Tensor:
    """The factor that brings a gradient's norm down to `max_norm`, as torch's clipping has it.

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
    """Add the squares of all gradients of the tables; collective where ranks have other rows.

    All ranks get the same bits, also of a step in shapes known beforehand.
    """
    # The other rows of tables that are spread over ranks are on other ranks.
    of_sharers: dict[int, tuple[Peers, list[Tensor]]] = {}
    for store, rows in zip(stores, touched, strict=True):
        sharers = store.sharers
        of_sharers.setdefault(sharers.num_ranks, (sharers, []))[1].append(rows.grads)
    for _, (sharers, grads) in sorted(of_sharers.items(), key=lambda item: item[0]):
        sq_norm = sq_norm + sharers.add_up(rows_sq_norm(grads))
    return sq_norm


def scales(
    dense: Tensor,
    stores: Sequence[Store],
    touched: Sequence[TouchedRows],
    max_norm: float,
    apart: bool,
) -> tuple[Tensor, Tensor]:
    """Return the factors of the dense gradients and of the tables'; collective as `add_tables`.

    `dense` is the sum of the squares of the dense gradients; `apart`: of two norms, not of one.
    """
    if apart:
        of_rows = add_tables(torch.zeros_like(dense), stores, touched)
        return clip_scale(dense, max_norm), clip_scale(of_rows, max_norm)
    scale = clip_scale(add_tables(dense, stores, touched), max_norm)
    return scale, scale


def rows_sq_norm(tables: Sequence[Tensor]) -> Tensor:
    """Return the sum of the squares of several tables' rows: the same bits for the same rows.

    Neither the order of the rows nor rows of zeros between them change it, so a step in shapes
    known beforehand, whose rows are sorted and padded, clips as one that has neither. For that it
    adds integers, 62 bits long where the largest row's square is 2**62; which is also why millions
    of rows lose no digits.

    Args:
        tables: At least one of `[rows, dim]`, of one floating type, on one device.

    Returns:
        A scalar of the tables' type; NaN or infinite where a row is.

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
