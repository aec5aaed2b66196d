"""`Loader`: yields a table's batches, epoch by epoch."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from distrain.errors import SpecError
from distrain.loader.backends import ReaderChoice, choose_reader, new_backend, new_source
from distrain.loader.bucketing.first_pass import Buckets, FirstPass, use_buckets
from distrain.loader.dataset import Dataset
from distrain.loader.delivery.cuda_streams import new_streams, resolve_device, thread_set_up
from distrain.loader.delivery.epoch import EpochIterator, Production
from distrain.loader.delivery.loads_ahead import EpochWork
from distrain.loader.delivery.stats import LoaderStats, StatsRecorder
from distrain.loader.delivery.transfer import Transform, new_delivery
from distrain.loader.filling.batch_memory import BatchLayout, BlockPool
from distrain.loader.filling.list_columns import list_limits
from distrain.loader.filling.schedule import epoch_chunks
from distrain.loader.loader_position import position_in, state_of
from distrain.loader.memory import LoaderMemory, memory_of, open_steps_of, steps_before
from distrain.loader.options import (
    LoaderOptions,
    checked,
    refuse_two_names,
    rows_over_all_ranks,
    whole_number,
)
from distrain.loader.partition.epoch_plan import EpochPlan, EpochSteps

_RUN_TIME_STATE = (
    "_stats",
    "_pool",
    "_source",
    "_running",
    "_streams",
    "_set_up_thread",
)

_OUTSIDE_OF_JOBS = {"decode_threads": 2, "retry_s": 120.0}
"""Defaults of a loader created in Python; all other defaults are the job spec's."""


class Loader(IterableDataset[Any]):
    """One rank's share of a dataset, as batches on a device.

    Each epoch divides the rows of the dataset among `lanes` ordered sequences of equal length, the
    lanes. A global batch has the rows of one step over all ranks, taken from all lanes in turn.
    Each rank serves adjacent lanes.

    The rows of a global batch depend on the dataset, the seed, the epoch, the step, the global
    batch size, the lanes, the shuffle mode and `parts_per_chunk`, never on the ranks or threads.
    Within a batch, rows are ordered by lane. The ranks' batches in rank order form the global
    batch. If the dataset has windows, an epoch consists of the batches of the windows, in order;
    each window behaves like a dataset of its own.

    Each `iter(loader)` yields the batches of the next epoch. Background threads read ahead; they
    end when the loop ends, also early or by an exception, and when the iterator is dropped.

    A loader needs no `torch.utils.data.DataLoader`, but can be passed to one, with
    `batch_size=None` and at most one worker. A worker process that is restarted for each epoch
    begins at the position of the loader in the main process, which the worker does not advance: set
    `persistent_workers`, or call `set_epoch` before each epoch.

        loader = Loader(Dataset("data/train"), batch_size=65536, device="cuda")
        for batch in loader:
            train(batch.categorical, batch.continuous, batch.label)

    Args:
        dataset: The rows to load.
        batch_size: Rows of a step on this rank; a step over all ranks has `num_ranks` times as
            many.
        global_batch_size: Rows of a step over all ranks; give this or `batch_size`.
        shuffle: `"chunk"` permutes the dataset's parts, joins them to chunks, and permutes the rows
            within each chunk. `"full"` permutes all rows; a rank then decodes every row group and
            stores its whole share of an epoch. `"none"` does not shuffle: with one lane, rows are
            in the order of the files. Each of several lanes reads a part of the table, and odd
            lanes may read their row groups from last to first. `True` means `"chunk"`, `False`
            means `"none"`.
        seed: Seed of the order of rows, 0 or more.
        lanes: Number of lanes; a multiple of the number of ranks.
        rank: This rank, from 0.
        num_ranks: Number of ranks.
        device: The device of batches; `None` leaves them on the host. Copies to a GPU overlap with
            the consumer's work, on their own stream.
        drop_last: Whether to drop a last step with fewer rows.
        parts_per_chunk: Number of parts in a chunk, whose rows are shuffled together.
        prefetch_batches: Number of finished batches that may wait for the consumer.
        decode_threads: Number of row groups, or slices of large ones, that are decoded at a time.
        reader: `"auto"`, `"arrow"` or `"cudf"`. The attribute `reader_choice` has the name of the
            chosen reader, and the reason.
        cache: A folder on a local disk for decoded row groups, also filled by `distrain pack`.
        cache_size: The maximum size of the folder, in bytes or like `"50GB"`.
        transforms: Functions applied to each batch, in order, in the loader's thread, before the
            batch is copied to the device.
        pin_memory: Whether batches that stay on the host use page-locked memory; ignored without a
            GPU.
        gpu_memory_fraction: Share of a GPU's memory that the reader `cudf` may use to decode;
            batches are not included.
        max_list_length: Maximum list length by column; the first items are kept.
        retry_s: How long to retry a row group, with growing pauses, while its storage does not
            answer (timeouts, resets, overload), before the epoch fails; 0 tries once.
        fetch: How ranges of remote files are requested: how many at a time, and how far ahead.

    Other keyword arguments are fields of `LoaderOptions`, most of which are also fields of the
    section `data` of a job spec.

    Raises:
        SpecError: A number is out of range, `max_list_length` names a column without lists, the
            device or the cache cannot be used, the ranks do not divide the lanes,
            the reader cannot serve the dataset, or there is no full batch and `drop_last` is set.
    """

    def __init__(
        self,
        dataset: Dataset,
        *,
        batch_size: int | None = None,
        global_batch_size: int | None = None,
        shuffle: str | bool = "chunk",
        device: torch.device | str | None = None,
        cache: str | Path | None = None,
        cache_size: int | str = "100GB",
        max_list_length: Mapping[str, int] | None = None,
        transforms: Sequence[Transform] = (),
        **options: Any,
    ):
        refuse_two_names("cache", cache, "cache_dir", options)
        mode = ("chunk" if shuffle else "none") if isinstance(shuffle, bool) else shuffle
        of_all = rows_over_all_ranks(batch_size, global_batch_size, options.get("num_ranks", 1))
        named = {
            "global_batch_size": of_all,
            "shuffle": mode,
            "cache_dir": cache,
            "cache_size": str(cache_size),
            "max_list_length": max_list_length or {},
        }
        self._set(
            dataset, checked(LoaderOptions, _OUTSIDE_OF_JOBS | named | options), device, transforms
        )

    @classmethod
    def of(
        cls,
        dataset: Dataset,
        options: LoaderOptions,
        device: torch.device | str | None = None,
        transforms: Sequence[Transform] = (),
    ) -> Loader:
        """Return a loader with validated options; raises the errors of `Loader`."""
        loader = cls.__new__(cls)
        loader._set(dataset, options, device, transforms)
        return loader

    def _set(
        self,
        dataset: Dataset,
        options: LoaderOptions,
        device: torch.device | str | None,
        transforms: Sequence[Transform],
    ) -> None:
        self.dataset = dataset
        self.options = options
        if options.pin_memory and not torch.cuda.is_available():
            self.options = options.model_copy(update={"pin_memory": False})
        lanes, step_rows, drop_last = options.lanes, options.global_batch_size, options.drop_last
        plans = [EpochPlan(len(one), lanes, step_rows, drop_last) for one in dataset.windows]
        plans[0].lanes_of_rank(options.rank, options.num_ranks)  # raises if they do not divide
        self.steps = EpochSteps(tuple(plans))
        if not self.steps.num_steps:
            raise SpecError(
                f"{len(dataset)} rows do not fill one global batch of {step_rows}",
                hint="Choose a smaller global_batch_size, or keep the last batch (drop_last).",
            )
        self.device = resolve_device(device)
        options.check_cache()
        self.reader_choice: ReaderChoice = choose_reader(
            options.reader,
            dataset.table,
            dataset.columns,
            self.device.type if self.device else "cpu",
            has_cache=options.cache_dir is not None,
        )
        self._list_limits = list_limits(dataset.columns, options.max_list_length)
        self._transforms = tuple(transforms)
        self._begin = (0, 0)  # epoch and step of the next `iter`
        self._position = (0, 0)  # epoch and step after the last delivered batch
        self._set_up_run_time_state()

    def _set_up_run_time_state(self) -> None:
        self._stats = StatsRecorder()
        self._streams = new_streams(self.device)
        pinned = self.options.pin_memory or self._streams is not None
        self._pool = BlockPool(
            BatchLayout.of(self.dataset.columns).num_columns,
            pinned=pinned,
            most_idle=self.memory.batches,
        )
        self._set_up_thread = thread_set_up(self.device, pinned=pinned)
        kind = self.reader_choice.kind
        self._source = new_source(kind, self.dataset, self.options, self._streams)
        self._running: weakref.WeakSet[EpochIterator] = weakref.WeakSet()

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in _RUN_TIME_STATE}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._set_up_run_time_state()

    @property
    def num_rows(self) -> int:
        """Rows of the table, over all ranks."""
        return len(self.dataset)

    @property
    def num_steps(self) -> int:
        """Steps of an epoch, the same on every rank; equals `len(loader)`."""
        return self.steps.num_steps

    def __len__(self) -> int:
        return self.num_steps

    def rows_in_step(self, step: int) -> int:
        """Return the number of rows of a step over all ranks, by which to divide a summed loss."""
        return self.steps.rows_in_step(step)

    @property
    def stats(self) -> LoaderStats:
        """Counts and times of this loader so far, over all its epochs."""
        return self._stats.read()

    @property
    def memory(self) -> LoaderMemory:
        """An upper bound of this loader's memory on the host."""
        return memory_of(
            self.dataset,
            self.options,
            reader=self.reader_choice.kind,
            pinned=self.options.pin_memory or self._streams is not None,
        )

    def epoch(self, epoch: int, *, start_step: int = 0) -> EpochIterator:
        """Start to prepare an epoch's batches, from `start_step` on; close the result after use.

        Rows of earlier steps are not read.

        Raises:
            ValueError: `epoch` is negative, or `start_step` not in `0 .. num_steps`.
        """
        if epoch < 0:
            raise ValueError(f"epoch is {epoch}, not 0 or more")
        if not 0 <= start_step <= self.num_steps:
            raise ValueError(f"start_step {start_step} is not in 0..{self.num_steps}")
        first = epoch * self.num_steps
        return self.in_turn(range(first + start_step, first + self.num_steps))

    def in_turn(self, steps: range) -> EpochIterator:
        """Start to prepare the batches of `steps`; close the result after use.

        Steps are counted over all epochs: step `s` of epoch `e` is `e * num_steps + s`. Rows of
        other steps are not read. `EpochIterator` describes how consecutive epochs overlap.
        """
        production = Production(
            works=self._works(steps),
            options=self.options,
            delivery=new_delivery(self._streams, self._transforms),
            set_up_thread=self._set_up_thread,
            stats=self._stats,
        )
        iterator = EpochIterator(production)
        self._running.add(iterator)
        return iterator

    def _works(self, steps: range) -> Iterator[EpochWork]:
        """Yield the `EpochWork` of each window that has some of the steps, in order.

        A window's order of rows is computed only when its work is requested.
        """
        step = steps.start
        while step < steps.stop:
            epoch, of_epoch = divmod(step, self.num_steps)
            window = self.steps.window_of(of_epoch)
            first, end = self.steps.span(window)
            count = min(end - of_epoch, steps.stop - step)
            yield self._work(epoch, window, range(of_epoch - first, of_epoch - first + count))
            step += count

    def _work(self, epoch: int, window: int, steps: range) -> EpochWork:
        dataset, options = self.dataset.windows[window], self.options
        before = steps_before(self.steps.plans, window, options)
        return EpochWork(
            plan=self.steps.plans[window],
            chunks=epoch_chunks(dataset, options, epoch),
            row_groups=dataset.slices,
            expect=self._source.expect if dataset.any_remote else None,
            options=options,
            epoch=epoch,
            steps=steps,
            open_steps=open_steps_of(dataset, options, before, self.reader_choice.kind),
            new_backend=partial(
                new_backend,
                self.reader_choice.kind,
                self._source,
                self.dataset,
                self._pool,
                self._stats,
                streams=self._streams,
                list_limits=self._list_limits,
            ),
            first_pass=self._first_pass(epoch, len(dataset)),
        )

    def _first_pass(self, epoch: int, num_rows: int) -> FirstPass | None:
        if not use_buckets(self.options, self.dataset.columns, self.reader_choice.kind):
            return None
        buckets = Buckets.of(num_rows, self.options.seed, epoch)
        num_columns = BatchLayout.of(self.dataset.columns).num_columns
        return FirstPass(buckets, num_columns)

    def __iter__(self) -> Iterator[Any]:
        _refuse_many_workers()
        self._position = epoch, step = self._begin
        self._begin = (epoch + 1, 0)
        return self._batches(epoch, step)

    def _batches(self, epoch: int, step: int) -> Iterator[Any]:
        with self.epoch(epoch, start_step=step) as batches:
            for number, batch in enumerate(batches, step + 1):
                self._position = (epoch, number)
                yield batch

    def epochs(self, count: int) -> Iterator[Any]:
        """Yield the batches of the next `count` epochs, each in its own order."""
        for _ in range(count):
            yield from self

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next `iter(loader)`, which begins at the epoch's first step.

        Raises:
            SpecError: `epoch` is negative.
        """
        epoch = whole_number("epoch", epoch, 0)
        self._begin = self._position = (epoch, 0)

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last delivered batch, for `load_state_dict`.

        A loader with another number of ranks can continue from it.
        """
        return state_of(self.dataset, self.options, self._position, self.num_steps)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next `iter(loader)` continue from the position that `state_dict` returned.

        Raises:
            SpecError: The state is of other data, of a loader with another order of rows, or
                invalid.
        """
        self._begin = position_in(state, self.state_dict(), self.num_steps)
        self._position = self._begin

    def map(self, transform: Transform) -> Loader:
        """Return a loader of the same batches, with `transform` applied after other transforms.

        It begins at the position of this loader.
        """
        mapped = self.__class__.__new__(self.__class__)
        transforms = (*self._transforms, transform)
        mapped.__setstate__(self.__getstate__() | {"_transforms": transforms})
        return mapped

    def sample_batch(self) -> Any:
        """Return the first batch of the first epoch; the position does not change."""
        with self.epoch(0) as batches:
            return next(batches)

    def close(self) -> None:
        """End all running epochs, and free memory; may be called several times."""
        for iterator in list(self._running):
            iterator.close()
        self._pool.clear()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _refuse_many_workers() -> None:
    worker = get_worker_info()
    if worker is not None and worker.num_workers > 1:
        raise SpecError(
            f"a DataLoader with {worker.num_workers} workers would repeat every batch",
            hint="Use num_workers=0 or 1: the loader has threads of its own (decode_threads).",
        )
