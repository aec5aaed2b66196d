"""Row groups decoded on a GPU by cuDF and dealt there: no row passes through host memory.

cuDF is imported when a backend is made, not with this module. Its lower half, `pylibcudf`, is
enough, and takes the stream to work on with each call.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from distrain.batch import Batch
from distrain.errors import DataError, Unavailable
from distrain.loader.arrow import null_error
from distrain.loader.blocks import BatchLayout
from distrain.loader.dealing import Deal
from distrain.loader.device import CudaStreams
from distrain.loader.fill import check_values
from distrain.loader.fill_torch import TorchFiller, signed_bits
from distrain.loader.open_batches import OpenBatch
from distrain.loader.stats import StatsRecorder
from distrain.partition import RowGroup
from distrain.partition.columns import Wanted
from distrain.storage import may_pass, patiently

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


class CudfBackend:
    """Fills batches on a GPU with what cuDF decodes there.

    All work goes onto the loader's side stream: so what is written to a batch comes after its
    memory was given out and before the event that the consumer's stream waits for, whichever
    threads had a part in it.

    Args:
        columns: What batches hold; no list columns.
        device: The GPU, with its index.
        streams: Its streams.
        stats: Takes times and counts.
        memory_fraction: How much of the GPU's memory cuDF may use.
        retry_s: How long to try again where the storage does not answer.
    """

    num_lists = 0

    def __init__(
        self,
        columns: Sequence[Wanted],
        device: torch.device,
        streams: CudaStreams,
        stats: StatsRecorder,
        memory_fraction: float,
        retry_s: float = 0.0,
    ):
        self._columns = tuple(columns)
        self._layout = BatchLayout.of(columns)
        self._device = device
        self._streams = streams
        self._stats = stats
        self._retry_s = retry_s
        set_up_pool(device, memory_fraction)
        self._reader = CudfReader(columns, streams.side)
        with streams.beside():
            self._filler = TorchFiller(columns, device)

    def new_block(self, num_rows: int) -> Tensor:
        """Memory for a batch, `[columns, rows]`, int32; what is in it is arbitrary."""
        with self._streams.beside():
            shape = (self._layout.num_columns, num_rows)
            return torch.empty(shape, dtype=torch.int32, device=self._device)

    def load(self, group: RowGroup, deal: Deal, batches: Sequence[OpenBatch[Tensor]]) -> None:
        """Put a row group's rows into the batches of the deal's runs.

        Raises:
            DataError: The row group cannot be read, or a value in it cannot be used.
        """
        start_s = time.perf_counter()
        with self._streams.beside():
            where = {"file": group.file, "row group": group.index}
            cells = patiently(partial(self._reader.read, group), where, self._retry_s)
            decoded_s = time.perf_counter()
            bad = self._filler.fill(cells, deal, [batch.block for batch in batches])
            # The one place where a thread, a decoding one, waits for the GPU: once a row group.
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
        """Nothing is held: cuDF opens a file for each row group."""


class CudfReader:
    """Reads row groups into device memory, from any thread whose current GPU is the stream's.

    Args:
        columns: The columns to read.
        stream: Where the decoding goes; tensors are good on this stream only.
    """

    def __init__(self, columns: Sequence[Wanted], stream: torch.cuda.Stream):
        # pylibcudf has no type stubs where it is not installed, and so none for a type check here.
        self._plc: Any = importlib.import_module("pylibcudf")
        type_ids = self._plc.TypeId
        self._types = {getattr(type_ids, name): kind for name, kind in _TORCH_TYPES.items()}
        self._columns = tuple(columns)
        self._stream = _StreamHandle(stream)
        self._footers: dict[str, _Footer] = {}

    def read(self, group: RowGroup) -> list[Tensor]:
        """The wanted columns of a row group, each `[rows]`, of its type in the file.

        Raises:
            DataError: The file cannot be read any more, or is not the one that was planned with, or
                a column holds a null that nothing is to be put in place of, or the row group does
                not fit into cuDF's memory.
            Unavailable: The storage does not answer.
        """
        where: dict[str, object] = {"file": group.file, "row group": group.index}
        try:
            found = self._read(group)
        except MemoryError as error:
            raise DataError(
                f"cuDF has not enough GPU memory to decode a row group: {error}",
                where=where,
                hint="Raise gpu_memory_fraction, lower decode_threads, write smaller row groups, "
                "or use reader 'arrow'.",
            ) from error
        except (OSError, RuntimeError, ValueError, OverflowError, IndexError) as error:
            lines = str(error).splitlines() or [type(error).__name__]
            message = f"could not read a row group: {lines[0]}"
            if may_pass(error):
                raise Unavailable(message, where=where) from error
            raise DataError(
                message,
                where=where,
                hint="The file is damaged, or was removed or changed since the run began.",
            ) from error
        by_name = dict(zip(found.column_names(), found.columns, strict=True))
        return [self._cells(column, by_name.get(column.name), group) for column in self._columns]

    def bytes_of(self, group: RowGroup) -> int:
        """Compressed bytes of the wanted columns of a row group that was read."""
        bytes_per_group = self._footers[group.file].bytes_per_group
        return bytes_per_group[group.index]

    def _read(self, group: RowGroup) -> Any:
        parquet = self._plc.io.parquet
        source = self._plc.io.SourceInfo([group.file])
        if group.file not in self._footers:
            names = {column.name for column in self._columns}
            self._footers[group.file] = _Footer(self._plc, source, names)
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

    def _cells(self, column: Wanted, found: Any, group: RowGroup) -> Tensor:
        where: dict[str, object] = {"file": group.file, "row group": group.index}
        problem = None
        if found is None:
            problem = f"column {column.name!r} is missing"
        elif found.size() != group.num_rows:
            problem = f"the row group has {found.size()} rows, not {group.num_rows} as planned"
        elif found.type().id() not in self._types:
            problem = f"column {column.name!r} holds {found.type().id()!r}, which is not a number"
        if problem:
            hint = "The file was changed since its footer was read; start again."
            raise DataError(problem, where=where, hint=hint)
        cells = _tensor(found.data(), self._types[found.type().id()], group.num_rows)
        if not found.null_count():
            return cells
        is_null = null_rows(torch.as_tensor(found.null_mask()), group.num_rows)
        if column.fill is None:
            raise null_error(column, int(np.flatnonzero(is_null.cpu().numpy())[0]), where)
        return signed_bits(cells).masked_fill(is_null, column.fill).view(cells.dtype)


class _Footer:
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
    """A stream of torch's as cuDF takes it, from any version of torch."""

    def __init__(self, stream: torch.cuda.Stream):
        self._stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, int(self._stream.cuda_stream)


def set_up_pool(device: torch.device, fraction: float) -> None:
    """Give cuDF a memory pool of limited size on a GPU, unless someone gave it another before.

    It is the process's until its end: no one can know when the last buffer in it is dropped. The
    calling thread's current GPU must be this one.

    Args:
        device: The GPU, with its index.
        fraction: The pool's largest size as a share of the GPU's memory.
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
    """Which rows are null.

    Args:
        mask: Bytes of an Arrow validity mask: a bit per row, the lowest first, 1 for valid.
        num_rows: How many bits count.

    Returns:
        `[num_rows]`, bool.

    >>> null_rows(torch.tensor([0b101], dtype=torch.uint8), 3).tolist()
    [False, True, False]
    """
    bits = torch.arange(8, dtype=torch.uint8, device=mask.device)
    valid = (mask[: (num_rows + 7) // 8, None] >> bits) & 1
    return valid.flatten()[:num_rows] == 0


def _tensor(data: Any, kind: torch.dtype, num_rows: int) -> Tensor:
    """A buffer of cuDF's as a tensor of the same memory, which it keeps alive."""
    raw: Tensor = torch.as_tensor(data)  # by the CUDA array interface, as bytes
    return raw[: num_rows * kind.itemsize].view(kind)


def _aligned(size_bytes: float) -> int:
    return int(size_bytes) // _POOL_ALIGNMENT_BYTES * _POOL_ALIGNMENT_BYTES
