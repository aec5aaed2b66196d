"""Row groups decoded on a GPU by cuDF and dealt there: no row passes through host memory.

cuDF is imported when a backend is made, not with this module. Its lower half, `pylibcudf`, is
enough, and takes the stream to work on with each call.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from distrain.batch import Batch
from distrain.errors import DataError
from distrain.loader.delivery import CudaStreams, StatsRecorder
from distrain.loader.filling import (
    BatchLayout,
    Deal,
    OpenBatch,
    TorchFiller,
    check_values,
    signed_bits,
)
from distrain.loader.reading import Expected, null_error, unreadable
from distrain.partition import RowGroup, WantedColumn
from distrain.storage import first_line, with_retries

_FIRST_SHARE = 0.25  # of the pool's largest size: what it takes from the GPU at once
_POOL_ALIGNMENT_BYTES = 256

# Columns of these types can be read; dates count days, as with Arrow. The names are those of
# `pylibcudf.TypeId`.
_TORCH_TYPES = {
    "BOOL8": torch.uint8,
    "INT8": torch.int8,
    "INT16": torch.int16,
    "INT32": torch.int32,
    "INT64": torch.int64,
    "UINT8": torch.uint8,
    "UINT16": torch.uint16,
    "UINT32": torch.uint32,
    "UINT64": torch.uint64,
    "FLOAT32": torch.float32,
    "FLOAT64": torch.float64,
    "TIMESTAMP_DAYS": torch.int32,
}

_pools_lock = threading.Lock()


class GpuBackend:
    """Fills batches on a GPU with flat columns that cuDF decodes there.

    All work goes onto the loader's side stream. So a batch is written after its memory was
    allocated and before the event that the consumer's stream waits for, whichever threads write it.
    cuDF uses at most `memory_fraction` of the GPU's memory. An epoch has a backend of its own, and
    `footers` holds what those of a loader have parsed. Of row groups whose slices are loaded, so
    many as `open_groups` stay decoded.
    """

    num_lists = 0

    def __init__(
        self,
        columns: Sequence[WantedColumn],
        device: torch.device,
        streams: CudaStreams,
        stats: StatsRecorder,
        memory_fraction: float,
        retry_s: float = 0.0,
        footers: dict[str, CudfFooter] | None = None,
        open_groups: int = 1,
    ):
        self._columns = tuple(columns)
        self._layout = BatchLayout.of(columns)
        self._device = device
        self._streams = streams
        self._stats = stats
        self._retry_s = retry_s
        set_up_pool(device, memory_fraction)
        self._reader = CudfReader(columns, streams.side, footers, open_groups)
        with streams.beside():
            self._filler = TorchFiller(columns, device)

    def new_block(self, num_rows: int) -> Tensor:
        """Memory for a batch, `[columns, rows]`, int32, uninitialised."""
        with self._streams.beside():
            shape = (self._layout.num_columns, num_rows)
            return torch.empty(shape, dtype=torch.int32, device=self._device)

    def expect(self, groups: Iterator[RowGroup | None]) -> Expected:
        """Nothing: its files are local."""
        return Expected()

    def load(self, group: RowGroup, deal: Deal, batches: Sequence[OpenBatch[Tensor]]) -> None:
        """Write a row group's rows to the batches of the deal's runs."""
        start_s = time.perf_counter()
        with self._streams.beside():
            cells = with_retries(partial(self._reader.read, group), group.where, self._retry_s)
            decoded_s = time.perf_counter()
            bad = self._filler.fill(cells, deal, [batch.block for batch in batches])
            # Here alone a thread, a decoding one, waits for the GPU: once a row group.
            for column, source, is_bad in zip(self._columns, cells, bad.tolist(), strict=True):
                if is_bad:
                    check_values(column, source.cpu().numpy(), group, deal.rows)
        self._stats.add(
            row_groups=1,
            bytes_read=self._reader.bytes_of(group),
            decode_s=decoded_s - start_s,
            fill_s=time.perf_counter() - decoded_s,
        )

    def finish(self, batch: OpenBatch[Tensor]) -> Batch:
        """The batch whose rows are all there, for use on the side stream."""
        return self._layout.batch(batch.block)

    def close(self) -> None:
        """Do nothing: cuDF opens a file for each row group."""


class CudfReader:
    """Reads row groups into device memory, from any thread whose current GPU is the stream's.

    The tensors that it returns are valid on this stream only.

    Args:
        footers: Those that were parsed, by file, for readers of the same columns to share.
        open_groups: Row groups that stay decoded between the reads of their slices.
    """

    def __init__(
        self,
        columns: Sequence[WantedColumn],
        stream: torch.cuda.Stream,
        footers: dict[str, CudfFooter] | None = None,
        open_groups: int = 1,
    ):
        # pylibcudf has no type stubs where it is not installed, and so none for a type check here.
        self._plc: Any = importlib.import_module("pylibcudf")
        type_ids = self._plc.TypeId
        self._types = {getattr(type_ids, name): kind for name, kind in _TORCH_TYPES.items()}
        self._columns = tuple(columns)
        self._stream = _StreamHandle(stream)
        self._footers: dict[str, CudfFooter] = {} if footers is None else footers
        self._open_groups = max(1, open_groups)
        self._large: OrderedDict[tuple[str, int], list[Tensor]] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, group: RowGroup) -> list[Tensor]:
        """The wanted columns of a row group, each `[rows]`, of its type in the file.

        It raises what `Reader.read` raises, and a `DataError` if cuDF has not enough memory.
        """
        if group.slice is None:
            return self._read_whole(group)
        key, last = (group.file, group.index), group.first_row + group.num_rows
        with self._lock:  # threads that want slices of one row group decode it once
            whole = self._large.pop(key, None)
            if whole is None:
                whole = self._read_whole(replace(group, num_rows=group.group_rows, slice=None))
            if last < group.group_rows:
                self._large[key] = whole
            while len(self._large) > self._open_groups:
                self._large.popitem(last=False)
        return [cells[group.first_row : last] for cells in whole]

    def _read_whole(self, group: RowGroup) -> list[Tensor]:
        try:
            found = self._read(group)
        except MemoryError as error:
            raise DataError(
                f"cuDF has not enough GPU memory to decode a row group: {error}",
                where=group.where,
                hint="Raise gpu_memory_fraction, lower decode_threads, write smaller row groups, "
                "or use reader 'arrow'.",
            ) from error
        except (OSError, RuntimeError, ValueError, OverflowError, IndexError) as error:
            hint = "The file is damaged, or was removed or changed since the run began."
            raise unreadable(group, error, first_line(error), hint) from error
        by_name = dict(zip(found.column_names(), found.columns, strict=True))
        return [self._cells(column, by_name.get(column.name), group) for column in self._columns]

    def bytes_of(self, group: RowGroup) -> int:
        """Compressed bytes of the wanted columns of a row group that was read."""
        whole = self._footers[group.file].bytes_per_group[group.index]
        return whole * group.num_rows // group.group_rows

    def _read(self, group: RowGroup) -> Any:
        parquet = self._plc.io.parquet
        source = self._plc.io.SourceInfo([group.file])
        if group.file not in self._footers:
            names = {column.name for column in self._columns}
            self._footers[group.file] = CudfFooter(self._plc, source, names)
        options = (
            parquet.ParquetReaderOptions.builder(source)
            .use_pandas_metadata(False)  # it would add index columns
            .column_names([column.name for column in self._columns])
            .build()
        )
        options.set_row_groups([[group.index]])
        return parquet.read_parquet(
            options, self._stream, parquet_metadatas=[self._footers[group.file].parsed]
        )

    def _cells(self, column: WantedColumn, found: Any, group: RowGroup) -> Tensor:
        problem = None
        if found is None:
            problem = f"column {column.name!r} is missing"
        elif found.size() != group.num_rows:
            problem = f"the row group has {found.size()} rows, not {group.num_rows} as planned"
        elif found.type().id() not in self._types:
            problem = f"column {column.name!r} holds {found.type().id()!r}, which is not a number"
        if problem:
            hint = "The file was changed since its footer was read; start again."
            raise DataError(problem, where=group.where, hint=hint)
        cells = _tensor(found.data(), self._types[found.type().id()], group.num_rows)
        if not found.null_count():
            return cells
        is_null = null_rows(torch.as_tensor(found.null_mask()), group.num_rows)
        if column.fill_null is None:
            raise null_error(column, int(np.flatnonzero(is_null.cpu().numpy())[0]), group)
        return signed_bits(cells).masked_fill(is_null, column.fill_null).view(cells.dtype)


class CudfFooter:
    """A file's footer, parsed once: it describes all columns of all row groups."""

    def __init__(self, plc: Any, source: Any, names: set[str]):
        self.parsed: Any = plc.io.parquet_metadata.read_parquet_footers(source)[0]
        self.bytes_per_group: list[int] = [
            sum(
                chunk.meta_data.total_compressed_size
                for chunk in group.columns
                if chunk.meta_data.path_in_schema[0] in names
            )
            for group in self.parsed.row_groups
        ]


class _StreamHandle:
    """A stream of any version of torch, in the form that cuDF takes."""

    def __init__(self, stream: torch.cuda.Stream):
        self._stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, int(self._stream.cuda_stream)


def set_up_pool(device: torch.device, fraction: float) -> None:
    """Give cuDF a memory pool of at most this fraction of a GPU's memory, unless it has a pool.

    The pool lasts until the process ends, since its last buffer may be dropped at any time.
    The GPU must be the calling thread's current one.
    """
    mr: Any = importlib.import_module("rmm.mr")
    with _pools_lock:
        if type(mr.get_per_device_resource(device.index)) is not mr.CudaMemoryResource:
            return
        total_bytes = torch.cuda.get_device_properties(device).total_memory
        most_bytes = _aligned(total_bytes * fraction)
        first_bytes = _aligned(most_bytes * _FIRST_SHARE)
        pool = mr.PoolMemoryResource(mr.CudaMemoryResource(), first_bytes, most_bytes)
        mr.set_per_device_resource(device.index, pool)


def null_rows(mask: Tensor, num_rows: int) -> Tensor:
    """Which of `num_rows` rows are null, by an Arrow validity mask, bit by bit, the lowest first.

    >>> null_rows(torch.tensor([0b101], dtype=torch.uint8), 3).tolist()
    [False, True, False]
    """
    bits = torch.arange(8, dtype=torch.uint8, device=mask.device)
    valid = (mask[: (num_rows + 7) // 8, None] >> bits) & 1
    return valid.flatten()[:num_rows] == 0


def _tensor(data: Any, kind: torch.dtype, num_rows: int) -> Tensor:
    """A buffer of cuDF as a tensor of the same memory, which the tensor keeps alive."""
    raw: Tensor = torch.as_tensor(data)  # by the CUDA array interface, as bytes
    return raw[: num_rows * kind.itemsize].view(kind)


def _aligned(size_bytes: float) -> int:
    return int(size_bytes) // _POOL_ALIGNMENT_BYTES * _POOL_ALIGNMENT_BYTES
