"""The background work of an epoch: load chunks ahead, cut batches from the lanes' rows.

One thread (`produce`) makes the batches in order. Chunks are decoded by a pool, whose threads run
ahead by as many loads as there are threads; since the order of loads is fixed beforehand, the
stream is the same for any number of them.
"""

import threading
from bisect import insort
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from operator import itemgetter

from distrain.batch import Batch
from distrain.loader.arrow import ArrowReader
from distrain.loader.batches import BatchLayout, use_cuda_device
from distrain.loader.channel import Channel, End, Failure
from distrain.loader.decode import Block, decode_pieces
from distrain.loader.schedule import Load, plan_loads
from distrain.partition import Chunk, EpochPlan, RowGroup, row_permutation
from distrain.partition.columns import Wanted

_this_thread = threading.local()


@dataclass(frozen=True)
class EpochWork:
    """All that a rank's stream of one epoch depends on.

    Attributes:
        plan: Deals the epoch's rows to lanes and steps.
        chunks: The epoch's order.
        row_groups: What the chunks' numbers mean.
        lanes: The rank's lanes.
        columns: The columns of a block, in order.
        layout: How a batch is laid out.
        seed: Of the permutation of each chunk's rows; `None` leaves them as they are.
        epoch: Which epoch.
        start_step: The first step to make.
        decode_threads: How many chunks are decoded at a time.
        cuda_device: The device that pinned memory is for.
    """

    plan: EpochPlan
    chunks: Sequence[Chunk]
    row_groups: Sequence[RowGroup]
    lanes: range
    columns: tuple[Wanted, ...]
    layout: BatchLayout
    seed: int | None
    epoch: int
    start_step: int
    decode_threads: int
    cuda_device: int | None = None


def produce(work: EpochWork, channel: Channel) -> None:
    """Put the batches of an epoch into a channel, then the error that ended them, or the end."""
    mark_own_thread()
    try:
        use_cuda_device(work.cuda_device)
        reader = ArrowReader(work.columns)
        pool = ThreadPoolExecutor(work.decode_threads, "decode", initializer=mark_own_thread)
        try:
            _make_batches(work, channel, reader, pool)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            reader.close()
    except BaseException as error:
        channel.put(Failure(error))
    else:
        channel.put(End())


def mark_own_thread() -> None:
    """Note that the calling thread is one of the loader's."""
    _this_thread.is_own = True


def in_own_thread() -> bool:
    """Whether the calling thread is one of a loader's, which must not wait for loader threads."""
    return getattr(_this_thread, "is_own", False)


def _make_batches(
    work: EpochWork, channel: Channel, reader: ArrowReader, pool: ThreadPoolExecutor
) -> None:
    loads = plan_loads(work.plan, work.chunks, work.lanes, work.start_step)
    loaded = _LoadsAhead(work, loads, reader, pool)
    lanes = {lane: _LaneRows() for lane in work.lanes}
    for step in range(work.start_step, work.plan.num_steps):
        if not channel.wait_for_room():
            return
        for chunk, lane, block in loaded.due_at(step):
            lanes[lane].add(chunk, block)
        channel.put(_cut_batch(work, step, lanes))


def _cut_batch(work: EpochWork, step: int, lanes: dict[int, "_LaneRows"]) -> Batch:
    slices = [work.plan.lane_slice(lane, step) for lane in work.lanes]
    counts = [stop - start for start, stop in slices]
    tensor, cells = work.layout.new_block(sum(counts))
    place = 0
    for lane, count in zip(work.lanes, counts, strict=True):
        lanes[lane].take_into(cells[:, place : place + count])
        place += count
    return work.layout.batch(tensor)


class _LoadsAhead:
    """Loads in flight: one per decoding thread, the next to be needed first."""

    def __init__(
        self,
        work: EpochWork,
        loads: Sequence[Load],
        reader: ArrowReader,
        pool: ThreadPoolExecutor,
    ):
        self._work = work
        self._reader = reader
        self._pool = pool
        self._waiting = iter(loads)
        self._in_flight: deque[tuple[Load, Future[list[tuple[int, Block]]]]] = deque()
        for _ in range(work.decode_threads):
            self._submit_next()

    def due_at(self, step: int) -> Iterator[tuple[int, int, Block]]:
        """The new rows without which a step cannot be made: chunk, lane and block."""
        while self._in_flight and self._in_flight[0][0].step <= step:
            load, result = self._in_flight.popleft()
            blocks = result.result()
            self._submit_next()
            for lane, block in blocks:
                yield load.chunk, lane, block

    def _submit_next(self) -> None:
        load = next(self._waiting, None)
        if load is not None:
            self._in_flight.append((load, self._pool.submit(self._run, load)))

    def _run(self, load: Load) -> list[tuple[int, Block]]:
        work, chunk = self._work, self._work.chunks[load.chunk]
        permutation = None
        if work.seed is not None:
            permutation = row_permutation(chunk.num_rows, work.seed, work.epoch, load.chunk)
        groups = [work.row_groups[group] for group in chunk.row_groups]
        return decode_pieces(self._reader, work.columns, groups, permutation, load.pieces)


class _LaneRows:
    """A lane's rows in memory, in order; the first block is used up to `_used`."""

    def __init__(self) -> None:
        self._blocks: list[tuple[int, Block]] = []
        self._used = 0

    def add(self, chunk: int, block: Block) -> None:
        """Put in the lane's rows of a chunk; its last chunk may come before those between."""
        insort(self._blocks, (chunk, block), key=itemgetter(0))

    def take_into(self, cells: Block) -> None:
        """Move the next rows into `[columns, rows]`, as many as it has."""
        filled, wanted = 0, cells.shape[1]
        while filled < wanted:
            _, block = self._blocks[0]
            count = min(wanted - filled, block.shape[1] - self._used)
            cells[:, filled : filled + count] = block[:, self._used : self._used + count]
            filled += count
            self._used += count
            if self._used == block.shape[1]:
                del self._blocks[0]
                self._used = 0
