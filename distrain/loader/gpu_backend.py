"""The GPU backend: cuDF decodes and torch fills batches there; no row passes through the host."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import torch
from torch import Tensor

from distrain.loader.batch import Batch
from distrain.loader.delivery.cuda_streams import CudaStreams
from distrain.loader.delivery.stats import StatsRecorder
from distrain.loader.filling.batch_memory import BatchLayout, OpenBatch
from distrain.loader.filling.filler import check_values
from distrain.loader.filling.list_columns import check_lists, cut_lists
from distrain.loader.filling.schedule import Deal
from distrain.loader.filling.torch_filler import DeviceLists, TorchFiller, TorchListFiller
from distrain.loader.partition.table import RowGroup
from distrain.loader.partition.wanted_columns import WantedColumn
from distrain.loader.reading.reader import DecodedColumns, Expected
from distrain.loader.reading.source import Lease


class GpuBackend:
    """Fills batches on a GPU with columns decoded by cuDF, on the loader's side stream.

    All threads use the side stream alone. So a batch is written after its memory was allocated, and
    before the event that the consumer's stream waits for. Each epoch has its own backend.
    """

    def __init__(
        self,
        columns: Sequence[WantedColumn],
        source: Lease,
        device: torch.device,
        streams: CudaStreams,
        stats: StatsRecorder,
        list_limits: Mapping[str, int] | None = None,
    ):
        self._flat = tuple(column for column in columns if not column.is_list)
        self._lists = tuple(column for column in columns if column.is_list)
        self._limits = dict(list_limits or {})
        self._layout = BatchLayout.of(columns)
        self._source = source
        self._device = device
        self._streams = streams
        self._stats = stats
        with streams.beside():
            self._filler = TorchFiller(self._flat, device)
        self._list_filler = TorchListFiller(self._lists, self._limits, device)

    @property
    def num_lists(self) -> int:
        return len(self._lists)

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
            bad_lists = self._list_filler.deal(decoded.lists, deal, batches)
            # Here and in `deal` a decoding thread waits for the GPU: once, or twice with lists, per
            # row group.
            flags = torch.cat([bad, bad_lists]).tolist()
            self._check(decoded, flags, group, deal)
        self._stats.add(
            row_groups=1,
            bytes_read=decoded.bytes_read,
            decode_s=decoded_s - start_s,
            fill_s=time.perf_counter() - decoded_s,
        )

    def finish(self, batch: OpenBatch[Tensor]) -> Batch:
        return self._layout.batch(batch.block, self._list_filler.join(batch))

    def _check(
        self, decoded: DecodedColumns, flags: Sequence[bool], group: RowGroup, deal: Deal
    ) -> None:
        """Check the flagged columns on the host too; that check raises the detailed error."""
        count = len(self._flat)
        for column, cells, is_bad in zip(self._flat, decoded.cells, flags[:count], strict=True):
            if is_bad:
                check_values(column, cells.cpu().numpy(), group, deal.rows)
        for column, lists, is_bad in zip(self._lists, decoded.lists, flags[count:], strict=True):
            if is_bad:
                check_lists(column, self._on_host(column, lists), group)

    def _on_host(self, column: WantedColumn, rows: DeviceLists) -> pa.Array:
        """Return a row group's lists as an Arrow array, cut to the maximum length like batches."""
        offsets, items = (part.cpu().numpy() for part in rows)
        lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(items))
        return cut_lists(lists, self._limits.get(column.name))

    def close(self) -> None:
        self._source.close()
