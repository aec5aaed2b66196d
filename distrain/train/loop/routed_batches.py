"""Batches with their routes: the table rows that a batch needs, and their owners."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from itertools import count

import torch

from distrain.jobs.spec.job import JobSpec
from distrain.loader.batch import Batch
from distrain.train.step.graphed_step import GraphedStep
from distrain.train.step.routing import Batches, MakeRoute, RoutedBatch, route_batch, routes_of
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import READER, PhaseClock, waiting


class RoutedBatches(AbstractContextManager["RoutedBatches"]):
    """Yields a job's batches with their routes, which `take` makes in the calling thread.

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

    def close(self) -> None:
        self._batches.close()


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
) -> RoutedBatches:
    """Return a job's batches with their routes.

    Args:
        rank_rows: Returns the number of rows of each rank's batch in a step.
        first_step: The step of the first batch, from 0.
    """
    if isinstance(step, GraphedStep):
        make_route, asks = requests_of(step, map(rank_rows, count(first_step))), step.needs_requests
        return RoutedBatches(batches, make_route, device, one_ahead=asks, exchanges=asks)
    if step.model.inputs.draws is not None:
        batches = KeyedBatches(batches, spec.train.seed, first_step)
    return RoutedBatches(batches, routes_of(step.model), device)


def requests_of(step: GraphedStep, rank_rows: Iterator[tuple[int, ...]]) -> MakeRoute:
    """Return a function that requests a batch's table rows (`GraphedStep.request_rows`).

    `rank_rows` yields, for each step, the number of rows of each rank's batch.
    """
    return lambda batch: step.request_rows(batch, next(rank_rows))
