"""The GPU backend: cuDF decodes and torch fills batches there; no row passes through the host."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from distrain.loader.batch import Batch
from distrain.loader.delivery.cuda_streams import CudaStreams
from distrain.loader.delivery.stats import StatsRecorder
from distrain.loader.filling.batch_memory import BatchLayout, OpenBatch
from distrain.loader.filling.filler import check_values
from distrain.loader.filling.schedule import Deal
from distrain.loader.filling.torch_filler import TorchFiller
from distrain.loader.partition.table import RowGroup
from distrain.loader.partition.wanted_columns import WantedColumn
from distrain.loader.reading.reader import Expected
from distrain.loader.reading.source import Lease


class GpuBackend:
    """Fills batches on a GPU with columns decoded by cuDF, on the loader's side stream.

    All threads use the side stream alone. So a batch is written after its memory was allocated, and
    before the event that the consumer's stream waits for. Each epoch has its own backend.
    """

    num_lists = 0

    def __init__(
        self,
        columns: Sequence[WantedColumn],
        source: Lease,
        device: torch.device,
        streams: CudaStreams,
        stats: StatsRecorder,
    ):
        self._columns = tuple(columns)
        self._layout = BatchLayout.of(columns)
        self._source = source
        self._device = device
        self._streams = streams
        self._stats = stats
        with streams.beside():
            self._filler = TorchFiller(self._columns, device)

    def new_block(self, num_rows: int) -> Tensor:
        with self._streams.beside():
            shape = (self._layout.num_columns, num_rows)
            return torch.empty(shape, dtype=torch.int32, device=self._device)

    def expect(self, groups: Iterator[RowGroup | None]) -> Expected:
        return self._source.expect(groups)

    def load(self, group: RowGroup, deal: Deal, batches: Sequence[OpenBatch[Tensor]]) -> None:
        start_s = time.perf_counter()
        with self._streams.beside():
            (decoded,) = self._source.read(group)
            decoded_s = time.perf_counter()
            bad = self._filler.fill(decoded.cells, deal, [batch.block for batch in batches])
            # Here a decoding thread waits for the GPU, once per row group.
            for column, cells, is_bad in zip(
                self._columns, decoded.cells, bad.tolist(), strict=True
            ):
                if is_bad:  # the check on the host raises the detailed error
                    check_values(column, cells.cpu().numpy(), group, deal.rows)
        self._stats.add(
            row_groups=1,
            bytes_read=decoded.bytes_read,
            decode_s=decoded_s - start_s,
            fill_s=time.perf_counter() - decoded_s,
        )

    def finish(self, batch: OpenBatch[Tensor]) -> Batch:
        return self._layout.batch(batch.block)

    def close(self) -> None:
        self._source.close()
