"""Chooses the reader of a table, and creates the source and backend that use the reader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from distrain.errors import SpecError
from distrain.loader.cache.row_group_cache import RowGroupCache
from distrain.loader.cpu_backend import CpuBackend
from distrain.loader.cudf_reader import CudfReader, set_up_pool, why_not_cudf
from distrain.loader.dataset import Dataset
from distrain.loader.delivery.cuda_streams import CudaStreams
from distrain.loader.delivery.stats import StatsRecorder
from distrain.loader.delivery.work import Backend
from distrain.loader.filling.batch_memory import BlockPool
from distrain.loader.filling.schedule import open_groups
from distrain.loader.gpu_backend import GpuBackend
from distrain.loader.options import LoaderOptions, parse_bytes
from distrain.loader.partition.table import Table
from distrain.loader.partition.wanted_columns import WantedColumn
from distrain.loader.reading.arrow import ArrowReader
from distrain.loader.reading.kinds import READERS, ReaderKind
from distrain.loader.reading.reader import Reader
from distrain.loader.reading.source import Source


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
    workflow: str | None = None,
) -> ReaderChoice:
    """Choose the reader of a table for batches on a device of type `"cpu"` or `"cuda"`.

    `requested` is the name of a reader, or `"auto"`. For a `workflow`, the reader of raw rows is
    chosen.

    Raises:
        SpecError: The requested reader cannot serve the table, or rows of a workflow are to be
            cached or read with cuDF.
    """
    if workflow is not None:
        if requested == "cudf" or has_cache:
            raise SpecError(
                "rows that a workflow prepares are read with Arrow and cannot be cached",
                where={"workflow": workflow, "reader": requested},
                hint="Leave reader and cache out, or prepare the rows with `distrain prep`.",
            )
        return ReaderChoice("raw", "a workflow prepares the rows as they are read")
    if requested == "auto":
        return ReaderChoice("arrow", "it reads every table")
    reason = why_not_cudf(table, columns, device_type, has_cache) if requested == "cudf" else None
    if reason is not None:
        raise SpecError(
            f"reader {requested!r} cannot serve this table: {reason}",
            hint="It decodes on the batches' GPU; 'auto' chooses another reader.",
        )
    return ReaderChoice(requested, "asked for")


def new_source(
    choice: ReaderChoice,
    dataset: Dataset,
    options: LoaderOptions,
    *,
    device: torch.device | None = None,
    streams: CudaStreams | None = None,
) -> Source:
    def on_gpu() -> Reader:
        assert device is not None
        assert streams is not None
        set_up_pool(device, options.gpu_memory_fraction)
        return CudfReader(dataset.columns, device, streams.side, open_groups(dataset, options))

    new_reader = on_gpu if choice.kind.on_gpu else partial(new_host_reader, dataset, options)
    cache = None
    if options.cache_dir is not None:
        cache = RowGroupCache(dataset.columns, options.cache_dir, parse_bytes(options.cache_size))
    return Source(dataset.columns, new_reader, options.retry_s, cache)


def new_host_reader(dataset: Dataset, options: LoaderOptions) -> ArrowReader:
    """Return a new reader of a dataset's rows, prepared or raw, into host memory."""
    how: dict[str, Any] = {
        "open_groups": open_groups(dataset, options),
        "threads": options.decode_threads,
        "fetch": options.fetch,
    }
    if dataset.workflow is None:
        return ArrowReader(dataset.columns, **how)
    from distrain.loader.reading.raw_rows import RawReader  # imports `prep`

    return RawReader(dataset.columns, dataset.workflow, **how)


def new_backend(
    kind: ReaderKind,
    source: Source,
    dataset: Dataset,
    pool: BlockPool,
    stats: StatsRecorder,
    *,
    device: torch.device | None,
    streams: CudaStreams | None,
    list_limits: Mapping[str, int],
) -> Backend:
    """Return the backend that loads a dataset's row groups into batches; it leases the source.

    Only a GPU reader needs `device` and `streams`; only a CPU reader uses `pool`.
    """
    lease = source.lease()
    if kind.on_gpu:
        assert device is not None
        assert streams is not None
        return GpuBackend(dataset.columns, lease, device, streams, stats)
    return CpuBackend(dataset.columns, lease, pool, stats, list_limits)
