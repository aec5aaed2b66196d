"""Decides whether the steps of a job are recorded as CUDA graphs.

A rank decides from its model, and `plan` from the model's blueprint, by the same rule.
"""

from dataclasses import dataclass

import torch

from distrain.errors import SpecError
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.training import TrainSpec
from distrain.models.blueprint import Blueprint
from distrain.models.click_model import ClickModel
from distrain.models.embeddings.sharding.plan import ShardingPlan


@dataclass(frozen=True)
class StepFacts:
    """Facts that decide about recording, besides `train` and the device.

    Attributes:
        lists: The columns of lists, by name. Their batches have no fixed size.
        compares_rows: Whether the loss compares rows of several ranks.
        is_host_cached: Whether tables are placed as `host_cached`.
        uses_gloo: Whether ranks of a GPU job communicate through gloo.
        is_custom: Whether a function of the user makes the model. A replay repeats kernels only: it
            would omit what such a model does on the host.
    """

    lists: tuple[str, ...] = ()
    compares_rows: bool = False
    is_host_cached: bool = False
    uses_gloo: bool = False
    is_custom: bool = False


def is_custom(spec: JobSpec) -> bool:
    """Return True if a function of the user makes the model."""
    return "model.function" in spec.functions


def model_facts(model: ClickModel, is_custom: bool = False) -> StepFacts:
    """Return the facts of a model that a rank trains; `is_custom` is as in `StepFacts`."""
    tables = model.embeddings
    peers = tables.peers if tables.peers.num_ranks > 1 else None
    return StepFacts(
        lists=tuple(tables.list_names),
        compares_rows=peers is not None and model.task.compares_rows,
        is_host_cached=any(store.cache is not None for store in tables.stores),
        uses_gloo=peers is not None and peers.device.type == "cpu",
        is_custom=is_custom,
    )


def planned_facts(
    spec: JobSpec, blueprint: Blueprint, num_ranks: int, tables: ShardingPlan | None = None
) -> StepFacts:
    """Return the facts of a model before it exists; several ranks with GPUs use NCCL.

    Without `tables`, because the placement depends on the answer, no table is host-cached.
    """
    placed = () if tables is None else tables.tables
    return StepFacts(
        lists=tuple(one.name for one in blueprint.inputs.columns if one.combiner is not None),
        compares_rows=num_ranks > 1 and blueprint.task.compares_rows,
        is_host_cached=any(one.placement == "host_cached" for one in placed),
        is_custom=is_custom(spec),
    )


def records_steps(train: TrainSpec, device: torch.device, facts: StepFacts) -> bool:
    """Return True if steps are recorded: if the spec says so, or `auto` finds no obstacle."""
    if train.cuda_graph != "auto":
        return train.cuda_graph
    return not facts.is_custom and not _obstacles(train, device, facts)


def check_graph(
    train: TrainSpec, device: torch.device | None, facts: StepFacts = StepFacts()
) -> None:
    """Raise a `SpecError` with all reasons why a graph cannot contain the step.

    Args:
        device: The rank's device; `None` where graphs need no GPU, as in tests.
        facts: By default, only the spec and the device are checked.
    """
    if found := _obstacles(train, device, facts):
        raise SpecError(
            f"train.cuda_graph is not possible here: {'; '.join(found)}",
            hint="Set train.cuda_graph to auto or false, or change the named settings.",
        )


def _obstacles(train: TrainSpec, device: torch.device | None, facts: StepFacts) -> list[str]:
    obstacles: dict[str, object] = {
        f"it is on {device}, and graphs need an NVIDIA GPU": device and device.type != "cuda",
        "train.micro_batches must be 1 or auto": train.micro_batches not in (1, "auto"),
        "train.table_weight_decay must be 0": train.table_weight_decay,
        "embeddings.placement must not be host_cached": facts.is_host_cached,
        "the ranks communicate through gloo, but a graph supports only NCCL's operations": (
            device and facts.uses_gloo
        ),
        "the loss compares rows of all ranks": facts.compares_rows,
        f"columns of lists have no fixed size: {', '.join(facts.lists)}": facts.lists,
    }
    return [obstacle for obstacle, is_there in obstacles.items() if is_there]
