"""Batches whose rows are redistributed, so that all ranks have lists of similar total length.

The rows of a global step, and the rank that reads each row, are determined before anything is read.
The lengths of a row's lists are only known after reading. So ranks read as usual, exchange the
lengths of their rows' lists, and send each row to the rank that trains it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from distrain.loader.batch import Batch, Ragged, ranges
from distrain.loader.filling.batch_memory import BatchLayout
from distrain.models.click_model import ClickModel
from distrain.models.embeddings.peers import Peers
from distrain.train.step.routing import Batches
from distrain.train.timing.phases import PEERS, waiting


def even_owners(work: NDArray[np.int64], num_ranks: int) -> NDArray[np.int64]:
    """Return the rank of each row, `[rows]`, so that all ranks have similar work.

    The ranks' numbers of rows differ by one at most. Rows are sorted, most work first, and
    distributed in rounds: each rank gets one row of a round. The row with the most work goes to the
    rank with the least work so far.

    Args:
        work: Work of each row by kind, `[rows, kinds]`. Each kind is divided by its sum over the
            rows, so that all kinds have equal weight.

    >>> even_owners(np.array([[9], [1], [4], [4], [2], [6]]), 2).tolist()
    [0, 0, 0, 1, 1, 1]
    """
    shares = (work / np.maximum(work.sum(axis=0), 1)).sum(axis=1)
    order = np.argsort(-shares, kind="stable")
    owners = np.empty(len(work), np.int64)
    owners[order] = np.arange(len(order)) % num_ranks
    # If the rows of a round have equal work, their order does not matter.
    firsts, lasts = order[::num_ranks], order[num_ranks - 1 :: num_ranks]
    is_even = shares[firsts[: len(lasts)]] == shares[lasts]
    rounds = [*np.flatnonzero(~is_even).tolist(), *range(len(lasts), len(firsts))]
    load = np.zeros(num_ranks)
    for number in rounds:
        rows = order[number * num_ranks : (number + 1) * num_ranks]
        ranks = np.argsort(load, kind="stable")[: len(rows)]
        owners[rows] = ranks
        load[ranks] += shares[rows]
    return owners


@dataclass(frozen=True)
class BalancedBatches:
    """Batches whose rows the ranks exchange, so that all have similar work.

    `__next__` is a collective operation. The global batch stays the same. The rank of a row depends
    only on the lengths of the global batch's lists and on the number of ranks.

    Args:
        batches: The batches that this rank reads.
        peers: The ranks that exchange rows.
        limits: By list column, the largest number of items that the model reads of a list. Other
            lists are read completely.
        compared_lists: The name of one list column of each event sequence. The model compares all
            pairs of a sequence's items (attention), so the work grows with the square of its
            length.
    """

    batches: Batches
    peers: Peers
    limits: Mapping[str, int]
    compared_lists: Sequence[str]

    @classmethod
    def of(cls, batches: Batches, peers: Peers, model: ClickModel) -> BalancedBatches:
        events = [([*one.lists.values()], one) for one in model.inputs.shape.events]
        limits = {
            column.name: one.max_length
            for lists, one in events
            for column in (*lists, *one.numbers)
        }
        return cls(batches, peers, limits, [lists[0].name for lists, _ in events])

    def __next__(self) -> Batch:
        batch = next(self.batches)
        names = sorted(batch.lists)
        lengths = torch.stack([batch.lists[name].lengths for name in names], dim=1)
        # The caller has marked a wait for the reader; here this rank waits for its peers.
        with waiting(PEERS):
            counts = self.peers.gather_counts(torch.tensor([len(lengths)], device=lengths.device))
            of_ranks = self.peers.gather_rows(lengths, counts.flatten().tolist())
            every = torch.cat(of_ranks).cpu().numpy().astype(np.int64)
            owners = even_owners(self._work(every, names), self.peers.num_ranks)
            ends = [*accumulate(counts.flatten().tolist(), initial=0)]
            return self._exchanged(batch, names, every, owners, ends)

    def close(self) -> None:
        self.batches.close()

    def _work(self, lengths: NDArray[np.int64], names: Sequence[str]) -> NDArray[np.int64]:
        """Return each row's work, `[rows, 2]`: items to read, and pairs of items to compare."""
        most = [self.limits.get(name, np.iinfo(np.int64).max) for name in names]
        read = np.minimum(lengths, most)
        compared = read[:, [names.index(name) for name in self.compared_lists]]
        return np.stack([read.sum(axis=1), (compared**2).sum(axis=1)], axis=1)

    def _exchanged(
        self,
        batch: Batch,
        names: Sequence[str],
        lengths: NDArray[np.int64],
        owners: NDArray[np.int64],
        ends: Sequence[int],
    ) -> Batch:
        """Return the rows assigned to this rank, in the order of the ranks that read them.

        A collective operation. The rows of the global batch are numbered in rank order: rank `r`
        has read the rows `ends[r]` to `ends[r + 1] - 1`.

        Args:
            batch: The rows that this rank has read.
            lengths: The lengths of the lists `names` of the global batch, `[rows, lists]`.
            owners: The rank to which each row of the global batch is assigned, `[rows]`.
        """
        rank, ranks = self.peers.rank, self.peers.num_ranks
        own = slice(ends[rank], ends[rank + 1])
        order = np.argsort(owners[own], kind="stable")
        is_mine = owners == rank
        here = torch.from_numpy(order).to(batch.categorical.device)

        def counted(per_row: NDArray[np.int64]) -> tuple[list[int], list[int]]:
            """Return how many values this rank sends to each rank, and receives from each rank.

            `per_row` is the number of values of each row of the global batch.
            """
            send = np.bincount(owners[own], per_row[own], ranks).astype(np.int64)
            mine = np.where(is_mine, per_row, 0)
            return send.tolist(), [int(mine[low:high].sum()) for low, high in pairwise(ends)]

        layout, block = _block_of(batch)
        rows = self.peers.exchange_rows(block[here], *counted(np.ones_like(owners)))
        lists = {}
        for place, name in enumerate(names):
            column, own_lengths = batch.lists[name], lengths[own, place][order]
            starts = column.offsets[:-1].long()[here]
            taken = torch.from_numpy(own_lengths).to(starts.device)
            values = column.values[ranges(starts, taken, int(own_lengths.sum()))]
            received = self.peers.exchange_rows(values, *counted(lengths[:, place]))
            offsets = np.zeros(int(is_mine.sum()) + 1, np.int32)
            np.cumsum(lengths[is_mine, place], out=offsets[1:])
            on_device = torch.from_numpy(offsets).to(received.device)
            lists[name] = Ragged(received, on_device, offsets)
        return layout.batch(rows.t().contiguous(), lists)


def _block_of(batch: Batch) -> tuple[BatchLayout, Tensor]:
    """Return the layout of a batch's flat columns, and these columns in one block.

    The block is `[rows, columns]`, int32, with the columns in a loader's order; floats are stored
    as their bits.
    """
    assert batch.labels is not None
    parts = [batch.continuous, batch.labels]
    parts += [] if batch.weight is None else [batch.weight[:, None]]
    parts += [] if batch.task_weights is None else [batch.task_weights]
    layout = BatchLayout(
        batch.categorical_names,
        batch.continuous_names,
        batch.label_names,
        batch.weight is not None,
        batch.task_weight_names,
    )
    bits = [part.contiguous().view(torch.int32) for part in parts]
    return layout, torch.cat([batch.categorical, *bits], dim=1)
