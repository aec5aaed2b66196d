"""Batches with their routes, which a thread makes while earlier batches are trained.

A batch's route is the table rows that it needs, and their owners. It depends on ids alone, so the
ranks can exchange their requests for rows in advance. On a GPU, making a route requires the
host to wait for the device. Here only the thread waits, on a separate stream, and the training
thread does not.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from datetime import timedelta
from itertools import count

import torch
from torch import distributed as dist

from distrain.jobs.spec.job import JobSpec
from distrain.loader.batch import Batch
from distrain.loader.delivery.channel import Channel, End, Failure, Ready
from distrain.loader.delivery.cuda_streams import CudaStreams, thread_set_up
from distrain.loader.own_threads import in_own_thread
from distrain.models.click_model import ClickModel
from distrain.train.step.graphed_step import GraphedStep
from distrain.train.step.routing import (
    Batches,
    MakeRoute,
    RoutedBatch,
    RouteMaker,
    StreamForRoutes,
    route_batch,
    routes_of,
)
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import READER, PhaseClock, waiting

LONGEST_JOIN_S = 1.0
"""Seconds to wait for the thread at the end, since it may wait for a peer that has died."""


class SynchronousRoutes(AbstractContextManager["SynchronousRoutes"]):
    """Batches whose routes are made by the calling thread, in `take`.

    The requests of a `GraphedStep` are sent one batch ahead, so the device has the answers before
    it begins the step of the previous batch. The host reads from the answers whether the capacity
    was sufficient, without waiting until the device is idle.

    Args:
        one_ahead: Whether `take` also makes the route of the following batch.
        exchanges: Whether the time of making a route counts as the phase `exchange`.
    """

    def __init__(
        self,
        batches: Batches,
        make_route: MakeRoute,
        device: torch.device,
        *,
        one_ahead: bool = False,
        exchanges: bool = True,
    ):
        self._batches = batches
        self._make_route = make_route
        self._device = device
        self._one_ahead = one_ahead
        self._exchanges = exchanges
        self._next: RoutedBatch | None = None

    def take(self, clock: PhaseClock) -> RoutedBatch:
        """Return the next batch and its route, for use on the calling thread's current stream.

        A collective operation if ranks share the tables. Raises `StopIteration` at the end.
        """
        routed = self._next or self._routed(clock)
        self._next = None
        if self._one_ahead:
            with suppress(StopIteration):
                self._next = self._routed(clock)
        return routed

    def _routed(self, clock: PhaseClock) -> RoutedBatch:
        with clock.phase("data_wait"), waiting(READER):
            batch = next(self._batches)
        if batch.categorical.device != self._device:
            with clock.phase("copy"):
                batch = batch.to(self._device)
        with clock.phase("exchange") if self._exchanges else nullcontext():
            return route_batch(self._make_route, batch)

    def __exit__(self, *_: object) -> None:
        self.close()

    def finish(self) -> None:
        """Do nothing, since no route is being made; see `PrefetchedRoutes.finish`."""

    def close(self) -> None:
        self._batches.close()


class PrefetchedRoutes(AbstractContextManager["PrefetchedRoutes"]):
    """Batches whose routes a thread makes, in order, while the caller trains.

    The ranks' threads exchange ids through the tables' `route_peers`; no other code may use that
    process group. Use it in a `with` statement, or close it.

    Args:
        batches: The source; only the thread reads it.
        ahead: The maximum number of batches that are ready and not yet taken.
        streams: Streams of the device; `None` uses those of `device`, or none on the CPU.
    """

    def __init__(
        self,
        batches: Batches,
        model: ClickModel,
        device: torch.device,
        ahead: int,
        streams: CudaStreams | None = None,
    ):
        if streams is None and device.type == "cuda":
            streams = StreamForRoutes(device)
        self._error: BaseException | None = None
        self._ahead = ahead
        self._channel = Channel(ahead)
        maker = RouteMaker(batches, routes_of(model), device, streams)
        self._hand_over = maker.hand_over
        # The thread does not refer to this object, which can therefore be collected. It is a
        # daemon, since a wait for a lost peer only ends with the process.
        thread = threading.Thread(
            target=_make_all, args=(maker, self._channel), name="routes", daemon=True
        )
        thread.start()
        assert thread.ident is not None
        self._thread_ident = thread.ident
        join_s = LONGEST_JOIN_S if model.embeddings.route_peers.num_ranks > 1 else None
        self._stop = weakref.finalize(self, _stop, self._channel, batches, thread, join_s)

    def take(self, clock: PhaseClock) -> RoutedBatch:
        """Return the next batch and its route, for use on the calling thread's current stream.

        Raises `StopIteration` at the end, and errors of the thread.
        """
        with clock.phase("data_wait"), waiting(self._thread_ident):
            if self._error is not None:
                raise self._error
            if not self._stop.alive:
                raise StopIteration
            item = self._channel.get()
            if isinstance(item, Ready):
                routed: RoutedBatch = self._hand_over(item.batch)
                return routed
            self.close()
            if isinstance(item, End):
                raise StopIteration
            self._error = item.error
            raise item.error

    def __exit__(self, *_: object) -> None:
        self.close()

    def finish(self) -> None:
        """Wait until the thread has made all its routes; no batch can be taken afterwards.

        If all ranks call it after the same number of steps, their threads have made the same
        routes, and none waits for another in a collective operation.
        """
        with waiting(self._thread_ident):
            for _ in range(self._ahead):
                if not self._stop.alive or not isinstance(self._channel.take_last(), Ready):
                    return

    def close(self) -> None:
        """Close the source and end the thread; may be called again.

        A thread that waits for a peer is abandoned after a moment. It ends with an error once the
        peer's process has ended, or with this process.
        """
        self._stop()


class KeyedBatches:
    """Batches with `Batch.key`, the seed of the random numbers that a step draws for a batch.

    The key depends on the job's seed and the step alone, so it is the same on all ranks.
    """

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
    rank_rows: Callable[[int], tuple[int, ...]],
    first_step: int = 0,
) -> SynchronousRoutes | PrefetchedRoutes:
    """Return a job's batches with their routes; a collective operation if ranks share the tables.

    If a thread makes the routes ahead, `route_peers` of the tables get a separate process group:
    collective operations of two threads in one group would be mixed up. The group uses gloo, also
    on GPUs, where ids are copied to the host: kernels of two NCCL communicators from two threads
    have no common order on the ranks, and may deadlock. For a `GraphedStep`, no thread and no group
    are needed: the training thread requests rows in the order of the steps.

    Args:
        rank_rows: Returns the number of rows of each rank's batch in a step.
        first_step: The step of the first batch, from 0.
    """
    if isinstance(step, GraphedStep):
        make_route, asks = requests_of(step, map(rank_rows, count(first_step))), step.needs_requests
        return SynchronousRoutes(batches, make_route, device, one_ahead=asks, exchanges=asks)
    model = step.model
    peers = model.embeddings.peers
    ahead = spec.train.route_ahead
    if ahead and peers.num_ranks > 1:
        timeout = timedelta(seconds=spec.deadlines.collective_s)
        group = dist.new_group(backend="gloo", timeout=timeout)
        peers = replace(peers, group=group, on_host=True)
        model.embeddings.route_peers = peers
    if model.inputs.draws is not None:
        batches = KeyedBatches(batches, spec.train.seed, first_step)
    if not ahead:
        return SynchronousRoutes(batches, routes_of(model), device)
    return PrefetchedRoutes(batches, model, device, ahead)


def requests_of(step: GraphedStep, rank_rows: Iterator[tuple[int, ...]]) -> MakeRoute:
    """Return a function that requests a batch's table rows (`GraphedStep.request_rows`).

    `rank_rows` yields, for each step, the number of rows of each rank's batch.
    """
    return lambda batch: step.request_rows(batch, next(rank_rows))


def _make_all(maker: RouteMaker, channel: Channel) -> None:
    try:
        thread_set_up(maker.device, pinned=False)()
        with torch.no_grad(), maker.on_side_stream():
            while channel.wait_for_space():
                # Not bound to a name, which would keep it alive while the thread waits.
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
    # The garbage collector may call this function in `thread`, or in a thread that it waits for.
    if thread is not threading.current_thread() and not in_own_thread():
        thread.join(join_s)
