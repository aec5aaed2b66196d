"""Batches with their routes, which a thread makes while earlier batches train.

A route depends on ids alone, so the ranks can exchange which rows they need before it is time
to fetch them. On a GPU, making a route makes the host wait for the device now and then: here
that waits in the thread, on a stream of its own, and the training thread never does.

Batches whose rows the ranks deal anew, so that each rank has lists of as many items.

Which rows a global step has is decided before anything is read, and so is which rank reads which.
How long a row's lists are is known once it was read. So ranks read as ever, tell each other the
lengths of their rows' lists, and send each row to the rank that trains it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import accumulate, count, pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, distributed as dist

from distrain.batch import Batch, Ragged
from distrain.embeddings import Peers
from distrain.loader.delivery import (
    Channel,
    CudaStreams,
    End,
    Failure,
    Ready,
    in_own_thread,
    thread_set_up,
)
from distrain.loader.filling import BatchLayout, ranges
from distrain.models import ClickModel
from distrain.spec import JobSpec
from distrain.train.step import (
    Batches,
    GraphedStep,
    MakeRoute,
    Routed,
    RouteMaker,
    StreamForRoutes,
    TrainStep,
    route_batch,
    routes_of,
)
from distrain.train.timing import PEERS, READER, PhaseClock, waiting


def even_owners(work: NDArray[np.int64], num_ranks: int) -> NDArray[np.int64]:
    """The rank of each row, so that ranks have as many rows, and as much work of each kind.

    The rows with the most work are dealt first, one to each rank, the heaviest of them to the rank
    with the least so far. Numbers of rows differ by one at most.

    Args:
        work: Of each row, by kind: `[rows, kinds]`. Kinds count alike, by their sums.

    >>> even_owners(np.array([[9], [1], [4], [4], [2], [6]]), 2).tolist()
    [0, 0, 0, 1, 1, 1]
    """
    shares = (work / np.maximum(work.sum(axis=0), 1)).sum(axis=1)
    order = np.argsort(-shares, kind="stable")
    owners = np.empty(len(work), np.int64)
    owners[order] = np.arange(len(order)) % num_ranks
    # Where the rows of a round are alike, it does not matter which goes where.
    firsts, lasts = order[::num_ranks], order[num_ranks - 1 :: num_ranks]
    is_even = shares[firsts[: len(lasts)]] == shares[lasts]
    rounds = [*np.flatnonzero(~is_even).tolist(), *range(len(lasts), len(firsts))]
    load = np.zeros(num_ranks)
    for number in rounds:
        rows = order[number * num_ranks : (number + 1) * num_ranks]
        ranks = np.argsort(load, kind="stable")[: len(rows)]
        owners[rows] = ranks
        load[ranks] += shares[rows]
    return owners


@dataclass(frozen=True)
class BalancedBatches:
    """Another rank's rows in place of some of a rank's own; `next` is a collective operation.

    The global batch stays the same; its rows are dealt by the lengths of their lists alone.

    Args:
        limits: The most items of a list that a model reads, by column; others are read whole.
        compared_lists: Of each of the model's events a list, whose items are compared with each
            other.
    """

    batches: Batches
    peers: Peers
    limits: Mapping[str, int]
    compared_lists: Sequence[str]

    @classmethod
    def of(cls, batches: Batches, peers: Peers, model: ClickModel) -> BalancedBatches:
        events = [([*one.lists.values()], one) for one in model.inputs.shape.events]
        limits = {
            column.name: one.max_length
            for lists, one in events
            for column in (*lists, *one.numbers)
        }
        return cls(batches, peers, limits, [lists[0].name for lists, _ in events])

    def __next__(self) -> Batch:
        batch = next(self.batches)
        names = sorted(batch.lists)
        lengths = torch.stack([batch.lists[name].lengths for name in names], dim=1)
        # Whoever calls says that it waits for the reader, which may be another rank's.
        with waiting(PEERS):
            counts = self.peers.gather_counts(torch.tensor([len(lengths)], device=lengths.device))
            of_ranks = self.peers.gather_rows(lengths, counts.flatten().tolist())
            every = torch.cat(of_ranks).cpu().numpy().astype(np.int64)
            owners = even_owners(self._work(every, names), self.peers.num_ranks)
            ends = [*accumulate(counts.flatten().tolist(), initial=0)]
            return self._exchanged(batch, names, every, owners, ends)

    def close(self) -> None:
        self.batches.close()

    def _work(self, lengths: NDArray[np.int64], names: Sequence[str]) -> NDArray[np.int64]:
        """The items of each row's lists, and their squares where a model compares them."""
        most = [self.limits.get(name, np.iinfo(np.int64).max) for name in names]
        read = np.minimum(lengths, most)
        compared = read[:, [names.index(name) for name in self.compared_lists]]
        return np.stack([read.sum(axis=1), (compared**2).sum(axis=1)], axis=1)

    def _exchanged(
        self,
        batch: Batch,
        names: Sequence[str],
        lengths: NDArray[np.int64],
        owners: NDArray[np.int64],
        ends: Sequence[int],
    ) -> Batch:
        """The rows that are dealt to this rank, in the order of the ranks that read them."""
        rank, ranks = self.peers.rank, self.peers.num_ranks
        own = slice(ends[rank], ends[rank + 1])
        order = np.argsort(owners[own], kind="stable")
        is_mine = owners == rank
        here = torch.from_numpy(order).to(batch.categorical.device)

        def counted(per_row: NDArray[np.int64]) -> tuple[list[int], list[int]]:
            """What goes to each rank, and what comes from each."""
            send = np.bincount(owners[own], per_row[own], ranks).astype(np.int64)
            mine = np.where(is_mine, per_row, 0)
            return send.tolist(), [int(mine[low:high].sum()) for low, high in pairwise(ends)]

        layout, block = _block_of(batch)
        rows = self.peers.exchange_rows(block[here], *counted(np.ones_like(owners)))
        lists = {}
        for place, name in enumerate(names):
            column, own_lengths = batch.lists[name], lengths[own, place][order]
            starts = column.offsets[:-1].long()[here]
            taken = torch.from_numpy(own_lengths).to(starts.device)
            values = column.values[ranges(starts, taken, int(own_lengths.sum()))]
            received = self.peers.exchange_rows(values, *counted(lengths[:, place]))
            offsets = np.zeros(int(is_mine.sum()) + 1, np.int32)
            np.cumsum(lengths[is_mine, place], out=offsets[1:])
            lists[name] = Ragged(received, torch.from_numpy(offsets).to(received.device))
        return layout.batch(rows.t().contiguous(), lists)


def _block_of(batch: Batch) -> tuple[BatchLayout, Tensor]:
    """The flat columns side by side, as a loader lays them out: `[rows, columns]`, int32."""
    assert batch.labels is not None
    parts = [batch.continuous, batch.labels]
    parts += [] if batch.weight is None else [batch.weight[:, None]]
    parts += [] if batch.task_weights is None else [batch.task_weights]
    layout = BatchLayout(
        batch.categorical_names,
        batch.continuous_names,
        batch.label_names,
        batch.weight is not None,
        batch.task_weight_names,
    )
    bits = [part.contiguous().view(torch.int32) for part in parts]
    return layout, torch.cat([batch.categorical, *bits], dim=1)


LONGEST_JOIN_S = 1.0
"""A thread that waits for a peer in a collective operation cannot be called back."""


@dataclass(frozen=True)
class RoutesInTurn:
    """Routes that are made when their batches are asked for, or by the step itself."""

    batches: Batches
    make_route: MakeRoute | None
    device: torch.device

    def take(self, clock: PhaseClock) -> Routed:
        with clock.phase("data_wait"), waiting(READER):
            batch = next(self.batches)
        with clock.phase("copy"):
            batch = batch.to(self.device)
        if self.make_route is None:
            return Routed(batch, None, 0.0)
        with clock.phase("exchange"):
            return route_batch(self.make_route, batch)

    def __enter__(self) -> RoutesInTurn:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.batches.close()


class RoutesAhead:
    """Routes that a thread makes, in the order of the batches, while the caller trains.

    The ranks' threads exchange ids through `route_peers` of the tables: nobody else may use their
    process group. Use it in a `with` statement, or close it.

    Args:
        batches: Taken by the thread alone.
        streams: The device's; `None` for those of `device`, none for the CPU.
        make_route: `None`: the routes of the model's tables.
    """

    def __init__(
        self,
        batches: Batches,
        model: ClickModel,
        device: torch.device,
        ahead: int,
        streams: CudaStreams | None = None,
        make_route: MakeRoute | None = None,
    ):
        if streams is None and device.type == "cuda":
            streams = StreamForRoutes(device)
        self._error: BaseException | None = None
        self._channel = Channel(ahead)
        maker = RouteMaker(batches, make_route or routes_of(model), device, streams)
        self._hand_over = maker.hand_over
        # The thread does not know this object, which can so be collected. It is a daemon since
        # nothing ends a wait for a peer that is gone, short of the end of the process.
        thread = threading.Thread(
            target=_make_all, args=(maker, self._channel), name="routes", daemon=True
        )
        thread.start()
        assert thread.ident is not None
        self._thread_ident = thread.ident
        join_s = LONGEST_JOIN_S if model.embeddings.route_peers.num_ranks > 1 else None
        self._stop = weakref.finalize(self, _stop, self._channel, batches, thread, join_s)

    def take(self, clock: PhaseClock) -> Routed:
        """The next batch and its route, for use on the calling thread's current stream."""
        with clock.phase("data_wait"), waiting(self._thread_ident):
            if self._error is not None:
                raise self._error
            if not self._stop.alive:
                raise StopIteration
            item = self._channel.get()
            if isinstance(item, Ready):
                routed: Routed = self._hand_over(item.batch)
                return routed
            self.close()
            if isinstance(item, End):
                raise StopIteration
            self._error = item.error
            raise item.error

    def __enter__(self) -> RoutesAhead:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the batches and the thread; may be called again.

        A thread that waits for a peer is left behind after a moment: it ends with an error once the
        peer's process has ended, or with this process.
        """
        self._stop()


class KeyedBatches:
    """Batches with `Batch.key`: a number of the seed and the step, the same on all ranks."""

    def __init__(self, batches: Batches, seed: int, first_step: int):
        self._batches = batches
        self._keys = count((seed << 32) + first_step)
        self.close = batches.close

    def __next__(self) -> Batch:
        return replace(next(self._batches), key=next(self._keys))


def routed_batches(
    spec: JobSpec,
    batches: Batches,
    step: TrainStep | GraphedStep,
    device: torch.device,
    first_step: int = 0,
) -> RoutesInTurn | RoutesAhead:
    """A job's batches with their routes; a collective operation where ranks share the tables.

    Where routes are made ahead, `route_peers` of the tables get a process group of their own:
    collective operations of two threads in one group would be taken for each other. On GPUs, too,
    it is one of gloo, for which ids are copied: the kernels of two NCCL communicators that two
    threads issue have no common order on the ranks, and may wait for each other for ever.
    """
    model = step.model
    make_route = step.ask if isinstance(step, GraphedStep) else routes_of(model)
    if isinstance(step, GraphedStep) and not step.asks:
        return RoutesInTurn(batches, None, device)
    peers = model.embeddings.peers
    ahead = spec.train.route_ahead
    if ahead and peers.num_ranks > 1:
        timeout = timedelta(seconds=spec.deadlines.collective_s)
        group = dist.new_group(backend="gloo", timeout=timeout)
        peers = replace(peers, group=group, on_host=True)
        model.embeddings.route_peers = peers
    if spec.train.balance_lengths and peers.num_ranks > 1:
        batches = BalancedBatches.of(batches, peers, model)
    if model.inputs.draws is not None:
        batches = KeyedBatches(batches, spec.train.seed, first_step)
    if not ahead:
        return RoutesInTurn(batches, make_route, device)
    return RoutesAhead(batches, model, device, ahead, make_route=make_route)


def _make_all(maker: RouteMaker, channel: Channel) -> None:
    try:
        thread_set_up(maker.device, pinned=False)()
        with torch.no_grad(), maker.beside():
            while channel.wait_for_room():
                # No name is given to what is made: it would live on while the thread waits.
                channel.put(Ready(maker.make_next()))
    except StopIteration:
        channel.put(End())
    except BaseException as error:
        channel.put(Failure(error))


def _stop(
    channel: Channel, batches: Batches, thread: threading.Thread, join_s: float | None
) -> None:
    channel.close()
    batches.close()
    # A collection may end up here in a thread that this one waits for, or in this one itself.
    if thread is not threading.current_thread() and not in_own_thread():
        thread.join(join_s)
