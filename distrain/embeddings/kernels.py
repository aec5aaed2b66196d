"""The few operations on rows that a step of embedding tables consists of.

Sums run in the order of a batch's rows, so the same input gives the same bits, whatever the number
of threads. "Distinct rows" below are those that a batch looks up, each once; a *number* says which
of them an id means.
"""

from dataclasses import dataclass

from torch import Tensor

from distrain.embeddings import kernels_torch


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

    >>> import torch
    >>> offsets, counts = torch.tensor([[0], [3]]), torch.tensor([[3], [2]])
    >>> grouping = unique(torch.tensor([7, 2, 7, 7, 7], dtype=torch.int32), offsets, counts)
    >>> grouping.numbers.tolist(), grouping.ids.tolist(), grouping.counts.tolist()
    ([0, 1, 0, 2, 2], [7, 2, 7], [2, 1])
    """
    return Grouping(*kernels_torch.unique(ids, offsets, counts))


gather = kernels_torch.gather
expand = kernels_torch.expand
collect = kernels_torch.collect
update_sgd = kernels_torch.update_sgd
update_adagrad = kernels_torch.update_adagrad
update_rowwise_adagrad = kernels_torch.update_rowwise_adagrad
update_adam = kernels_torch.update_adam
