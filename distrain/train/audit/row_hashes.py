"""A 64-bit hash of each row of a batch, the same wherever and on whatever device it is trained."""

import torch
from torch import Tensor

from distrain.batch import Batch, Ragged

# Steele, Lea, Flood 2014 (SplitMix64), as int64, where torch's products wrap around.
_STEP = 0x9E3779B97F4A7C15 - 2**64
_FACTORS = (0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64)


def row_hashes(batch: Batch) -> Tensor:
    """The hash of each row's ids, numbers, labels and lists.

    Returns:
        `[rows]`, int64, on the batch's device; rows with the same values have the same hash.

    >>> ids = torch.tensor([[1, 2], [2, 1], [1, 2]], dtype=torch.int32)
    >>> batch = Batch(ids, torch.zeros(3, 0), torch.ones(3), ("a", "b"), ())
    >>> first, second, third = row_hashes(batch).tolist()
    >>> first == third, first == second
    (True, False)
    """
    hashes = torch.zeros(batch.num_rows, dtype=torch.int64, device=batch.categorical.device)
    labels = batch.label[:, None] if batch.labels is None and batch.label is not None else None
    for part in (batch.categorical, batch.continuous, batch.labels, labels):
        for column in () if part is None else part.unbind(1):
            hashes = _mixed(hashes + _STEP + _bits(column))
    for name in sorted(batch.lists):
        hashes = _mixed(hashes + _STEP + _of_lists(batch.lists[name]))
    return hashes


def _of_lists(lists: Ragged) -> Tensor:
    """A number for each row's list, in which every value counts with its place."""
    lengths = lists.lengths.long()
    starts = torch.repeat_interleave(lists.offsets[:-1].long(), lengths)
    places = torch.arange(len(lists.values), device=lists.values.device) - starts
    each = _mixed(_bits(lists.values) + (places + 1) * _STEP)
    # Sums wrap around, so differences of running sums are exact.
    running = torch.cat([each.new_zeros(1), each.cumsum(0)])
    bounds = lists.offsets.long()
    return running[bounds[1:]] - running[bounds[:-1]] + lengths


def _bits(values: Tensor) -> Tensor:
    return values.contiguous().view(torch.int32).long()


def _mixed(values: Tensor) -> Tensor:
    values = (values ^ _shifted(values, 30)) * _FACTORS[0]
    values = (values ^ _shifted(values, 27)) * _FACTORS[1]
    return values ^ _shifted(values, 31)


def _shifted(values: Tensor, count: int) -> Tensor:
    """Values shifted right and filled with zeros; torch's own shift fills with the sign."""
    return (values >> count) & ((1 << (64 - count)) - 1)
