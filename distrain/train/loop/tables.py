"""The tables of a job on one rank: placed, and made with the rank's share of their rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from distrain.embeddings import Arriving, EmbeddingCollection, Peers, TableColumn
from distrain.embeddings.sharding import ShardingPlan, calibrate, least_over_ranks
from distrain.models import TableFactory
from distrain.schema import Schema
from distrain.spec import JobSpec
from distrain.train.planning import plan_tables, tables_budget_bytes
from distrain.train.timing import PEERS, waiting
from distrain.world import World


@dataclass(frozen=True)
class WaitTrackingPeers(Peers):
    """`Peers` that mark the thread as waiting while it is in a collective operation."""

    def gather_rows_at_first(self, rows: Tensor, lengths: Sequence[int]) -> list[Tensor] | None:
        with waiting(PEERS):
            return super().gather_rows_at_first(rows, lengths)

    def arrived(self, arriving: Arriving) -> Tensor:
        with waiting(PEERS):
            return super().arrived(arriving)

    def count_up(self, counts: Tensor) -> Tensor:
        with waiting(PEERS):
            return super().count_up(counts)

    def largest(self, numbers: Sequence[int]) -> list[int]:
        with waiting(PEERS):
            return super().largest(numbers)

    def _all_gather(self, rows: Tensor) -> Tensor:
        if self.num_ranks == 1:
            return super()._all_gather(rows)
        with waiting(PEERS):
            return super()._all_gather(rows)

    def _all_to_all(
        self,
        received: Tensor,
        rows: Tensor,
        receive: list[int] | None = None,
        send: list[int] | None = None,
    ) -> None:
        with waiting(PEERS):
            super()._all_to_all(received, rows, receive, send)


STORAGE_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def place_tables(spec: JobSpec, schema: Schema, world: World, device: torch.device) -> ShardingPlan:
    """Decide where the tables of a job live; a collective operation of its ranks.

    All ranks plan with the same numbers: the least memory of any rank, and the speed of their
    exchange
    as they measured it together. The decision changes how fast a job is, not what it computes.
    Raises `SpecError` if the tables do not fit.
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
    """What makes the tables as planned, on the device."""

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
