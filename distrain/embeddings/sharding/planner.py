"""Where each table lives, decided by a pure function of sizes, ranks, memory and two constants.

The rule for tables that nobody placed by hand:

1. One rank holds everything ("replicated").
2. Tables of one width share their collectives, so those that the plan may place stay together: two
   stores of a width instead of one cost collectives and save no bytes. Such a width is row-wise if
   there are more than two ranks and its exchange is predicted to be faster that way, which it is
   above `crossover_unique` distinct rows of a step; else it is replicated.
3. If that takes more than the budget, widths become row-wise, those that free most memory first,
   until it fits. So a larger budget never shards more.
4. If nothing fits, the error says what would.

A table is placed by hand through `wanted`, which means all tables, or `overrides`. `host_cached`,
whose rows lie in the host's memory, is only ever chosen by hand. Row-wise on one rank is
replicated. No torch in here: `distrain plan` and every rank make the same plan of the same numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from distrain.embeddings.sharding.costs import Costs, crossover_unique, latency_s, sent_bytes
from distrain.embeddings.sharding.plan import ShardingPlan, TablePlan
from distrain.embeddings.sharding.table_bytes import (
    RowBytes,
    TableSize,
    bytes_taken,
    does_not_fit,
    rows_held,
)
from distrain.errors import SpecError


@dataclass(frozen=True)
class _Ask:
    """What is asked of the plan."""

    tables: tuple[TableSize, ...]
    unique: dict[str, float]
    num_ranks: int
    row: RowBytes
    costs: Costs

    def taken(self, placed: Mapping[str, str], tables: Sequence[TableSize] | None = None) -> int:
        """Bytes on a rank."""
        chosen = self.tables if tables is None else tables
        items = [(t, placed[t.name], self.unique[t.name]) for t in chosen]
        return bytes_taken(items, self.num_ranks, self.row)

    def seconds(self, placed: Mapping[str, str], tables: Sequence[TableSize]) -> float:
        """Predicted seconds of the exchange of one width's tables."""
        sent = sum(
            sent_bytes(placed[t.name], self.unique[t.name], t.dim, self.num_ranks).total
            for t in tables
        )
        stores = sorted({placed[t.name] for t in tables})
        waits = sum(latency_s(placement, self.num_ranks, self.costs) for placement in stores)
        return sent / self.costs.bytes_per_s + waits


def plan_placements(
    tables: Sequence[TableSize],
    *,
    num_ranks: int,
    batch_rows_per_rank: int,
    budget_bytes: int | None,
    optimizer: str,
    weight_bytes_per_value: int,
    costs: Costs,
    wanted: str = "auto",
    overrides: Mapping[str, str] | None = None,
) -> ShardingPlan:
    """Place tables by the rule of this module.

    Args:
        budget_bytes: What weights and optimizer state may take on a rank; `None`: no limit.
        weight_bytes_per_value: 4 for fp32, 2 for bf16.
        wanted: "auto", or a placement for all tables.
        overrides: Placements of single tables, which outrank `wanted`, by the names of the tables
            or of their columns.

    Raises:
        SpecError: The tables do not fit, an override names neither a table nor a column, or those
            of a table's columns differ.
    """
    overrides = dict(overrides or {})
    _check_names(overrides, tables)
    ask = _Ask(
        tuple(tables),
        {table.name: table.unique(batch_rows_per_rank) for table in tables},
        num_ranks,
        RowBytes(optimizer, weight_bytes_per_value),
        costs,
    )
    pinned = _pinned(ask, wanted, overrides)
    placed = dict(pinned)
    for dim in sorted({table.dim for table in tables}):
        placed |= _by_cost(ask, dim, pinned)
    for dim in _by_memory(ask, placed, pinned):
        if (
            budget_bytes is None
            or ask.taken({n: p for n, (p, _) in placed.items()}) <= budget_bytes
        ):
            break
        why = f"replicated, the tables would not fit: width {dim} frees memory"
        free = [t.name for t in tables if t.dim == dim and t.name not in pinned]
        placed |= dict.fromkeys(free, ("row_wise", why))
    chosen = {name: placement for name, (placement, _) in placed.items()}
    if budget_bytes is not None and ask.taken(chosen) > budget_bytes:
        items = [(table, chosen[table.name], ask.unique[table.name]) for table in tables]
        raise does_not_fit(items, num_ranks, ask.row, budget_bytes)
    return ShardingPlan(_table_plans(ask, placed), num_ranks, budget_bytes, costs)


def _check_names(overrides: Mapping[str, str], tables: Sequence[TableSize]) -> None:
    names = [name for table in tables for name in table.names]
    for name in overrides:
        if name not in names:
            near = get_close_matches(name, names, n=1)
            raise SpecError(
                f"embeddings.tables names {name!r}, which is no categorical column",
                hint=f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(names)}.",
            )


def _pinned(ask: _Ask, wanted: str, overrides: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Placement and reason of the tables that the rule does not place."""
    pinned = {}
    for table in ask.tables:
        placement, why = _override(table, overrides), "embeddings.tables says so"
        if placement is None and wanted != "auto":
            placement, why = wanted, "embeddings.placement says so"
        if ask.num_ranks == 1 and placement != "host_cached":
            placement, why = "replicated", "there is one rank, which holds everything"
        if placement is not None:
            pinned[table.name] = (placement, why)
    return pinned


def _override(table: TableSize, overrides: Mapping[str, str]) -> str | None:
    said = {name: overrides[name] for name in table.names if name in overrides}
    if len(set(said.values())) > 1:
        raise SpecError(
            f"embeddings.tables places the table {table.name!r} twice",
            where=said,
            hint="Columns that share a table have one placement.",
        )
    return next(iter(said.values()), None)


def _by_cost(
    ask: _Ask, dim: int, pinned: Mapping[str, tuple[str, str]]
) -> dict[str, tuple[str, str]]:
    """The faster placement of the tables of one width that are free."""
    own = [table for table in ask.tables if table.dim == dim]
    free = [table.name for table in own if table.name not in pinned]
    if not free:
        return {}
    if ask.num_ranks == 2:
        why = "on 2 ranks row-wise sends nearly as much, in more collectives"
        return dict.fromkeys(free, ("replicated", why))
    fixed = {name: placement for name, (placement, _) in pinned.items()}
    seconds = {
        placement: ask.seconds(fixed | dict.fromkeys(free, placement), own)
        for placement in ("replicated", "row_wise")
    }
    placement = "row_wise" if seconds["row_wise"] < seconds["replicated"] else "replicated"
    if len(free) == len(own):
        bound = crossover_unique(dim, ask.num_ranks, ask.costs)
        count = sum(ask.unique[name] for name in free)
        relation = "more than" if placement == "row_wise" else "not more than"
        why = (
            f"width {dim} has {count:,.0f} distinct rows in a rank's step, {relation} the "
            f"{bound:,.0f} from which row-wise is faster on {ask.num_ranks} ranks"
        )
    else:
        why = f"the faster one for width {dim} beside the tables placed by hand"
    return dict.fromkeys(free, (placement, why))


def _by_memory(
    ask: _Ask, placed: Mapping[str, tuple[str, str]], pinned: Mapping[str, tuple[str, str]]
) -> list[int]:
    """Widths that may yet become row-wise, those that free most memory first."""
    freed: dict[int, int] = {}
    for table in ask.tables:
        if table.name not in pinned and placed[table.name][0] == "replicated":
            saved = ask.taken({table.name: "replicated"}, [table])
            saved -= ask.taken({table.name: "row_wise"}, [table])
            freed[table.dim] = freed.get(table.dim, 0) + saved
    return sorted(freed, key=lambda dim: (-freed[dim], -dim))


def _table_plans(ask: _Ask, placed: Mapping[str, tuple[str, str]]) -> tuple[TablePlan, ...]:
    stores: dict[tuple[int, str], int] = {}
    for table in ask.tables:
        store = (table.dim, placed[table.name][0])
        stores[store] = stores.get(store, 0) + 1
    plans = []
    for table in ask.tables:
        (placement, why), unique = placed[table.name], ask.unique[table.name]
        held, on_host = rows_held(table, placement, ask.num_ranks, unique)
        sent = sent_bytes(placement, unique, table.dim, ask.num_ranks)
        waits = latency_s(placement, ask.num_ranks, ask.costs) / stores[table.dim, placement]
        plans.append(
            TablePlan(
                name=table.name,
                rows=table.rows,
                dim=table.dim,
                placement=placement,
                why=why,
                unique=unique,
                weight_bytes=held * ask.row.weight(table.dim),
                optimizer_bytes=held * ask.row.state(table.dim),
                host_bytes=on_host * ask.row.both(table.dim),
                sent=sent,
                exchange_s=sent.total / ask.costs.bytes_per_s + waits,
                columns=table.columns or (table.name,),
            )
        )
    return tuple(plans)
