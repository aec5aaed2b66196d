"""The CPU backend: a reader decodes row groups, and a filler writes rows to host memory."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import torch

from distrain.loader.batch import Batch
from distrain.loader.delivery.stats import StatsRecorder
from distrain.loader.filling.batch_memory import (
    BatchLayout,
    BlockPool,
    OpenBatch,
)
from distrain.loader.filling.filler import Block, Filler
from distrain.loader.filling.list_columns import deal_lists, join_lists
from distrain.loader.filling.schedule import Deal
from distrain.loader.partition.table import RowGroup
from distrain.loader.partition.wanted_columns import WantedColumn
from distrain.loader.reading.reader import Expected
from distrain.loader.reading.source import Lease


class CpuBackend:
    """Fills batches in host memory with the columns of a source."""

    def __init__(
        self,
        columns: Sequence[WantedColumn],
        source: Lease,
        pool: BlockPool,
        stats: StatsRecorder,
        list_limits: Mapping[str, int] | None = None,
    ):
        self._lists = tuple(column for column in columns if column.is_list)
        flat = [column for column in columns if not column.is_list]
        self._filler = Filler(flat, pool.tiles)
        self._layout = BatchLayout.of(columns)
        self._limits = dict(list_limits or {})
        self._pool = pool
        self._source = source
        self.stats = stats

    @property
    def num_lists(self) -> int:
        return len(self._lists)

    def new_block(self, num_rows: int) -> Block:
        return self._pool.lend(num_rows)

    def expect(self, groups: Iterator[RowGroup | None]) -> Expected:
        return self._source.expect(groups)

    def load(self, group: RowGroup, deal: Deal, batches: Sequence[OpenBatch[Block]]) -> None:
        blocks = [batch.block for batch in batches]
        parts = self._source.read(group)
        first_flat = list_number = bytes_read = 0
        decode_s = fill_s = 0.0
        while True:
            start_s = time.perf_counter()
            part = next(parts, None)
            decoded_s = time.perf_counter()
            decode_s += decoded_s - start_s
            if part is None:
                break
            self._filler.fill(part.cells, deal, blocks, group, first_column=first_flat)
            for rows in part.lists:
                column = self._lists[list_number]
                most = self._limits.get(column.name)
                deal_lists(column, list_number, rows, most, deal, batches, group)
                list_number += 1
            first_flat += len(part.cells)
            bytes_read += part.bytes_read
            fill_s += time.perf_counter() - decoded_s
        self.stats.add(row_groups=1, bytes_read=bytes_read, decode_s=decode_s, fill_s=fill_s)

    def copy_rows(self, cells: Block, deal: Deal, batches: Sequence[OpenBatch[Block]]) -> None:
        """Write rows of `cells`, `[flat columns, rows]` in a batch's format, to their places."""
        self._filler.copy(cells, deal, [batch.block for batch in batches])

    def finish(self, batch: OpenBatch[Block]) -> Batch:
        lists = {
            column.name: join_lists(column, lengths, runs)
            for column, lengths, runs in zip(self._lists, batch.lengths, batch.lists, strict=True)
        }
        block = torch.from_numpy(batch.block)
        return self._layout.batch(block, lists)

    def close(self) -> None:
        self._source.close()
