"""Which reader serves a table and why, and the reader and backend of that name."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from distrain.errors import SpecError
from distrain.loader.cpu_backend import CpuBackend
from distrain.loader.cudf_reader import CudfFooter
from distrain.loader.dataset import Dataset
from distrain.loader.delivery import Backend, CudaStreams, StatsRecorder
from distrain.loader.filling import BlockPool, NarrowLayout, open_groups
from distrain.loader.gpu_backend import GpuBackend
from distrain.loader.options import CacheOptions, LoaderOptions
from distrain.loader.packed import CachingReader, PackedReader, is_packed
from distrain.loader.reading import (
    ArrowReader,
    Reader,
    RetryingReader,
    SameFilesReader,
    SharedReader,
)
from distrain.partition import Table, WantedColumn
from distrain.storage import first_line, is_remote

READERS = ("auto", "arrow", "packed", "cudf")

_HINTS = {
    "packed": "`distrain pack` writes files for it; reader 'auto' takes what serves the table.",
    "cudf": "It decodes on the GPU that batches go to; 'auto' takes another one.",
}

_READERS_OF_FOOTERS = 16

# cuDF reads these types as Arrow does. (A date64, for one, counts milliseconds in Arrow.)
_CUDF_TYPES = frozenset(
    (
        *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.date32()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float32(), pa.float64()),
    )
)


class ReaderChoice(NamedTuple):
    """A reader's name, and a sentence that says why it was chosen."""

    name: str
    reason: str


def choose_reader(
    wish: str,
    table: Table,
    columns: Sequence[WantedColumn],
    device_type: str,
    *,
    has_cache: bool = False,
) -> ReaderChoice:
    """Choose the reader of a table for a wish from `READERS` and batches on `"cpu"` or `"cuda"`."""
    if wish not in READERS:
        raise SpecError(f"unknown reader {wish!r}", hint=f"Allowed: {', '.join(READERS)}.")
    against: dict[str, Callable[[], str | None]] = {
        "packed": lambda: _why_not_packed(table),
        "cudf": lambda: _why_not_cudf(table, columns, device_type, has_cache),
        "arrow": lambda: None,
    }
    if wish != "auto":
        reason = against[wish]()
        if reason:
            raise SpecError(f"reader {wish!r} cannot serve this table: {reason}", hint=_HINTS[wish])
        return ReaderChoice(wish, "asked for")
    why_not_packed = against["packed"]()
    if why_not_packed is None:
        return ReaderChoice("packed", "all files are in the fast layout")
    # "cudf" has not run on a GPU yet: only who names it gets it.
    return ReaderChoice("arrow", why_not_packed)


def _why_not_packed(table: Table) -> str | None:
    for file in table.compact.files:
        if is_remote(file):
            return "the fast layout is read from local files only"
        try:
            packed = is_packed(pq.read_metadata(file))
        except (OSError, pa.ArrowException):
            packed = False  # the reader of its rows will say what is wrong with it
        if not packed:
            return "the files are ordinary parquet"
    if table.compact.has_constants:
        return "columns come from the names of folders"
    return None


def _why_not_cudf(
    table: Table, columns: Sequence[WantedColumn], device_type: str, has_cache: bool
) -> str | None:
    if device_type != "cuda":
        return "batches stay on the host"
    if any(importlib.util.find_spec(name) is None for name in ("pylibcudf", "rmm")):
        return "cuDF is not installed"
    if has_cache:
        return "the cache keeps what Arrow decodes"
    if any("." in column.name for column in columns):
        return "cuDF takes a name with a dot for a field of a struct"
    if table.compact.has_constants:
        return "columns come from the names of folders"
    files = table.compact.files
    with ThreadPoolExecutor(_READERS_OF_FOOTERS) as pool:
        reasons = pool.map(partial(_why_not_cudf_file, columns=columns), files)
        return next((reason for reason in reasons if reason), None)


def _why_not_cudf_file(file: str, columns: Sequence[WantedColumn]) -> str | None:
    if is_remote(file):
        return "remote files are read by Arrow"
    try:
        kinds = {field.name: field.type for field in pq.read_schema(file)}
    except (OSError, pa.ArrowException) as error:
        return f"{file} cannot be read: {first_line(error)}"
    for column in columns:
        kind = kinds.get(column.name)
        if kind is not None and _item_type(kind) not in _CUDF_TYPES:  # a missing one is reported
            return f"column {column.name!r} holds {kind}, which is not known to be the same by cuDF"
    return None


def _item_type(kind: pa.DataType) -> pa.DataType:
    """The type of a list's items, or of single values."""
    types = pa.types
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return kind.value_type if is_list else kind


def shared_reader(
    name: str,
    dataset: Dataset,
    cache: CacheOptions | None,
    retry_s: float,
    options: LoaderOptions,
) -> SharedReader:
    """The reader of that name, with a cache in front of it if there is one."""
    make = partial(_reader, name, dataset, cache, options)
    return SharedReader(lambda: RetryingReader(make(), retry_s))


def _reader(
    name: str, dataset: Dataset, cache: CacheOptions | None, options: LoaderOptions
) -> Reader:
    if name == "packed":
        return PackedReader(dataset.columns)
    arrow = ArrowReader(
        dataset.columns,
        open_groups=open_groups(dataset, options),
        threads=options.decode_threads,
        fetch=options.fetch,
    )
    if cache is None:
        return SameFilesReader(arrow)
    columns, directory = dataset.columns, cache.directory
    return SameFilesReader(CachingReader(arrow, columns, directory, cache.max_bytes))


def new_backend(
    name: str,
    reader: SharedReader,
    dataset: Dataset,
    pool: BlockPool,
    stats: StatsRecorder,
    *,
    device: torch.device | None,
    streams: CudaStreams | None,
    gpu_memory_fraction: float,
    retry_s: float,
    list_limits: Mapping[str, int],
    footers: dict[str, CudfFooter] | None = None,
    most_open_groups: int = 1,
    narrow: NarrowLayout | None = None,
) -> Backend:
    """The backend that loads a dataset's row groups; that of `cudf` has its own reader."""
    if name == "cudf":
        assert device is not None
        assert streams is not None
        return GpuBackend(
            dataset.columns,
            device,
            streams,
            stats,
            gpu_memory_fraction,
            retry_s,
            footers,
            most_open_groups,
            list_limits,
        )
    return CpuBackend(dataset.columns, reader.lease(), pool, stats, list_limits, narrow)
