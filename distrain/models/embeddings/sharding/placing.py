"""The rule that places each table: a pure function of sizes, ranks and memory.

The rule for tables without a placement in the job:
1. A single rank holds everything ("replicated").
2. Tables of one width and placement share their collectives, so all tables of a width get one
   placement: a second one would cost collectives and save no bytes. On two ranks it is replicated,
   unless steps are captured in CUDA graphs. Otherwise a width is row-wise if that saves a rank more
   bytes than it could send during one collective: row-wise tables need one more.
3. If the tables exceed the budget, widths become row-wise until they fit, beginning with the width
   that frees most memory. So a larger budget never shards more.
4. If the tables still do not fit, the error lists the changes that would help.

`host_cached`, whose rows are in the host's memory, is only used if a job names it. On one rank,
"row_wise" is the same as "replicated". The rule uses no measurement and no torch, so `distrain
plan` and every rank make the same plan from the same numbers.
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from distrain.errors import SpecError
from distrain.models.embeddings.columns import PLACEMENTS
from distrain.models.embeddings.sharding.plan import ShardingPlan
from distrain.models.embeddings.sharding.table_bytes import RankShare, TablePlan, TableSize
from distrain.models.embeddings.sharding.too_large import too_large_error

COLLECTIVE_BYTES = {
    # 250 us at 0.55 GB/s: medians of two gloo ranks on a machine of 2 cores.
    "cpu": 140_000,
    # 20 us at 350 GB/s: derived for GPUs on one NVLink node, never measured.
    "cuda": 7_000_000,
}
"""Bytes that a rank could send during one collective, by the type of its device."""

_Choice = Mapping[str, tuple[str, str]]  # by table name: the placement and the reason


def plan_placements(
    tables: Sequence[TableSize],
    share: RankShare,
    *,
    budget_bytes: int | None,
    wanted: str = "auto",
    overrides: Mapping[str, str] | None = None,
    collective_bytes: int = COLLECTIVE_BYTES["cpu"],
) -> ShardingPlan:
    """Return the placement of each table by the rule of this module.

    `wanted` is "auto" or a placement for all tables. `overrides` has placements by the names of
    tables or of their columns, and takes precedence. `budget_bytes` limits the tables' bytes on a
    rank; `None`: unlimited. Raises SpecError if the tables do not fit, or if `overrides` has an
    unknown name or gives a table two placements.
    """
    overrides = dict(overrides or {})
    _check_names(overrides, tables)
    widths = {table.dim: [one for one in tables if one.dim == table.dim] for table in tables}
    named = _by_hand(tables, share, wanted, overrides)
    free = {
        dim: rest
        for dim, own in sorted(widths.items())
        if (rest := [table for table in own if table.name not in named])
    }

    def planned(choice: _Choice) -> tuple[TablePlan, ...]:
        return tuple(
            share.of_table(table, placement, widths[table.dim], why)
            for table in tables
            for placement, why in [choice[table.name]]
        )

    choice = dict(named)
    for dim, own in free.items():
        choice |= dict.fromkeys(
            (table.name for table in own), _by_bytes(own, widths[dim], share, collective_bytes)
        )
    plan = ShardingPlan(planned(choice), share.num_ranks, budget_bytes)
    for dim, own in sorted(free.items(), key=lambda item: _order(item[1], choice, share)):
        if budget_bytes is None or plan.bytes_per_rank <= budget_bytes:
            break
        before = choice[own[0].name][0]
        if before == "row_wise":
            continue
        why = f"{before}, the tables would not fit: width {dim} frees memory"
        choice |= dict.fromkeys((table.name for table in own), ("row_wise", why))
        plan = ShardingPlan(planned(choice), share.num_ranks, budget_bytes)
    if budget_bytes is not None and plan.bytes_per_rank > budget_bytes:
        raise too_large_error(plan, list(tables), share, budget_bytes)
    return plan


def _check_names(overrides: Mapping[str, str], tables: Sequence[TableSize]) -> None:
    names = [name for table in tables for name in table.names]
    for name in overrides:
        if name not in names:
            near = get_close_matches(name, names, n=1)
            raise SpecError(
                f"embeddings.tables names {name!r}, which is not a categorical column",
                hint=f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(names)}.",
            )


def _by_hand(
    tables: Sequence[TableSize], share: RankShare, wanted: str, overrides: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """Return the placement, and the reason for it, of each table that the job places, by name.

    On one rank the result has all tables: "replicated", unless the job places them as
    "host_cached".
    """
    named = {}
    for table in tables:
        placement, why = _override(table, overrides), "set by embeddings.tables"
        if placement is None and wanted != "auto":
            placement, why = wanted, "set by embeddings.placement"
        if share.num_ranks == 1 and not (placement and PLACEMENTS[placement].on_host):
            placement, why = "replicated", "there is only one rank"
        if placement is not None:
            named[table.name] = (placement, why)
    return named


def _override(table: TableSize, overrides: Mapping[str, str]) -> str | None:
    said = {name: overrides[name] for name in table.names if name in overrides}
    if len(set(said.values())) > 1:
        raise SpecError(
            f"embeddings.tables places the table {table.name!r} twice",
            where=said,
            hint="Columns that share a table have one placement.",
        )
    return next(iter(said.values()), None)


def _by_bytes(
    tables: Sequence[TableSize],
    beside: Sequence[TableSize],
    share: RankShare,
    collective_bytes: int,
) -> tuple[str, str]:
    """Return the placement of tables of one width that the job does not place, and the reason.

    They are row-wise if that saves a rank over `collective_bytes` sent bytes per step, the cost of
    the further collective that row-wise tables need; otherwise replicated. On two ranks they are
    always replicated, unless steps are captured in CUDA graphs. `beside` has all tables of that
    width, also those that the job places.
    """
    if share.num_ranks == 2 and not share.captured:
        return "replicated", "on 2 ranks row-wise saves few bytes, and needs more collectives"
    whole, dealt = (
        sum(share.of_table(table, placement, beside).sent_bytes for table in tables)
        for placement in ("replicated", "row_wise")
    )
    placement = "row_wise" if whole - dealt > collective_bytes else "replicated"
    relation = "more" if placement == "row_wise" else "not more"
    return placement, (
        f"width {tables[0].dim}: a rank would send {whole:,.0f} bytes a step replicated and "
        f"{dealt:,.0f} row-wise, which saves {relation} than a further collective costs"
    )


def _order(tables: Sequence[TableSize], choice: _Choice, share: RankShare) -> tuple[int, int]:
    """Return the sort key of the tables of a width: first is the width that frees most memory.

    Memory is freed on a rank if the tables become row-wise.
    """
    freed = sum(
        share.of_table(table, choice[table.name][0], tables).held_bytes
        - share.of_table(table, "row_wise", tables).held_bytes
        for table in tables
    )
    return -freed, -tables[0].dim
