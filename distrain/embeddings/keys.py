"""From distinct ids of columns to rows of a store, and from several ranks' rows to one list."""

from collections.abc import Sequence

import torch
from torch import Tensor

from distrain.embeddings import kernels
from distrain.embeddings.kernels import Grouping


def add_parts(parts: Sequence[Tensor], numbers: Sequence[Tensor], total: Tensor) -> None:
    """Add each part's rows to the rows of `total` that its numbers say, part after part."""
    place = torch.zeros(1, dtype=torch.int64)
    for rows, own in zip(parts, numbers, strict=True):
        if len(own):
            kernels.collect(rows.unsqueeze(1), own.unsqueeze(0), place, total)


def keys_of(grouping: Grouping, starts: Tensor) -> Tensor:
    """Each column's ids, moved to where its table begins: `[u]`, int64."""
    moved = starts.repeat_interleave(grouping.counts).to(grouping.ids.device)
    return moved.add_(grouping.ids)


def segments_of(counts: Tensor) -> tuple[Tensor, Tensor]:
    """Offsets and counts `[columns, parts]` of parts that stand one after another.

    Args:
        counts: `[parts, columns]`, int64, on the CPU: each part holds first what is of the first
            column, then what is of the second, ...
    """
    ends = torch.cumsum(counts.flatten(), 0).view(counts.shape)
    return (ends - counts).T.contiguous(), counts.T.contiguous()
