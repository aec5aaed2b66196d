"""Batches with their routes, which a thread makes while earlier batches train.

A route depends on ids alone, so the ranks can exchange which rows they need before it is time
to fetch them. On a GPU, making a route makes the host wait for the device now and then: here
that waits in the thread, on a stream of its own, and the training thread never does.
"""

from __future__ import annotations

import threading
import weakref
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count

import torch
from torch import distributed as dist

from distrain.jobs.spec.job import JobSpec
from distrain.loader.batch import Batch
from distrain.loader.delivery.channel import Channel, End, Failure, Ready
from distrain.loader.delivery.cuda_streams import CudaStreams, thread_set_up
from distrain.loader.own_threads import in_own_thread
from distrain.models.click import ClickModel
from distrain.train.loop.balanced_batches import BalancedBatches
from distrain.train.step.graphed_step import GraphedStep
from distrain.train.step.routing import (
    Batches,
    MakeRoute,
    Routed,
    RouteMaker,
    StreamForRoutes,
    route_batch,
    routes_of,
)
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import READER, PhaseClock, waiting

LONGEST_JOIN_S = 1.0
"""A thread that waits for a peer in a collective operation cannot be called back."""


@dataclass(frozen=True)
class RoutesInTurn(AbstractContextManager["RoutesInTurn"]):
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

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.batches.close()


class RoutesAhead(AbstractContextManager["RoutesAhead"]):
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
        """Return the next batch and its route, for use on the calling thread's current stream."""
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
            while channel.wait_for_space():
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
