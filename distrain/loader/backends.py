"""From a reader's name to what loads row groups; the one place that knows all readers."""

from __future__ import annotations

from distrain.loader.arrow import ArrowReader
from distrain.loader.blocks import BlockPool
from distrain.loader.dataset import Dataset
from distrain.loader.host import HostBackend
from distrain.loader.options import CacheOptions
from distrain.loader.packed import PackedReader
from distrain.loader.producer import Backend
from distrain.loader.reader import Reader
from distrain.loader.stats import StatsRecorder


def new_backend(
    reader_name: str,
    dataset: Dataset,
    pool: BlockPool,
    stats: StatsRecorder,
    *,
    cache: CacheOptions | None,
) -> Backend:
    """What loads a dataset's row groups into batches."""
    del cache
    readers: dict[str, type[Reader]] = {"arrow": ArrowReader, "packed": PackedReader}
    reader = readers[reader_name](dataset.columns)  # type: ignore[call-arg]
    return HostBackend(dataset.columns, reader, pool, stats)
