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

A captured step sends all that it has capacity for, and is predicted with that; so there row-wise
can be much faster on two ranks, too.

A table is placed by hand through `wanted`, which means all tables, or `overrides`. `host_cached`,
whose rows lie in the host's memory, is only ever chosen by hand. Row-wise on one rank is
replicated. No torch in here: `distrain plan` and every rank make the same plan of the same numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from distrain.errors import SpecError
from distrain.models.embeddings.columns import PLACEMENTS
from distrain.models.embeddings.sharding.costs import (
    Costs,
    Sent,
    crossover_unique,
    latency_s,
    sent_bytes,
)
from distrain.models.embeddings.sharding.plan import ShardingPlan, TablePlan
from distrain.models.embeddings.sharding.table_bytes import (
    RowBytes,
    TableSize,
    bytes_taken,
    does_not_fit,
    rows_held,
    spread_room,
    whole_room,
)


@dataclass(frozen=True)
class _Ask:
    tables: tuple[TableSize, ...]
    unique: dict[str, float]
    num_ranks: int
    batch_rows: int
    row: RowBytes
    costs: Costs
    captured: bool

    def sent(self, table: TableSize, placement: str) -> Sent:
        room, asked = self.room(table, placement), self.unique[table.name]
        return sent_bytes(placement, room, table.dim, self.num_ranks, asked=asked)

    def room(self, table: TableSize, placement: str) -> float:
        unique, facts = self.unique[table.name], PLACEMENTS[placement]
        if not self.captured or facts.on_host:  # which no graph holds
            return unique
        if not facts.is_dealt:
            return float(whole_room(table, self.batch_rows))
        own = [other for other in self.tables if other.dim == table.dim]
        return unique * spread_room(own, self.batch_rows, self.num_ranks)

    def taken(self, placed: Mapping[str, str], tables: Sequence[TableSize] | None = None) -> int:
        chosen = self.tables if tables is None else tables
        items = [(t, placed[t.name], self.unique[t.name]) for t in chosen]
        return bytes_taken(items, self.num_ranks, self.row)

    def seconds(self, placed: Mapping[str, str], tables: Sequence[TableSize]) -> float:
        sent = sum(self.sent(t, placed[t.name]).total for t in tables)
        stores = sorted({placed[t.name] for t in tables})
        waits = sum(latency_s(placement, self.num_ranks, self.costs) for placement in stores)
        return sent / self.costs.bytes_per_s + waits

    def table_seconds(self, table: TableSize, placement: str, sharing: int) -> float:
        """Predicted seconds of one table, with its part of collectives that so many share."""
        waits = latency_s(placement, self.num_ranks, self.costs)
        sent = self.sent(table, placement).total
        return sent / self.costs.bytes_per_s + waits / sharing


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
    captured: bool = False,
) -> ShardingPlan:
    """Place tables by the rule of this module; a `SpecError` if they do not fit.

    `wanted` is "auto" or a placement for all tables; `overrides`, by the names of tables or of
    their columns, outrank it. `captured`: steps are recorded as CUDA graphs, in shapes known
    beforehand. `budget_bytes` is what weights and optimizer state may take on a rank; `None`: no
    limit. `weight_bytes_per_value` is 4 for fp32, 2 for bf16.
    """
    overrides = dict(overrides or {})
    _check_names(overrides, tables)
    ask = _Ask(
        tuple(tables),
        {table.name: table.unique(batch_rows_per_rank) for table in tables},
        num_ranks,
        batch_rows_per_rank,
        RowBytes(optimizer, weight_bytes_per_value),
        costs,
        captured,
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
        before = next(placed[t.name][0] for t in tables if t.dim == dim and t.name not in pinned)
        why = f"{before}, the tables would not fit: width {dim} frees memory"
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
        if ask.num_ranks == 1 and not (placement and PLACEMENTS[placement].on_host):
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
    own = [table for table in ask.tables if table.dim == dim]
    free = [table.name for table in own if table.name not in pinned]
    if not free:
        return {}
    if ask.num_ranks == 2 and not ask.captured:
        why = "on 2 ranks row-wise sends nearly as much, in more collectives"
        return dict.fromkeys(free, ("replicated", why))
    fixed = {name: placement for name, (placement, _) in pinned.items()}
    seconds = {
        placement: ask.seconds(fixed | dict.fromkeys(free, placement), own)
        for placement in ("replicated", "row_wise")
    }
    placement = "row_wise" if seconds["row_wise"] < seconds["replicated"] else "replicated"
    if ask.captured:
        told = ", ".join(f"{name} {s * 1e3:,.2f} ms" for name, s in seconds.items())
        why = f"the faster one for width {dim} in the room of a captured step: {told}"
    elif len(free) == len(own):
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
        if table.name not in pinned and placed[table.name][0] != "row_wise":
            saved = ask.taken({table.name: placed[table.name][0]}, [table])
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
        sent = ask.sent(table, placement)
        plans.append(
            TablePlan(
                name=table.name,
                rows=table.rows,
                dim=table.dim,
                placement=placement,
                why=why,
                unique=unique,
                room=ask.room(table, placement),
                weight_bytes=held * ask.row.weight(table.dim),
                optimizer_bytes=held * ask.row.state(table.dim),
                host_bytes=on_host * ask.row.both(table.dim),
                sent=sent,
                exchange_s=ask.table_seconds(table, placement, stores[table.dim, placement]),
                columns=table.columns or (table.name,),
            )
        )
    return tuple(plans)
