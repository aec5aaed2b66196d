"""Where each table lives, decided by a pure function of sizes, ranks, memory and two constants.

The rule for tables that nobody placed by hand:

1. One rank holds everything ("replicated").
2. Tables of one width share their collectives, so those that the plan may place stay together: two
   stores of a width instead of one cost collectives and save no bytes. Such a width is row-wise if
   there are more than two ranks and its exchange is predicted to be faster that way, which it is
   above `crossover_unique` distinct rows of a step; else it is replicated.
3. Where ranks have several nodes, a width is of two levels if its exchange is predicted to be
   faster that way by a tenth at least, with what is assumed or known of the links on a node and
   between nodes. It has other bits than the other placements, so no clock may decide it: ranks do
   not measure these links.
4. If that takes more than the budget, widths become row-wise, those that free most memory first,
   until it fits. So a larger budget never shards more.
5. If nothing fits, the error says what would.

A captured step sends all that it has room for (`room.py`), and is predicted with that; so there
row-wise can be much faster on two ranks, too.

A table is placed by hand through `wanted`, which means all tables, or `overrides`. `host_cached`,
whose rows lie in the host's memory, is only ever chosen by hand. Row-wise on one rank is
replicated; two-level is replicated in groups of one rank, and row-wise where all ranks are one
group. No torch in here: `distrain plan` and every rank make the same plan of the same numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from distrain.embeddings.sharding.costs import (
    Costs,
    Sent,
    crossover_unique,
    latency_s,
    sent_bytes,
)
from distrain.embeddings.sharding.links import Links, exchange_s, stages_of
from distrain.embeddings.sharding.plan import ShardingPlan, TablePlan
from distrain.embeddings.sharding.room import spread_room, whole_room
from distrain.embeddings.sharding.table_bytes import (
    RowBytes,
    TableSize,
    bytes_taken,
    does_not_fit,
    rows_held,
)
from distrain.errors import SpecError

_LEAST_GAIN = 0.9
"""Two levels must take at most this share of the time of the next best placement."""


@dataclass(frozen=True)
class _Ask:
    """What is asked of the plan."""

    tables: tuple[TableSize, ...]
    unique: dict[str, float]
    num_ranks: int
    batch_rows: int
    row: RowBytes
    costs: Costs
    links: Links | None
    group_size: int
    captured: bool

    @property
    def in_groups(self) -> bool:
        """Whether there are several groups of several ranks."""
        return 1 < self.group_size < self.num_ranks

    def sent(self, table: TableSize, placement: str) -> Sent:
        """Bytes that a rank sends for a table in a step."""
        room = self.room(table, placement)
        of_group = table.unique_of_ranks(self.batch_rows, self.group_size)
        if self.captured:
            of_group = min(float(table.rows), self.group_size * room)
        return sent_bytes(
            placement,
            room,
            table.dim,
            self.num_ranks,
            group_size=self.group_size,
            group_unique=of_group,
            asked=self.unique[table.name],
        )

    def room(self, table: TableSize, placement: str) -> float:
        """Rows of a table that a rank's step holds and sends."""
        unique = self.unique[table.name]
        if not self.captured or placement == "host_cached":  # which no graph holds
            return unique
        if placement == "replicated":
            return float(whole_room(table, self.batch_rows))
        own = [other for other in self.tables if other.dim == table.dim]
        owners = self.group_size if placement == "two_level" else self.num_ranks
        return unique * spread_room(own, self.batch_rows, owners)

    def taken(self, placed: Mapping[str, str], tables: Sequence[TableSize] | None = None) -> int:
        """Bytes on a rank."""
        chosen = self.tables if tables is None else tables
        items = [(t, placed[t.name], self.unique[t.name]) for t in chosen]
        return bytes_taken(items, self.num_ranks, self.row, self.group_size)

    def seconds(self, placed: Mapping[str, str], tables: Sequence[TableSize]) -> float:
        """Predicted seconds of the exchange of one width's tables."""
        sent = sum(self.sent(t, placed[t.name]).total for t in tables)
        stores = sorted({placed[t.name] for t in tables})
        waits = sum(latency_s(placement, self.num_ranks, self.costs) for placement in stores)
        return sent / self.costs.bytes_per_s + waits

    def table_seconds(self, table: TableSize, placement: str, sharing: int) -> float:
        """Predicted seconds of one table, with its part of collectives that so many share."""
        sent = self.sent(table, placement)
        if placement == "two_level" and self.links is not None:
            per_node, size = self.links.ranks_per_node, self.group_size
            stages = stages_of(placement, sent, self.num_ranks, per_node, size)
            waits = exchange_s([replace(stage, sent_bytes=0.0) for stage in stages], self.links)
            moves = exchange_s([replace(stage, collectives=0) for stage in stages], self.links)
            return moves + waits / sharing
        waits = latency_s(placement, self.num_ranks, self.costs)
        return sent.total / self.costs.bytes_per_s + waits / sharing

    def link_seconds(
        self, links: Links, placed: Mapping[str, str], tables: Sequence[TableSize]
    ) -> float:
        """The same, on the links of a node and those between nodes."""
        seconds = 0.0
        for placement in sorted({placed[t.name] for t in tables}):
            parts = [self.sent(t, placement) for t in tables if placed[t.name] == placement]
            sent = Sent(
                sum(s.ids for s in parts),
                sum(s.rows for s in parts),
                sum(s.sums for s in parts),
                sum(s.across for s in parts),
            )
            size = self.group_size
            stages = stages_of(placement, sent, self.num_ranks, links.ranks_per_node, size)
            seconds += exchange_s(stages, links)
        return seconds


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
    links: Links | None = None,
    group_size: int | None = None,
    captured: bool = False,
) -> ShardingPlan:
    """Place tables by the rule of this module.

    Args:
        budget_bytes: What weights and optimizer state may take on a rank; `None`: no limit.
        weight_bytes_per_value: 4 for fp32, 2 for bf16.
        wanted: "auto", or a placement for all tables.
        overrides: Placements of single tables, which outrank `wanted`, by the names of the tables
            or of their columns.
        links: What connects ranks that have several nodes; `None`: they have one.
        group_size: Ranks that share a copy of two-level tables; `None`: those of a node. Where it
            does not divide the number of ranks, all of them are one group.
        captured: Whether steps are recorded as CUDA graphs, in shapes known beforehand.

    Raises:
        SpecError: The tables do not fit, an override names neither a table nor a column, or those
            of a table's columns differ.
    """
    overrides = dict(overrides or {})
    _check_names(overrides, tables)
    size = _group_size(num_ranks, links, group_size)
    ask = _Ask(
        tuple(tables),
        {table.name: table.unique(batch_rows_per_rank) for table in tables},
        num_ranks,
        batch_rows_per_rank,
        RowBytes(optimizer, weight_bytes_per_value),
        costs,
        links,
        size,
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
        raise does_not_fit(items, num_ranks, ask.row, budget_bytes, size)
    return ShardingPlan(_table_plans(ask, placed), num_ranks, budget_bytes, costs, size)


def _group_size(num_ranks: int, links: Links | None, wanted: int | None) -> int:
    """How many ranks share a copy of two-level tables; all, where groups would be uneven."""
    size = wanted or (links.ranks_per_node if links else num_ranks)
    return num_ranks if num_ranks % size else size


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
        elif placement == "two_level" and not ask.in_groups:
            alone = ask.group_size == 1
            placement = "replicated" if alone else "row_wise"
            why = "each group has one rank" if alone else "all ranks are one group"
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
    in_groups = _in_groups(ask, own, free, {name: p for name, (p, _) in pinned.items()})
    if in_groups:
        return dict.fromkeys(free, ("two_level", in_groups))
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


def _in_groups(
    ask: _Ask, own: Sequence[TableSize], free: Sequence[str], fixed: Mapping[str, str]
) -> str | None:
    """Why the free tables of a width are of two levels; `None` if another placement is as fast."""
    links = ask.links
    if links is None or links.on_one_node(ask.num_ranks) or not ask.in_groups:
        return None
    seconds = {
        placement: ask.link_seconds(links, {**fixed, **dict.fromkeys(free, placement)}, own)
        for placement in ("two_level", "replicated", "row_wise")
    }
    two_level, *others = seconds.values()
    if two_level > _LEAST_GAIN * min(others):
        return None
    told = ", ".join(f"{name} {s * 1e3:,.2f} ms" for name, s in seconds.items())
    return (
        f"in {ask.num_ranks // ask.group_size} groups of {ask.group_size} ranks width "
        f"{own[0].dim} is exchanged faster on the links of a node and between nodes: {told}"
    )


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
        held, on_host = rows_held(table, placement, ask.num_ranks, unique, ask.group_size)
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
