"""Takes batches from the loader, and makes their routes before their step.

A route has the rows of the embedding tables that a batch needs, and the ranks that own these rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from distrain.loader.batch import Batch
from distrain.loader.delivery.cuda_streams import CudaStreams
from distrain.loader.delivery.transfer import map_tensors
from distrain.models.click_model import ClickModel
from distrain.models.embeddings.padded import PaddedRoutes
from distrain.models.embeddings.route import Route
from distrain.train.step.host_copy import HostCopy
from distrain.train.timing.phases import READER, waiting


class Batches(Protocol):
    """A source of batches, such as `EpochIterator`."""

    def __next__(self) -> Batch: ...

    def close(self) -> None: ...


class BatchRequests(NamedTuple):
    """A batch's padded requests to the owners of sharded tables, for `GraphedStep`.

    `wanted` says whether they exceed the capacity.
    """

    rank_rows: tuple[int, ...]  # the number of rows of each rank's batch
    routes: PaddedRoutes
    # for each sharded store: 0 if the requests of all ranks fit the capacity, else the largest
    # number of rows that a rank needs from an owner whose capacity is too small; `None` if no table
    # is sharded
    wanted: HostCopy | None


MakeRoute = Callable[[Batch], Route | BatchRequests]
"""Makes a batch's route; a collective operation if ranks share the tables."""


class RoutedBatch(NamedTuple):
    """A batch that is ready for its step."""

    batch: Batch
    # its table rows and their owners; `None` if the step makes the route
    route: Route | BatchRequests | None
    route_s: float  # seconds to make it, including waits for the other ranks


class PendingBatch(NamedTuple):
    """A routed batch, which is complete once the side stream has reached `event`.

    If `event` is `None`, it is complete. `memory` has the tensors of the batch and its route that
    are on the GPU.
    """

    routed: RoutedBatch
    event: torch.cuda.Event | None
    memory: list[Tensor]


def routes_of(model: ClickModel) -> MakeRoute:
    return lambda batch: model.embeddings.route(*model.table_ids(batch))


def route_batch(make_route: MakeRoute, batch: Batch) -> RoutedBatch:
    """Make a batch's route, and return both; a collective operation if ranks share the tables."""
    began_s = time.perf_counter()
    route = make_route(batch)
    return RoutedBatch(batch, route, time.perf_counter() - began_s)


@dataclass(frozen=True)
class RouteMaker:
    """Takes batches, moves them to the device, and makes their routes, on its side stream."""

    batches: Batches
    make_route: MakeRoute
    device: torch.device
    streams: CudaStreams | None

    def on_side_stream(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.streams is None else self.streams.on_side_stream()

    def make_next(self) -> PendingBatch:
        """Return the next batch and its route; raises `StopIteration` at the end.

        Call it inside `on_side_stream`: the loader makes batches usable on the current stream.
        """
        with waiting(READER):
            batch = next(self.batches)
        routed = route_batch(self.make_route, batch.to(self.device))
        del batch  # the next call may wait for a long time before it has another batch
        if self.streams is None:
            return PendingBatch(routed, None, [])
        memory = [tensor for tensor in _tensors_of(routed) if self.streams.holds(tensor)]
        return PendingBatch(routed, self.streams.mark(), memory)

    def hand_over(self, made: PendingBatch) -> RoutedBatch:
        """Return the batch, for use on the calling thread's current stream.

        That stream waits until the batch is complete; the thread does not wait.
        """
        if self.streams is not None and made.event is not None:
            self.streams.follow(made.event, made.memory)
        return made.routed


class StreamForRoutes(CudaStreams):
    """A GPU's streams with another side stream, so that routes do not wait for loaders' copies."""

    def __init__(self, device: torch.device):
        super().__init__(device)
        self._own: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    @property
    def side(self) -> torch.cuda.Stream:
        return self._own


def _tensors_of(item: Any) -> list[Tensor]:
    found: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_tensors(item, note)
    return found
