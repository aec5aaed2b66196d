"""Which reader serves a table and why, and the reader and backend of that name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import NamedTuple, cast

import torch

from distrain.errors import SpecError
from distrain.jobs.spec.data import RAW_ROWS, READERS, ReaderFacts, ReaderKind
from distrain.loader.cpu_backend import CpuBackend
from distrain.loader.cudf_reader import CudfFooter
from distrain.loader.dataset import Dataset
from distrain.loader.delivery.cuda_streams import CudaStreams
from distrain.loader.delivery.stats import StatsRecorder
from distrain.loader.delivery.work import Backend
from distrain.loader.filling.batch_memory import BlockPool, NarrowLayout
from distrain.loader.filling.schedule import open_groups
from distrain.loader.gpu_backend import GpuBackend
from distrain.loader.options import CacheOptions, LoaderOptions
from distrain.loader.packed.cache import CachingReader
from distrain.loader.partition.table import Table
from distrain.loader.partition.wanted_columns import WantedColumn
from distrain.loader.reading.reader import (
    Reader,
    RetryingReader,
    SameFilesReader,
    SharedReader,
    TableReader,
)


class ReaderChoice(NamedTuple):
    name: str
    reason: str

    @property
    def facts(self) -> ReaderFacts:
        return READERS.get(cast(ReaderKind, self.name), RAW_ROWS)


def choose_reader(
    wish: str,
    table: Table,
    columns: Sequence[WantedColumn],
    device_type: str,
    *,
    has_cache: bool = False,
    workflow: str | None = None,
) -> ReaderChoice:
    """Choose the reader of a table for batches on `"cpu"` or `"cuda"`; a wish may be `"auto"`.

    Raw rows, which have a `workflow`, are read with Arrow.
    """
    allowed = ("auto", *sorted(READERS))
    if wish not in allowed:
        raise SpecError(f"unknown reader {wish!r}", hint=f"Allowed: {', '.join(allowed)}.")
    if workflow is not None:
        if wish not in ("auto", "arrow") or has_cache:
            raise SpecError(
                "rows that a workflow prepares are read with Arrow, and not kept in a cache",
                where={"workflow": workflow, "reader": wish},
                hint="Leave reader and cache out, or prepare the rows with `distrain prep`.",
            )
        return ReaderChoice("raw", "a workflow prepares the rows as they are read")
    reasons: list[str] = []
    for name, facts in READERS.items():
        if wish != name and not (wish == "auto" and facts.by_auto):
            continue
        reason = _class_of(facts).why_not(table, columns, device_type, has_cache)
        if reason is None:
            since = facts.chosen or "; ".join(reasons)
            return ReaderChoice(name, since if wish == "auto" else "asked for")
        if wish == name:
            raise SpecError(f"reader {wish!r} cannot serve this table: {reason}", hint=facts.hint)
        reasons.append(reason)
    raise SpecError(f"no reader serves this table: {'; '.join(reasons)}")


def _class_of(facts: ReaderFacts) -> type[TableReader]:
    module, _, name = facts.code.partition(":")
    found: type[TableReader] = getattr(import_module(module), name)
    return found


def shared_reader(
    facts: ReaderFacts,
    dataset: Dataset,
    cache: CacheOptions | None,
    retry_s: float,
    options: LoaderOptions,
) -> SharedReader:
    def new_reader() -> Reader:
        columns = dataset.columns
        reader = _class_of(facts).of(columns, options, open_groups(dataset, options))
        if cache is not None and facts.is_cached:
            reader = CachingReader(reader, columns, cache.directory, cache.max_bytes)
        return RetryingReader(reader if facts.checks_files else SameFilesReader(reader), retry_s)

    return SharedReader(new_reader)


def new_backend(
    facts: ReaderFacts,
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
    """The backend that loads a dataset's row groups; one on a GPU has a reader of its own."""
    if facts.on_gpu:
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
