"""From a reader's name to what loads row groups; the one place that knows all readers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch

from distrain.loader.arrow import ArrowReader
from distrain.loader.blocks import BlockPool
from distrain.loader.cudf import CudfBackend
from distrain.loader.dataset import Dataset
from distrain.loader.device import CudaStreams
from distrain.loader.host import HostBackend
from distrain.loader.options import CacheOptions
from distrain.loader.packed import CachingReader, PackedReader
from distrain.loader.packed.reader import check_flat
from distrain.loader.patient import PatientReader
from distrain.loader.producer import Backend
from distrain.loader.reader import Reader
from distrain.loader.same_files import SameFilesReader
from distrain.loader.shared_reader import SharedReader
from distrain.loader.stats import StatsRecorder


def shared_reader(
    name: str, dataset: Dataset, cache: CacheOptions | None, retry_s: float = 0.0
) -> SharedReader:
    """The reader of that name, with a cache in front of it if there is one.

    Args:
        name: `"arrow"`, `"packed"` or `"cudf"`, whose backend never asks for this reader.
        dataset: What it reads.
        cache: Keeps decoded row groups.
        retry_s: How long it tries again where the storage does not answer.

    Raises:
        SchemaError: List columns are to be cached.
    """
    if cache is not None:
        check_flat(dataset.columns, "caches")  # now, and not in a thread once rows are asked for
    make = partial(_reader, name, dataset, cache)
    return SharedReader(lambda: PatientReader(make(), retry_s))


def _reader(name: str, dataset: Dataset, cache: CacheOptions | None) -> Reader:
    if name == "packed":
        return PackedReader(dataset.columns)
    arrow = ArrowReader(dataset.columns)
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
) -> Backend:
    """What loads a dataset's row groups into batches; `cudf` has a reader of its own."""
    if name == "cudf":
        assert device is not None
        assert streams is not None
        return CudfBackend(dataset.columns, device, streams, stats, gpu_memory_fraction, retry_s)
    return HostBackend(dataset.columns, reader.lease(), pool, stats, list_limits)
