"""The backends, which load row groups into batches; chooses the reader, source and backend.

The reader `arrow` decodes row groups on the host, and a filler writes the rows to batches in host
memory. With the reader `cudf`, row groups are decoded and batches filled on the GPU; no row passes
through the host.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from distrain.errors import SpecError
from distrain.loader.batch import Batch
from distrain.loader.cache.row_group_cache import RowGroupCache
from distrain.loader.cudf_reader import CudfReader, set_up_pool, why_not_cudf
from distrain.loader.dataset import Dataset
from distrain.loader.delivery.cuda_streams import CudaStreams
from distrain.loader.delivery.loads_ahead import Backend
from distrain.loader.delivery.stats import StatsRecorder
from distrain.loader.filling.batch_memory import BatchLayout, BlockPool, OpenBatch
from distrain.loader.filling.filler import Block, Filler, check_values
from distrain.loader.filling.list_columns import deal_lists, join_lists
from distrain.loader.filling.schedule import RowAssignment, open_groups
from distrain.loader.filling.torch_filler import TorchFiller
from distrain.loader.options import LoaderOptions, parse_bytes
from distrain.loader.partition.table import RowGroup, Table
from distrain.loader.partition.wanted_columns import WantedColumn
from distrain.loader.reading.arrow import ArrowReader
from distrain.loader.reading.reader import READERS, Reader, ReaderKind
from distrain.loader.reading.source import Source


class CpuBackend:
    """Fills batches in host memory with the columns of a source.

    `list_limits` has the maximum list length by column; lists of other columns are not cut.
    """

    def __init__(
        self,
        columns: Sequence[WantedColumn],
        source: Source,
        pool: BlockPool,
        stats: StatsRecorder,
        list_limits: Mapping[str, int],
    ):
        self._lists = tuple(column for column in columns if column.is_list)
        self.num_lists = len(self._lists)
        flat = [column for column in columns if not column.is_list]
        self._filler = Filler(flat, pool.tiles)
        self._layout = BatchLayout.of(columns)
        self._limits = list_limits
        self._pool = pool
        self._source = source
        self.stats = stats

    def new_block(self, num_rows: int) -> Block:
        return self._pool.allocate(num_rows)

    def load(
        self, group: RowGroup, assignment: RowAssignment, batches: Sequence[OpenBatch[Block]]
    ) -> None:
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
            self._filler.fill(part.cells, assignment, blocks, group, first_column=first_flat)
            for rows in part.lists:
                column = self._lists[list_number]
                most = self._limits.get(column.name)
                deal_lists(column, list_number, rows, most, assignment, batches, group)
                list_number += 1
            first_flat += len(part.cells)
            bytes_read += part.bytes_read
            fill_s += time.perf_counter() - decoded_s
        self.stats.add(row_groups=1, bytes_read=bytes_read, decode_s=decode_s, fill_s=fill_s)

    def copy_rows(
        self, cells: Block, assignment: RowAssignment, batches: Sequence[OpenBatch[Block]]
    ) -> None:
        """Write rows of `cells` to their places in `batches`, without checking values.

        `cells` holds rows in the format of a batch's memory: `[flat columns, rows]`, int32, ids or
        the bits of float32.
        """
        self._filler.copy(cells, assignment, [batch.block for batch in batches])

    def finish(self, batch: OpenBatch[Block]) -> Batch:
        lists = {
            column.name: join_lists(column, lengths, runs)
            for column, lengths, runs in zip(self._lists, batch.lengths, batch.lists, strict=True)
        }
        block = torch.from_numpy(batch.block)
        return self._layout.batch(block, lists)

    def close(self) -> None:
        self._source.close()


class GpuBackend:
    """Fills batches on a GPU with columns decoded by cuDF, on the loader's side stream.

    All threads use only the side stream. So a batch is written after its memory was allocated, and
    before the event that the consumer's stream waits for. Each epoch, and each window of an epoch,
    has its own backend.
    """

    num_lists = 0

    def __init__(
        self,
        columns: Sequence[WantedColumn],
        source: Source,
        streams: CudaStreams,
        stats: StatsRecorder,
    ):
        self._columns = tuple(columns)
        self._layout = BatchLayout.of(columns)
        self._source = source
        self._streams = streams
        self._stats = stats
        with streams.on_side_stream():
            self._filler = TorchFiller(self._columns, streams.device)

    def new_block(self, num_rows: int) -> Tensor:
        with self._streams.on_side_stream():
            shape = (self._layout.num_columns, num_rows)
            return torch.empty(shape, dtype=torch.int32, device=self._streams.device)

    def load(
        self, group: RowGroup, assignment: RowAssignment, batches: Sequence[OpenBatch[Tensor]]
    ) -> None:
        start_s = time.perf_counter()
        with self._streams.on_side_stream():
            (decoded,) = self._source.read(group)
            decoded_s = time.perf_counter()
            bad = self._filler.fill(decoded.cells, assignment, [batch.block for batch in batches])
            # Here a decoding thread waits for the GPU, once per row group.
            for column, cells, is_bad in zip(
                self._columns, decoded.cells, bad.tolist(), strict=True
            ):
                if is_bad:  # the check on the host raises the detailed error
                    check_values(column, cells.cpu().numpy(), group, assignment.rows)
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


class ReaderChoice(NamedTuple):
    name: str
    reason: str

    @property
    def kind(self) -> ReaderKind:
        return READERS[self.name]


def choose_reader(
    requested: str,
    table: Table,
    columns: Sequence[WantedColumn],
    device_type: str,
    *,
    has_cache: bool = False,
) -> ReaderChoice:
    """Choose the reader of a table for batches on a device of type `"cpu"` or `"cuda"`.

    `requested` is the name of a reader, or `"auto"`. Raises a `SpecError` if the requested reader
    cannot serve the table.
    """
    if requested == "auto":
        return ReaderChoice("arrow", "it reads every table")
    reason = why_not_cudf(table, columns, device_type, has_cache) if requested == "cudf" else None
    if reason is not None:
        raise SpecError(
            f"reader {requested!r} cannot serve this table: {reason}",
            hint="It decodes on the GPU that receives the batches; 'auto' chooses another reader.",
        )
    return ReaderChoice(requested, "asked for")


def new_source(
    kind: ReaderKind,
    dataset: Dataset,
    options: LoaderOptions,
    streams: CudaStreams | None = None,
) -> Source:
    def on_gpu() -> Reader:
        assert streams is not None
        set_up_pool(streams.device, options.gpu_memory_fraction)
        return CudfReader(dataset.columns, streams, open_groups(dataset, options))

    new_reader = on_gpu if kind.on_gpu else partial(new_host_reader, dataset, options)
    cache = None
    if options.cache_dir is not None:
        cache = RowGroupCache(dataset.columns, options.cache_dir, parse_bytes(options.cache_size))
    return Source(dataset.columns, new_reader, options.retry_s, cache)


def new_host_reader(dataset: Dataset, options: LoaderOptions) -> ArrowReader:
    return ArrowReader(
        dataset.columns,
        open_groups=open_groups(dataset, options),
        threads=options.decode_threads,
        fetch=options.fetch,
    )


def new_backend(
    kind: ReaderKind,
    source: Source,
    dataset: Dataset,
    pool: BlockPool,
    stats: StatsRecorder,
    *,
    streams: CudaStreams | None,
    list_limits: Mapping[str, int],
) -> Backend:
    """Open the source, and return a backend that loads a dataset's row groups into batches.

    `streams` is only needed for a GPU reader. `pool`, the memory of batches, and `list_limits`, the
    maximum list length by column, are only used for a host reader.
    """
    opened = source.open()
    if kind.on_gpu:
        assert streams is not None
        return GpuBackend(dataset.columns, opened, streams, stats)
    return CpuBackend(dataset.columns, opened, pool, stats, list_limits)
