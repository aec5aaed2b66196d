"""Loading on the host: a reader decodes, the filler deals rows to blocks of host memory."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from distrain.batch import Batch
from distrain.loader.blocks import BatchLayout, BlockPool
from distrain.loader.dealing import Deal
from distrain.loader.fill import Block, Filler
from distrain.loader.lists import check_lists, deal_lists, joined
from distrain.loader.open_batches import OpenBatch
from distrain.loader.reader import Reader
from distrain.loader.stats import StatsRecorder
from distrain.partition import RowGroup
from distrain.partition.columns import Wanted


class HostBackend:
    """Fills batches in host memory with what a reader decodes.

    Args:
        columns: What batches hold, flat columns first.
        reader: Decodes row groups.
        pool: Lends the batches' memory.
        stats: Takes times and counts.
    """

    def __init__(
        self, columns: Sequence[Wanted], reader: Reader, pool: BlockPool, stats: StatsRecorder
    ):
        self._lists = tuple(column for column in columns if column.is_list)
        self._filler = Filler([column for column in columns if not column.is_list])
        self._layout = BatchLayout.of(columns)
        self._pool = pool
        self._reader = reader
        self._stats = stats

    @property
    def num_lists(self) -> int:
        """How many list columns batches have."""
        return len(self._lists)

    def new_block(self, num_rows: int) -> Block:
        """Memory for a batch's flat columns."""
        return self._pool.lend(num_rows)

    def load(self, group: RowGroup, deal: Deal, batches: Sequence[OpenBatch[Block]]) -> None:
        """Put a row group's rows into the batches of the deal's runs.

        Raises:
            DataError: The row group cannot be read, or a value in it cannot be used.
        """
        start_s = time.perf_counter()
        decoded = self._reader.read(group)
        decoded_s = time.perf_counter()
        self._filler.fill(decoded.cells, deal, [batch.block for batch in batches], group)
        if self._lists:
            for column, rows in zip(self._lists, decoded.lists, strict=True):
                check_lists(column, rows, group)
            deal_lists(decoded.lists, deal, batches)
        self._stats.add(
            row_groups=1,
            bytes_read=decoded.bytes_read,
            decode_s=decoded_s - start_s,
            fill_s=time.perf_counter() - decoded_s,
        )

    def finish(self, batch: OpenBatch[Block]) -> Batch:
        """The batch whose rows are all there."""
        lists = {
            column.name: joined(column, parts)
            for column, parts in zip(self._lists, batch.lists, strict=True)
        }
        return self._layout.batch(torch.from_numpy(batch.block), lists)

    def close(self) -> None:
        """Let go of files; no thread may be loading."""
        self._reader.close()
