"""From a job's spec and schema to its tables' places, for `distrain plan` and for its ranks."""

import math
from pathlib import Path

import psutil
import torch

from distrain.embeddings.sharding import (
    DEFAULT_COSTS,
    WEIGHT_BYTES,
    Costs,
    ShardingPlan,
    plan_placements,
    table_sizes,
)
from distrain.models import blueprint_of
from distrain.schema import Schema
from distrain.spec import EmbeddingsSpec, JobSpec

MEMORY_SHARE = 0.75
"""The share of a device's or host's memory for tables; all else takes of the rest."""

_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def plan_tables(
    spec: JobSpec,
    schema: Schema,
    *,
    num_ranks: int,
    device_type: str,
    budget_bytes: int | None,
    costs: Costs | None = None,
) -> ShardingPlan:
    """Place the tables of a job; the same arguments give the same plan.

    Without measured `costs`, the `DEFAULT_COSTS` of the device's type, "cpu" or "cuda", count.
    `budget_bytes` is the same on every rank; `None`: no limit.
    """
    blueprint = blueprint_of(schema, spec.model)
    tables = table_sizes(blueprint.inputs.columns)
    blueprint.check()
    return plan_placements(
        tables,
        num_ranks=num_ranks,
        batch_rows_per_rank=math.ceil(spec.train.global_batch_size / num_ranks),
        budget_bytes=budget_bytes,
        optimizer=spec.train.optimizer.kind,
        weight_bytes_per_value=WEIGHT_BYTES[spec.embeddings.storage],
        costs=costs or DEFAULT_COSTS.get(device_type, DEFAULT_COSTS["cpu"]),
        wanted=spec.embeddings.placement,
        overrides=spec.embeddings.tables,
        captured=spec.train.cuda_graph,
    )


def tables_budget_bytes(
    embeddings: EmbeddingsSpec,
    device: torch.device,
    ranks_on_host: int,
    memory_per_rank_gib: float | None = None,
) -> int:
    """The bytes that a rank's tables may take, from the spec or from this machine.

    Ranks on unlike machines get unlike answers: before they plan, they must take the least of all
    (`embeddings.sharding.least_over_ranks`). On the CPU `memory_per_rank_gib` is a limit, too.
    """
    if embeddings.memory_gib is not None:
        return int(embeddings.memory_gib * 2**30)
    if device.type == "cuda":
        has = torch.cuda.get_device_properties(device).total_memory
    else:
        has = available_host_bytes() // ranks_on_host
    budget = int(MEMORY_SHARE * has)
    if device.type == "cuda" or memory_per_rank_gib is None:
        return budget
    return min(budget, int(memory_per_rank_gib * 2**30))


def available_host_bytes() -> int:
    """Bytes free for new processes, within a container's limit."""
    available = psutil.virtual_memory().available
    try:
        limit = int(_CGROUP_LIMIT.read_text())
    except (OSError, ValueError):  # no such file, or "max"
        return available
    return min(available, limit)
