"""From a reader's name to what loads row groups; the one place that knows all readers."""

from __future__ import annotations

from functools import partial

from distrain.loader.arrow import ArrowReader
from distrain.loader.blocks import BlockPool
from distrain.loader.dataset import Dataset
from distrain.loader.host import HostBackend
from distrain.loader.options import CacheOptions
from distrain.loader.packed import CachingReader, PackedReader
from distrain.loader.producer import Backend
from distrain.loader.shared_reader import SharedReader
from distrain.loader.stats import StatsRecorder


def shared_reader(name: str, dataset: Dataset, cache: CacheOptions | None) -> SharedReader:
    """The reader of that name, with a cache in front of it if there is one."""
    if name == "packed":
        return SharedReader(partial(PackedReader, dataset.columns))
    arrow = partial(ArrowReader, dataset.columns)
    if cache is None:
        return SharedReader(arrow)
    return SharedReader(
        lambda: CachingReader(arrow(), dataset.columns, cache.directory, cache.max_bytes)
    )


def new_backend(
    reader: SharedReader, dataset: Dataset, pool: BlockPool, stats: StatsRecorder
) -> Backend:
    """What loads a dataset's row groups into batches."""
    return HostBackend(dataset.columns, reader.lease(), pool, stats)
