"""The tables of a job on one rank: placed, and made with the rank's share of their rows."""

from collections.abc import Sequence

import torch

from distrain.embeddings import EmbeddingCollection, TableColumn
from distrain.embeddings.calibrate import calibrate, least_over_ranks
from distrain.embeddings.sharding_plan import ShardingPlan
from distrain.models.blueprint import TableFactory
from distrain.schema import Schema
from distrain.spec import JobSpec
from distrain.train.tables_plan import plan_tables, tables_budget_bytes
from distrain.train.told_peers import ToldPeers
from distrain.world import World

STORAGE_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def place_tables(spec: JobSpec, schema: Schema, world: World, device: torch.device) -> ShardingPlan:
    """Decide where the tables of a job live; a collective operation of its ranks.

    All ranks plan with the same numbers: the least memory that any of them has, and the speed of
    their exchange as they measured it together. What is decided changes how fast a job is, not what
    it computes.

    Raises:
        SpecError: The tables do not fit.
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


def table_factory(spec: JobSpec, plan: ShardingPlan, world: World) -> TableFactory:
    """What makes the tables as planned."""

    def make(
        columns: Sequence[TableColumn], *, generator: torch.Generator | None
    ) -> EmbeddingCollection:
        return EmbeddingCollection(
            columns,
            placements=plan.placements_of(columns),
            peers=ToldPeers(world.rank, world.num_ranks),
            generator=generator,
            dtype=STORAGE_DTYPES[spec.embeddings.storage],
            cache_bytes=int(spec.embeddings.cache_gib * 2**30),
        )

    return make
