"""Places the tables of a job, and checks that a machine can hold them and the dense layers.

The check adds up the weights of a rank's tables, the dense parameters with their gradients, and the
optimizers' states. Batches and activations need more memory (`memory.py`), so a job that passes may
still be too large; a rejected job cannot train.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil
import torch

from distrain.errors import ModelError, SpecError
from distrain.formatting import byte_size, join_names
from distrain.jobs.spec.job import JobSpec
from distrain.jobs.spec.models.kinds import EmbeddingsSpec
from distrain.jobs.spec.tasks import INPUT_NAMES
from distrain.jobs.spec.training import JUDGING_METRICS
from distrain.metrics.multiclass import TOP_K
from distrain.models.build import blueprint_of
from distrain.models.embeddings.columns import TableColumn
from distrain.models.embeddings.sharding.placing import COLLECTIVE_BYTES, plan_placements
from distrain.models.embeddings.sharding.plan import ShardingPlan
from distrain.models.embeddings.sharding.table_bytes import (
    WEIGHT_BYTES,
    RankShare,
    RowBytes,
    table_sizes,
)
from distrain.models.heads.targets import Target, output_names
from distrain.models.heads.tasks import Task
from distrain.schema.schema import Schema
from distrain.train.planning.memory import kept_bytes
from distrain.train.step.graph_conditions import planned_facts, records_steps

MEMORY_SHARE = 0.75
"""The share of a GPU's memory, or of a host's free memory, for tables; the rest is for all else."""

_CGROUP = Path("/sys/fs/cgroup")


def plan_tables(
    spec: JobSpec,
    schema: Schema,
    *,
    num_ranks: int,
    device_type: str,
    budget_bytes: int | None,
) -> ShardingPlan:
    """Place the tables of a job; the same arguments give the same plan.

    `device_type` is "cpu" or "cuda". `budget_bytes` limits a rank's tables and must be the same on
    every rank; `None`: no limit. Raises `SpecError` if the tables do not fit, or if host-cached
    tables should have averages.
    """
    blueprint = blueprint_of(schema, spec.model)
    tables = table_sizes(blueprint.inputs.columns)
    facts = planned_facts(spec, blueprint, num_ranks)
    blueprint.check()
    inits_of(blueprint.inputs.columns, spec.embeddings)
    plan = plan_placements(
        tables,
        RankShare(
            num_ranks,
            math.ceil(spec.train.batch_rows / num_ranks),
            RowBytes(
                spec.train.of_tables.kind,
                WEIGHT_BYTES[spec.embeddings.storage],
                averaged=spec.train.ema is not None,
            ),
            captured=records_steps(spec.train, torch.device(device_type), facts),
        ),
        budget_bytes=budget_bytes,
        wanted=spec.embeddings.placement,
        overrides=spec.embeddings.tables,
        collective_bytes=COLLECTIVE_BYTES.get(device_type, COLLECTIVE_BYTES["cpu"]),
    )
    cached = [t.name for t in plan.tables if t.placement == "host_cached"]
    if cached and spec.train.ema is not None:
        raise SpecError(
            "host-cached tables have no averages of their weights",
            where={"train.ema": spec.train.ema, "tables": join_names(cached, 5)},
            hint="Choose another placement of the tables, or set train.ema to null.",
        )
    return plan


def inits_of(columns: Sequence[TableColumn], embeddings: EmbeddingsSpec) -> dict[str, float]:
    """Return the bounds of the initial embedding values, by column.

    Columns without a bound in the spec are omitted. Columns that share a table have the same bound.
    Raises `SpecError` for unknown columns, or two bounds for one table.
    """
    names = [column.name for column in columns]
    unknown = sorted(embeddings.inits.keys() - set(names))
    if unknown:
        raise SpecError(
            f"embeddings.inits names no tables: {', '.join(unknown)}",
            hint=f"Tables: {', '.join(names)}.",
        )
    by_table: dict[str, float] = {}
    for column in columns:
        bound = embeddings.inits.get(column.name)
        if bound is not None and by_table.setdefault(column.table_name, bound) != bound:
            raise SpecError(
                f"embeddings.inits gives the table {column.table_name!r} two bounds: "
                f"{by_table[column.table_name]:g} and {bound:g}, of {column.name!r}",
                hint="Columns that share a table share its initial range: set it for one of them.",
            )
    bounds = {one.name: by_table.get(one.table_name, embeddings.init) for one in columns}
    return {name: bound for name, bound in bounds.items() if bound is not None}


class Limit(NamedTuple):
    """A limit of memory in bytes, and words about its origin for messages."""

    size_bytes: int
    set_by: str


def tables_limit(spec: JobSpec, device: torch.device, ranks_on_host: int) -> Limit:
    """Return the bytes that a rank's tables may take, and the setting that determines them.

    This is `embeddings.memory_gib`. If that is unset, it is `MEMORY_SHARE` of the GPU's memory or,
    on the CPU, `MEMORY_SHARE` of this machine's free memory divided by `ranks_on_host`, but at most
    `resources.memory_per_rank_gib`. Ranks on different machines get different results, so they must
    plan with the minimum over all ranks.
    """
    if spec.embeddings.memory_gib is not None:
        return Limit(int(spec.embeddings.memory_gib * 2**30), "embeddings.memory_gib")
    if device.type == "cuda":
        has = torch.cuda.get_device_properties(device).total_memory
        return Limit(int(MEMORY_SHARE * has), f"{MEMORY_SHARE:.0%} of the GPU's memory")
    free = int(MEMORY_SHARE * (available_host_bytes() // ranks_on_host))
    of_host = f"{MEMORY_SHARE:.0%} of the free memory of this machine for a rank"
    limits = [*_memory_per_rank(spec), Limit(free, of_host)]
    return min(limits, key=lambda limit: limit.size_bytes)


def _memory_per_rank(spec: JobSpec) -> list[Limit]:
    """Return a list with the limit `resources.memory_per_rank_gib`; an empty list if unset."""
    gib = spec.resources.memory_per_rank_gib
    return [] if gib is None else [Limit(int(gib * 2**30), "resources.memory_per_rank_gib")]


def available_host_bytes() -> int:
    """Return the bytes of memory available for new processes, on this machine and in its container.

    Cached files that were not used lately count as available, as in `psutil.virtual_memory`.
    """
    available = psutil.virtual_memory().available
    try:
        limit = int((_CGROUP / "memory.max").read_text())
    except (OSError, ValueError):  # no such file, or "max"
        return available
    return max(0, min(available, limit - _container_use()))


def _container_use() -> int:
    """Return the bytes in use in this process's container, without files cached but not in use.

    Returns 0 if they are unknown.
    """
    with suppress(OSError, ValueError, KeyError):
        lines = (_CGROUP / "memory.stat").read_text().splitlines()
        stat = dict(line.split(maxsplit=1) for line in lines)
        return int((_CGROUP / "memory.current").read_text()) - int(stat["inactive_file"])
    return 0


def check_fits(spec: JobSpec, schema: Schema, device: torch.device | None) -> None:
    """Raise `SpecError` if a rank cannot hold the tables and the dense layers; allocates nothing.

    `device` is the device of the ranks if they run on this machine. It is `None` if they run on
    other machines: then only the limits in the spec are checked.
    """
    num_ranks = spec.resources.num_ranks
    device_type = "cpu" if device is None else device.type

    plan = partial(plan_tables, spec, schema, num_ranks=num_ranks, device_type=device_type)
    plan(budget_bytes=None)  # checks that the model and `embeddings.tables` fit the columns
    budget = _tables_limit(spec, device)
    with _limit_named(budget):
        tables = plan(budget_bytes=None if budget is None else budget.size_bytes)
    blueprint = blueprint_of(schema, spec.model)
    check_metric(spec, blueprint.task)
    held = kept_bytes(spec.train, tables, blueprint.check())
    on_host = dict(held)
    if device_type == "cuda":  # the tables are created on the host before they are moved
        on_host = {"table weights": held["table weights"]}
    on_host["host-cached tables"] = tables.host_bytes_per_rank
    for limit in _host_limits(spec, device):
        _check_sum(on_host, num_ranks, limit)
    if device is not None and device.type == "cuda":
        has = torch.cuda.get_device_properties(device).total_memory
        _check_sum(held, num_ranks, Limit(has, "the GPU's memory"))


def check_metric(spec: JobSpec, task: Task) -> None:
    """Raise `SpecError` if the task lacks the metric by which the job judges validations.

    Raises `ModelError` if targets have equal names, or the name of an input of exported models.
    """
    metric, names = spec.best_metric, [target.name for target in task.targets]
    if len(set(names)) < len(names):
        raise ModelError(f"two targets have the same name: {', '.join(names)}")
    if both := {*INPUT_NAMES} & {*output_names(task.targets)}:
        raise ModelError(
            f"a target has the name of an input of exported models: {', '.join(sorted(both))}",
            hint="Give it another name in model.tasks, and set `target` to its column.",
        )
    has = _judging_metrics(task)
    if metric is None or metric in has:
        return
    asks = "checkpoint.keep_best" if spec.train.early_stopping is None else "train.early_stopping"
    raise SpecError(
        f"{asks} uses the metric {metric}, which {type(task).__name__} does not have",
        where={"it has": ", ".join(has) or "none"},
        hint=f"Name a metric that it has, or leave {asks} out.",
    )


def _judging_metrics(task: Task) -> list[str]:
    """Return the names of the metrics by which validations of a task can be judged.

    A name is `METRIC`, of the first binary target, or `TARGET.METRIC`, of any target.
    """
    targets = task.targets
    main: tuple[str, ...] = ()
    if any(target.kind == "binary" for target in targets):
        main = task.metrics if targets[0].kind == "binary" else JUDGING_METRICS["binary"]
    # Retrieval has no metrics of binary targets, since it does not predict labels 0 and 1.
    judged = [one for one in targets if "auc" in main or one.kind != "binary"]
    return [*main, *(f"{one.name}.{name}" for one in judged for name in _metrics_of(one))]


def _metrics_of(target: Target) -> list[str]:
    few = target.kind == "multiclass" and target.classes <= TOP_K
    return [name for name in JUDGING_METRICS[target.kind] if not (few and name == "top_5")]


def _tables_limit(spec: JobSpec, device: torch.device | None) -> Limit | None:
    """Return the limit of a rank's tables; `None` if the memory of other machines determines it.

    `device` is as in `check_fits`.
    """
    if device is None and spec.embeddings.memory_gib is None:
        limits = _memory_per_rank(spec) if spec.resources.device == "cpu" else []
        return next(iter(limits), None)
    return tables_limit(spec, device or torch.device("cpu"), spec.resources.num_ranks)


def _host_limits(spec: JobSpec, device: torch.device | None) -> Iterator[Limit]:
    """Yield the limits of a rank's host memory that are known on this machine."""
    num_ranks = spec.resources.num_ranks
    if device is not None or spec.resources.device == "cpu":
        yield from _memory_per_rank(spec)
    if device is not None:
        share = f"the free memory of this machine, divided by {num_ranks} ranks"
        yield Limit(available_host_bytes() // num_ranks, share)


def _check_sum(terms: Mapping[str, int], num_ranks: int, limit: Limit) -> None:
    needed = sum(terms.values())
    if needed <= limit.size_bytes:
        return
    raise SpecError(
        f"a rank needs at least {byte_size(needed)}, but the limit is "
        f"{byte_size(limit.size_bytes)}",
        where={
            "ranks": num_ranks,
            **{name: byte_size(size) for name, size in terms.items() if size},
            "limit": limit.set_by,
        },
        hint="Lower the widths of the model or raise the limit; tables may be spread over more "
        "ranks with embeddings.placement row_wise.",
    )


@contextmanager
def _limit_named(limit: Limit | None) -> Iterator[None]:
    try:
        yield
    except SpecError as error:
        where = {**error.where, "limit": limit.set_by if limit else "none"}
        raise SpecError(error.message, where=where, hint=error.hint) from None
