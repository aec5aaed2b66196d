"""Loading on the host: a reader decodes, the filler deals rows to blocks of host memory."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import pyarrow as pa
import torch

from distrain.batch import Batch
from distrain.loader.blocks import BatchLayout, BlockPool
from distrain.loader.dealing import Deal
from distrain.loader.fill import Block, Filler
from distrain.loader.lists import check_lists, cut_lists, deal_list, joined
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
        list_limits: How many items lists keep at most, by column.
    """

    def __init__(
        self,
        columns: Sequence[Wanted],
        reader: Reader,
        pool: BlockPool,
        stats: StatsRecorder,
        list_limits: Mapping[str, int] | None = None,
    ):
        self._lists = tuple(column for column in columns if column.is_list)
        self._filler = Filler([column for column in columns if not column.is_list])
        self._layout = BatchLayout.of(columns)
        self._limits = dict(list_limits or {})
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
        blocks = [batch.block for batch in batches]
        parts = self._reader.read_in_parts(group)
        first_flat = first_list = bytes_read = 0
        decode_s = fill_s = 0.0
        while True:
            start_s = time.perf_counter()
            part = next(parts, None)
            decoded_s = time.perf_counter()
            decode_s += decoded_s - start_s
            if part is None:
                break
            self._filler.fill(part.cells, deal, blocks, group, first_column=first_flat)
            self._deal_lists(part.lists, first_list, deal, batches, group)
            first_flat += len(part.cells)
            first_list += len(part.lists)
            bytes_read += part.bytes_read
            fill_s += time.perf_counter() - decoded_s
        self._stats.add(row_groups=1, bytes_read=bytes_read, decode_s=decode_s, fill_s=fill_s)

    def _deal_lists(
        self,
        columns: Sequence[pa.Array],
        first: int,
        deal: Deal,
        batches: Sequence[OpenBatch[Block]],
        group: RowGroup,
    ) -> None:
        for number, whole in enumerate(columns, first):
            column = self._lists[number]
            rows = cut_lists(whole, self._limits.get(column.name))
            check_lists(column, rows, group)
            deal_list(number, rows, deal, batches)

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
