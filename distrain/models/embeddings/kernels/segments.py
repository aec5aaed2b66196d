"""Groups of a batch's lookups that read the same row, in shapes known before the batch.

A *place* is the position of a lookup in the list of all lookups of a batch.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from distrain.errors import InputError
from distrain.jobs.optimizers import UPDATE_RULES

_PIECE_ROWS = 256


class Segments(NamedTuple):
    """The places of a batch (positions of its lookups), grouped by the row (key) that they read."""

    keys: Tensor  # `[capacity]`, int64: the distinct rows, ascending; the padding holds `end`
    # `[capacity + 1]`, int64: the places of row j are `order[starts[j] : starts[j + 1]]`,
    # ascending. The first row of the padding has all places of the padding.
    starts: Tensor
    in_order: Tensor  # `[places]`: the places' keys, sorted
    order: Tensor  # `[places]`, int64: the places in the order of their keys
    end: int  # one more than the largest key; a place whose key is `end` is padding


class StepRates(NamedTuple):
    """Learning rate, gradient factor and rounding seed of a step: scalars on the tables' device."""

    rate: Tensor  # A scalar, float64: the learning rate, for Adam including the bias correction
    scale: Tensor  # A scalar, of any floating dtype: factor of the gradients
    seed: Tensor  # A scalar, int64: for the rounding of bfloat16 weights


class RowRule(NamedTuple):
    """An update rule (a key of `jobs.optimizers.UPDATE_RULES`) and its constant numbers."""

    name: str
    eps: float = 0.0
    betas: tuple[float, float] = (0.0, 0.0)


def unknown_rule(rule: RowRule) -> InputError:
    return InputError(
        f"the kernels of the tables have no update rule {rule.name!r}",
        hint=f"Allowed: {', '.join(UPDATE_RULES)}.",
    )


def true_positions(marks: Tensor, count: int) -> Tensor:
    """Return the positions of the first `count` True marks: `[count]`, int64.

    If there are fewer, the remaining positions are `len(marks)`.
    """
    # Search for the marks. To scatter each place to the number of its mark would write all places
    # without a mark to one extra index, one after another in CUDA's deterministic kernels.
    numbers = torch.arange(1, count + 1, device=marks.device)
    return torch.searchsorted(torch.cumsum(marks, 0), numbers)


def sums_in_pieces(rows: Tensor, sources: Tensor, starts: Tensor, segment: Tensor) -> Tensor:
    """Return the sum of each segment's rows, `[segments, dim]`.

    Long segments are cut into pieces, which are summed first. torch's `embedding_bag` sums a bag in
    one thread block of a GPU, which is slow for long segments: a column with three distinct ids has
    segments of a third of the batch.

    Args:
        rows: `[n, dim]`.
        sources: `[places]`, int64: the index in `rows` of each place; the places of a segment are
            adjacent.
        starts: `[segments]`, int64, not descending: the first place of each segment, which may be
            empty.
        segment: `[places]`: the segment of each place.
    """
    count, length = len(sources), len(starts)
    if count == 0:
        return rows.new_zeros(length, rows.shape[1])
    place = torch.arange(count, device=rows.device)
    is_start = (place - starts[segment]) % _PIECE_ROWS == 0
    # A segment of n places has at most n / _PIECE_ROWS + 1 pieces.
    piece_starts = true_positions(is_start, count // _PIECE_ROWS + length)
    pieces = functional.embedding_bag(sources, rows, piece_starts, mode="sum")
    # Unused pieces would all be in the last segment's bag, and most of a batch's capacity may be
    # unused. They get bags of their own.
    spare = torch.arange(0, len(pieces) + 1, _PIECE_ROWS, device=rows.device)
    spare += (piece_starts < count).sum()
    first_pieces = torch.cat([torch.searchsorted(piece_starts, starts), spare])
    every = torch.arange(len(pieces), device=rows.device)
    bags = first_pieces.clamp(max=len(pieces))
    return functional.embedding_bag(every, pieces, bags, mode="sum")[:length]
