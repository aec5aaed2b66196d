"""The tables of a job on one rank: placed, and made with the rank's share of their rows."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch

from distrain.embeddings import EmbeddingCollection, Peers, TableColumn
from distrain.embeddings.sharding import ShardingPlan, calibrate, least_over_ranks
from distrain.jobs import World
from distrain.models import TableFactory
from distrain.schema import Schema
from distrain.spec import JobSpec
from distrain.train.planning import plan_tables, tables_budget_bytes
from distrain.train.timing import PEERS, waiting

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _waits(
    method: Callable[Concatenate[Any, Arguments], Result],
) -> Callable[Concatenate[Any, Arguments], Result]:
    @wraps(method)
    def waiting_for_peers(
        peers: Any, /, *args: Arguments.args, **options: Arguments.kwargs
    ) -> Result:
        with waiting(PEERS):
            return method(peers, *args, **options)

    return waiting_for_peers


class WaitTrackingPeers(Peers):
    """`Peers` that mark the thread as waiting while it is in a collective operation."""

    gather_rows_at_first = _waits(Peers.gather_rows_at_first)
    arrived = _waits(Peers.arrived)
    count_up = _waits(Peers.count_up)
    largest = _waits(Peers.largest)
    _all_gather = _waits(Peers._all_gather)
    _all_to_all = _waits(Peers._all_to_all)


STORAGE_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def place_tables(spec: JobSpec, schema: Schema, world: World, device: torch.device) -> ShardingPlan:
    """Decide where the tables of a job live; a collective operation of its ranks.

    All ranks plan with the same numbers: the least memory of any rank, and the speed of their
    exchange as they measured it together. The decision changes how fast a job is, not what it
    computes. Raises `SpecError` if the tables do not fit.
    """
    budget_bytes = tables_budget_bytes(
        spec.embeddings, device, world.ranks_per_node, spec.resources.memory_per_rank_gib
    )
    costs = None
    if world.num_ranks > 1:
        budget_bytes = least_over_ranks(budget_bytes, None, device)
        costs = calibrate(None, device)
    return plan_tables(
        spec,
        schema,
        num_ranks=world.num_ranks,
        device_type=device.type,
        budget_bytes=budget_bytes,
        costs=costs,
    )


def table_factory(
    spec: JobSpec, plan: ShardingPlan, world: World, device: torch.device
) -> TableFactory:

    def make(
        columns: Sequence[TableColumn], *, generator: torch.Generator | None
    ) -> EmbeddingCollection:
        return EmbeddingCollection(
            columns,
            placements=plan.placements_of(columns),
            peers=WaitTrackingPeers(world.rank, world.num_ranks),
            generator=generator,
            dtype=STORAGE_DTYPES[spec.embeddings.storage],
            cache_bytes=int(spec.embeddings.cache_gib * 2**30),
            device=device,
        )

    return make
