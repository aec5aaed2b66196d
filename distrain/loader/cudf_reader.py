"""Decodes row groups with cuDF into tensors in GPU memory.

Only `pylibcudf` is used, the lower layer of cuDF, since its calls accept a stream. It is imported
when a reader is created, not with this module.
"""

from __future__ import annotations

import importlib.util
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeGuard, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from distrain.errors import DataError
from distrain.loader.delivery.cuda_streams import CudaStreams
from distrain.loader.filling.torch_filler import signed_bits, with_capacity
from distrain.loader.partition.scanning import read_files
from distrain.loader.partition.table import RowGroup, Selection, Table
from distrain.loader.partition.wanted_columns import WantedColumn
from distrain.loader.reading.arrow import null_error
from distrain.loader.reading.reader import DecodedColumns, Reader, unreadable
from distrain.storage.retrying import first_line
from distrain.storage.urls import is_remote

_FIRST_SHARE = 0.25  # initial size of the pool, as a share of its maximum
_POOL_ALIGNMENT_BYTES = 256

# Columns of these types can be read. Dates count days, as in Arrow. The names are those of
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

# cuDF reads these types like Arrow. (A date64, for example, counts milliseconds in Arrow.)
_CUDF_TYPES = frozenset(
    (
        *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.date32()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float32(), pa.float64()),
    )
)

_pools_lock = threading.Lock()

TensorT = TypeVar("TensorT", Tensor, Tensor | None)


def _why_not_cudf_file(file: str, columns: Sequence[WantedColumn]) -> str | None:
    if is_remote(file):
        return "remote files are read by Arrow"
    try:
        kinds = {field.name: field.type for field in pq.read_schema(file)}
    except (OSError, pa.ArrowException) as error:
        return f"{file} cannot be read: {first_line(error)}"
    for column in columns:
        kind = kinds.get(column.name)
        # A missing column is an error when footers are read.
        if kind is not None and kind not in _CUDF_TYPES:
            return f"column {column.name!r} has type {kind}, which cuDF may decode differently"
    return None


def why_not_cudf(
    table: Table, columns: Sequence[WantedColumn], device_type: str, has_cache: bool
) -> str | None:
    """Return why cuDF cannot serve a table for batches on `"cpu"` or `"cuda"`; `None` if it can.

    It cannot with a cache, lists, columns from folder names, or dots in names. Otherwise all
    files are checked, too.
    """
    if device_type != "cuda":
        return "batches stay on the host"
    if any(importlib.util.find_spec(name) is None for name in ("pylibcudf", "rmm")):
        return "cuDF is not installed"
    if has_cache:
        return "the cache stores data decoded by Arrow"
    if any("." in column.name for column in columns):
        return "cuDF treats a column name with a dot as a field of a struct"
    if any(column.is_list for column in columns):
        return "columns of lists are read by Arrow"
    if table.compact.has_constants:
        return "columns come from the names of folders"
    files = table.compact.files
    reasons = read_files(files, lambda number: _why_not_cudf_file(files[number], columns))
    return next((reason for reason in reasons if reason), None)


class CudfReader(Reader):
    """Reads row groups into device memory, from any thread whose current GPU is that of `streams`.

    Cells are tensors, `[rows]`, of the file's dtype, which are valid on the side stream only. At
    most `open_groups` row groups stay decoded while their slices are read.
    """

    def __init__(self, columns: Sequence[WantedColumn], streams: CudaStreams, open_groups: int = 1):
        # pylibcudf has no type stubs where it is not installed, so it is untyped here.
        self._plc: Any = importlib.import_module("pylibcudf")
        type_ids = self._plc.TypeId
        self._types = {getattr(type_ids, name): kind for name, kind in _TORCH_TYPES.items()}
        self._names = [column.name for column in columns]
        self._device = streams.device
        self._stream = _StreamHandle(streams.side)
        self._footers: dict[str, CudfFooter] = {}
        self._open_groups = max(1, open_groups)
        self._large: OrderedDict[tuple[str, int, Selection | None], DecodedColumns] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, group: RowGroup, columns: Sequence[WantedColumn]) -> Iterator[DecodedColumns]:
        """Yield all columns of a row group in one part; see `Reader.read`.

        Also raises a `DataError` if the GPU's memory is full.
        """
        if group.slice is None:
            yield self._read_whole(group, columns)
            return
        key, cut = (group.file, group.index, group.selection), group.slice
        first = cut.number * cut.slice_rows
        with self._lock:  # threads that read slices of one row group decode it once
            whole = self._large.pop(key, None)
            if whole is None:
                uncut = replace(group, num_rows=cut.group_rows, slice=None)
                whole = self._read_whole(uncut, columns)
            if first + group.num_rows < cut.group_rows:
                self._large[key] = whole
            while len(self._large) > self._open_groups:
                self._large.popitem(last=False)
        yield self._part(whole, first, group)

    def _part(self, whole: DecodedColumns, first: int, group: RowGroup) -> DecodedColumns:
        end = first + group.num_rows
        return DecodedColumns(
            tuple(column[first:end] for column in whole.cells),
            bytes_read=self._bytes_of(group),
        )

    def close(self) -> None:
        self._large.clear()

    def _read_whole(self, group: RowGroup, columns: Sequence[WantedColumn]) -> DecodedColumns:
        try:
            table = self._read(group)
        except MemoryError as error:
            raise DataError(
                f"cuDF lacks GPU memory to decode a row group: {error}",
                where=group.where,
                hint="Raise gpu_memory_fraction, lower decode_threads, write smaller row groups, "
                "or use reader 'arrow'.",
            ) from error
        except (OSError, RuntimeError, ValueError, OverflowError, IndexError) as error:
            hint = "The file is damaged, or was removed or changed since the run began."
            raise unreadable(group, error, first_line(error), hint) from error
        by_name = dict(zip(table.column_names(), table.columns, strict=True))
        rows = None
        if group.taken is not None:
            rows = torch.from_numpy(group.taken).to(self._device)
        cells: list[Tensor] = []
        for column in columns:
            values = by_name.get(column.name)
            self._check(column, values, group)
            cells.append(self._cells(column, values, group, rows))
        return DecodedColumns(tuple(cells), bytes_read=self._bytes_of(group))

    def _bytes_of(self, group: RowGroup) -> int:
        whole = self._footers[group.file].bytes_per_group[group.index]
        taken = group.slice.group_rows if group.slice else group.num_rows
        return whole * group.num_rows // taken

    def _read(self, group: RowGroup) -> Any:
        parquet = self._plc.io.parquet
        source = self._plc.io.SourceInfo([group.file])
        if group.file not in self._footers:
            self._footers[group.file] = CudfFooter(self._plc, source, {*self._names})
        options = (
            parquet.ParquetReaderOptions.builder(source)
            .use_pandas_metadata(False)  # it would add index columns
            .column_names(self._names)
            .build()
        )
        options.set_row_groups([[group.index]])
        return parquet.read_parquet(
            options, self._stream, parquet_metadatas=[self._footers[group.file].parsed]
        )

    def _check(self, column: WantedColumn, column_data: Any, group: RowGroup) -> None:
        problem = None
        if column_data is None:
            problem = f"column {column.name!r} is missing"
        elif column_data.size() != group.group_rows:
            problem = (
                f"the row group has {column_data.size()} rows, not {group.group_rows} as planned"
            )
        elif (kind := column_data.type().id()) not in self._types:
            problem = f"column {column.name!r} has type {kind!r}, which is not a number"
        if problem:
            hint = "The file was changed since its footer was read; start again."
            raise DataError(problem, where=group.where, hint=hint)

    def _cells(
        self, column: WantedColumn, column_data: Any, group: RowGroup, rows: Tensor | None
    ) -> Tensor:
        is_null = _taken(self._nulls(column_data), rows)
        if column.fill_null is None and _any(is_null):
            raise null_error(column, _first(is_null), group)
        return _filled(column, _taken(self._values(column_data), rows), is_null)

    def _values(self, column_data: Any) -> Tensor:
        """Return a tensor, `[values]`, that shares a column's memory and keeps the memory alive.

        Nulls have undefined values.
        """
        kind = self._types[column_data.type().id()]
        if not column_data.size():  # it may have no memory
            return torch.empty(0, dtype=kind, device=self._device)
        raw: Tensor = torch.as_tensor(column_data.data())  # by the CUDA array interface, as bytes
        return raw[: column_data.size() * kind.itemsize].view(kind)

    def _nulls(self, column_data: Any) -> Tensor | None:
        if not column_data.null_count():
            return None
        return null_rows(torch.as_tensor(column_data.null_mask()), column_data.size())


class CudfFooter:
    """A file's footer as cuDF parses it, and the compressed bytes of columns by row group."""

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
    """Makes a torch stream usable by cuDF, also in versions of torch without `__cuda_stream__`."""

    def __init__(self, stream: torch.cuda.Stream):
        self._stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, int(self._stream.cuda_stream)


def set_up_pool(device: torch.device, fraction: float) -> None:
    """Let cuDF allocate from a pool of at most a fraction of a GPU's memory.

    Does nothing if another memory resource than RMM's default, such as a pool, is set for the GPU.

    `device` must be the current GPU. The pool lasts until the process ends, since its last buffer
    may be dropped at any time.
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
    """Return a mask, `[num_rows]`, bool, of null rows from an Arrow validity bitmap, uint8.

    >>> null_rows(torch.tensor([0b101], dtype=torch.uint8), 3).tolist()
    [False, True, False]
    """
    bits = torch.arange(8, dtype=torch.uint8, device=mask.device)
    valid = (mask[: (num_rows + 7) // 8, None] >> bits) & 1
    return valid.flatten()[:num_rows] == 0


def _taken(values: TensorT, places: Tensor | None) -> TensorT:
    """Return `values[places]`; `values` unchanged if either argument is `None`."""
    if values is None or places is None:
        return values
    return signed_bits(values)[places].view(values.dtype)


def _any(is_null: Tensor | None) -> TypeGuard[Tensor]:
    return is_null is not None and bool(is_null.any())


def _first(is_null: Tensor) -> int:
    return int(np.flatnonzero(is_null.cpu().numpy())[0])


def _filled(column: WantedColumn, values: Tensor, is_null: Tensor | None) -> Tensor:
    if is_null is None or column.fill_null is None:
        return values
    roomy = with_capacity(column, values)
    return signed_bits(roomy).masked_fill(is_null, column.fill_null).view(roomy.dtype)


def _aligned(size_bytes: float) -> int:
    return int(size_bytes) // _POOL_ALIGNMENT_BYTES * _POOL_ALIGNMENT_BYTES
