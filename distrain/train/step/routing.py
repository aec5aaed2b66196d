"""Takes batches from the loader, and makes their routes before their step.

A route has the rows of the embedding tables that a batch needs, and the ranks that own these rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from distrain.loader.batch import Batch
from distrain.models.click_model import ClickModel
from distrain.models.embeddings.padded import PaddedRoutes
from distrain.models.embeddings.route import Route
from distrain.train.step.host_copy import HostCopy


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


def routes_of(model: ClickModel) -> MakeRoute:
    return lambda batch: model.embeddings.route(*model.table_ids(batch))


def route_batch(make_route: MakeRoute, batch: Batch) -> RoutedBatch:
    """Make a batch's route, and return both; a collective operation if ranks share the tables."""
    began_s = time.perf_counter()
    route = make_route(batch)
    return RoutedBatch(batch, route, time.perf_counter() - began_s)
