"""The error for tables that do not fit a rank, with the sizes and each change that would help."""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace

from distrain.errors import SpecError
from distrain.formatting import byte_size
from distrain.jobs.optimizers import kind_of_least_state
from distrain.models.embeddings.sharding.plan import ShardingPlan
from distrain.models.embeddings.sharding.table_bytes import RankShare, TablePlan, TableSize

_MOST_RANKS = 1 << 16


def too_large_error(
    plan: ShardingPlan, tables: Sequence[TableSize], share: RankShare, budget_bytes: int
) -> SpecError:
    """Return the error for a plan that needs more than `budget_bytes` on a rank.

    `plan` has as many row-wise tables as the job allows, so no other plan of the job needs less
    memory.
    """
    taken = plan.bytes_per_rank
    largest = max(plan.tables, key=lambda table: table.held_bytes)
    weights = int(plan.total("weight_bytes"))
    ways = _ways(plan, tables, share, budget_bytes)
    rounded_up_gib = math.ceil(taken / 2**30 * 1000) / 1000
    return SpecError(
        f"the embedding tables and their optimizer state need {byte_size(taken)} on each rank, "
        f"but the limit is {byte_size(budget_bytes)}",
        where={
            "ranks": plan.num_ranks,
            "weights": f"{byte_size(weights)} on each rank",
            "optimizer state": f"{byte_size(taken - weights)} on each rank",
            "largest table": f"{largest.name}, {largest.rows:,} rows of {largest.dim}, "
            f"{largest.placement}: {byte_size(largest.held_bytes)}",
        },
        hint="What would fit: " + "; ".join([*ways, f"embeddings.memory_gib: {rounded_up_gib}"]),
    )


def _ways(
    plan: ShardingPlan, tables: Sequence[TableSize], share: RankShare, budget: int
) -> list[str]:
    def needs(placement: str | None = None, share: RankShare = share, most_dim: int = 0) -> int:
        return sum(table.held_bytes for table in changed(placement, share, most_dim))

    def changed(placement: str | None, share: RankShare, most_dim: int) -> list[TablePlan]:
        sizes = [replace(t, dim=min(t.dim, most_dim or t.dim)) for t in tables]
        placements = [placement or table.placement for table in plan.tables]
        return [share.of_table(t, p, sizes) for t, p in zip(sizes, placements, strict=True)]

    kind = kind_of_least_state()
    half = replace(share.row, weight_bytes_per_value=2)
    small_state, both = (replace(row, optimizer=kind) for row in (share.row, half))
    one_change = {
        "embeddings.placement: row_wise": needs("row_wise"),
        "embeddings.storage: bf16": needs(share=replace(share, row=half)),
        f"train.optimizer.kind: {kind}": needs(share=replace(share, row=small_state)),
    }
    found = {option: size for option, size in one_change.items() if size <= budget}
    if not found:  # two changes are only combined if one does not suffice
        found[f"bf16 and {kind} together"] = needs(share=replace(share, row=both))
    ways = [f"{option} ({byte_size(size)})" for option, size in found.items() if size <= budget]

    def on_ranks(number: int) -> int:
        return needs("row_wise", replace(share, num_ranks=number))

    ranks = _least(plan.num_ranks, _MOST_RANKS, lambda number: on_ranks(number) <= budget)
    if plan.num_ranks < ranks <= _MOST_RANKS:
        ways.append(f"row-wise on {ranks:,} ranks ({byte_size(on_ranks(ranks))} each)")
    widest = max(table.dim for table in tables)
    width = _least(1, widest, lambda dim: needs(most_dim=dim) > budget) - 1
    if width:
        ways.append(f"embedding dimensions of at most {width} ({byte_size(needs(most_dim=width))})")
    if (least := needs("host_cached")) <= budget:
        on_host = sum(table.host_bytes for table in changed("host_cached", share, 0))
        ways.append(
            f"embeddings.placement: host_cached ({byte_size(on_host)} of host memory for each "
            f"rank, and at least {byte_size(least)} here)"
        )
    return ways


def _least(first: int, last: int, is_so: Callable[[int], bool]) -> int:
    """Return the first number in `first .. last` for which `is_so` is True; else `last + 1`.

    Bisects, so `is_so` must be True for all larger numbers too.
    """
    return first + bisect_left(range(first, last + 1), True, key=is_so)
