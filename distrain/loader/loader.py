"""The loader: a table's batches, epoch by epoch."""

from __future__ import annotations

from distrain.errors import SpecError
from distrain.loader.batches import BatchLayout, current_cuda_device
from distrain.loader.epoch import EpochIterator
from distrain.loader.producer import EpochWork
from distrain.partition import SHUFFLES, EpochPlan, Table, chunk_order
from distrain.partition.columns import wanted_columns
from distrain.schema import Schema
from distrain.world import World


class Loader:
    """One rank's share of a table, as batches.

    The rows of a global step depend on the table, the seed, the epoch, the step, the global batch
    size and the lanes (and on `parts_per_chunk`), never on the ranks or threads. Within a batch,
    rows stand lane by lane; the ranks' batches in rank order make up the global batch.

    Memory: a row has 4 bytes per column (`row_bytes`). With S lanes on W ranks, chunks of K rows
    (`parts_per_chunk` row groups), T decoding threads, P prefetched batches and B rows per global
    batch, a rank holds at most

        (2 S/W K + 2 T K + (P + 2) B/W) row_bytes

    and what Arrow needs to decode T chunks. A lane holds the rest of the chunk it is in and its
    part of its last chunk, each half a chunk on average, so half of the first term is typical, and
    never more than the rank's rows. (Where a lane's share of one step is more than two chunks, the
    first term is that share.) A rank decodes each chunk once per epoch.

    Args:
        table: The row groups, as `read_footers` gives them.
        schema: Names the columns.
        global_batch_size: Rows of a step over all ranks.
        world: Which rank this is.
        lanes: How many spans an epoch is cut into; the number of ranks must divide it.
        seed: Of the order of rows, 0 or more.
        shuffle: `"chunk"` permutes row groups, and rows within chunks; `"none"` keeps the order of
            the files within each lane (with one lane, the order of the files).
        parts_per_chunk: Row groups whose rows are shuffled together.
        prefetch_batches: How many finished batches may wait for the consumer.
        drop_last: Whether a last step with fewer rows is left out.
        decode_threads: How many chunks are decoded at a time.
        need_label: Whether to read the target column; if not, batches have no label.
        pin_memory: Whether batches lie in page-locked memory; ignored where there is no GPU.

    Raises:
        SpecError: A number is out of its range, the ranks do not divide the lanes, or the table has
            no full batch and `drop_last` is set.
        SchemaError: The schema has no feature columns, or not exactly one target.
    """

    def __init__(
        self,
        table: Table,
        schema: Schema,
        *,
        global_batch_size: int,
        world: World | None = None,
        lanes: int = 24,
        seed: int = 0,
        shuffle: str = "chunk",
        parts_per_chunk: int = 1,
        prefetch_batches: int = 4,
        drop_last: bool = False,
        decode_threads: int = 1,
        need_label: bool = True,
        pin_memory: bool = False,
    ):
        world = world or World()
        _check_positive(parts_per_chunk=parts_per_chunk, prefetch_batches=prefetch_batches)
        _check_positive(decode_threads=decode_threads)
        if seed < 0:
            raise SpecError(f"seed is {seed}, not 0 or more")
        if shuffle not in SHUFFLES:
            raise SpecError(f"unknown shuffle {shuffle!r}", hint=f"Allowed: {', '.join(SHUFFLES)}.")
        self._plan = EpochPlan(table.num_rows, lanes, global_batch_size, drop_last)
        if not self._plan.num_steps:
            raise SpecError(
                f"{table.num_rows} rows do not fill one global batch of {global_batch_size}",
                hint="Choose a smaller global_batch_size, or keep the last batch (drop_last).",
            )
        self._table = table
        self._lanes = self._plan.lanes_of_rank(world.rank, world.num_ranks)
        self._columns = wanted_columns(schema, need_label=need_label)
        self._layout = BatchLayout.of(self._columns, pin_memory=pin_memory)
        self._seed = seed
        self._shuffle = shuffle
        self._parts_per_chunk = parts_per_chunk
        self._prefetch_batches = prefetch_batches
        self._decode_threads = decode_threads

    @property
    def num_rows(self) -> int:
        """Rows of the table, over all ranks."""
        return self._plan.num_rows

    @property
    def num_steps(self) -> int:
        """Steps of an epoch, the same on every rank."""
        return self._plan.num_steps

    def rows_in_step(self, step: int) -> int:
        """Rows of a step, over all ranks."""
        return self._plan.rows_in_step(step)

    def epoch(self, epoch: int, *, start_step: int = 0) -> EpochIterator:
        """Start to prepare an epoch's batches, from `start_step` on; close the result after use.

        What comes before `start_step` is not read.

        Raises:
            ValueError: `epoch` is negative, or `start_step` not in `0 .. num_steps`.
        """
        if epoch < 0:
            raise ValueError(f"epoch is {epoch}, not 0 or more")
        if not 0 <= start_step <= self.num_steps:
            raise ValueError(f"start_step {start_step} is not in 0..{self.num_steps}")
        rows_per_group = [group.num_rows for group in self._table.row_groups]
        work = EpochWork(
            plan=self._plan,
            chunks=chunk_order(
                rows_per_group, self._seed, epoch, self._shuffle, self._parts_per_chunk
            ),
            row_groups=self._table.row_groups,
            lanes=self._lanes,
            columns=self._columns,
            layout=self._layout,
            seed=None if self._shuffle == "none" else self._seed,
            epoch=epoch,
            start_step=start_step,
            decode_threads=self._decode_threads,
            cuda_device=current_cuda_device(self._layout),
        )
        return EpochIterator(work, self._prefetch_batches)


def _check_positive(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise SpecError(f"{name} is {number}, not 1 or more")
