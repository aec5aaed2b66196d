"""The plan of where all tables live: a record, and its explanation for people."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from distrain.formatting import byte_size
from distrain.models.embeddings.columns import PLACEMENTS, TableColumn
from distrain.models.embeddings.sharding.costs import Costs, Sent


@dataclass(frozen=True)
class TablePlan:
    name: str  # the table, called as its column if it has one alone
    rows: int
    dim: int
    placement: str
    why: str  # the reason, in words
    unique: float  # distinct rows that a rank's step is expected to touch
    room: float  # rows held and sent for these: as many, or what a captured step has capacity for
    weight_bytes: int  # bytes of its weights on a rank, at most; `optimizer_bytes`: of their state
    optimizer_bytes: int
    host_bytes: int  # bytes of both in the host's memory, for a host-cached table
    sent: Sent
    exchange_s: float  # predicted, of a step: its bytes, its share of its store's latencies
    columns: tuple[str, ...]  # those that are looked up in it


@dataclass(frozen=True)
class ShardingPlan:
    tables: tuple[TablePlan, ...]
    num_ranks: int
    budget_bytes: int | None  # what they may take on a rank; `None`: no limit
    costs: Costs  # what the exchange was predicted with

    @property
    def placements(self) -> tuple[str, ...]:
        return tuple(table.placement for table in self.tables)

    def placements_of(self, columns: Iterable[TableColumn]) -> tuple[str, ...]:
        """The placement of each column, as `EmbeddingCollection` takes them."""
        placement_of = {table.name: table.placement for table in self.tables}
        return tuple(placement_of[column.table_name] for column in columns)

    def sharers(self, placement: str) -> int:
        return self.num_ranks if PLACEMENTS[placement].is_dealt else 1

    @property
    def bytes_per_rank(self) -> int:
        return sum(table.weight_bytes + table.optimizer_bytes for table in self.tables)

    @property
    def host_bytes_per_rank(self) -> int:
        """What host-cached tables take of the host's memory for a rank."""
        return sum(table.host_bytes for table in self.tables)

    @property
    def sent_per_step(self) -> Sent:
        sent = [table.sent for table in self.tables]
        return Sent(sum(s.ids for s in sent), sum(s.rows for s in sent), sum(s.sums for s in sent))

    @property
    def exchange_s(self) -> float:
        return sum(table.exchange_s for table in self.tables)

    def to_json(self) -> dict[str, Any]:
        totals = {
            "bytes_per_rank": self.bytes_per_rank,
            "host_bytes_per_rank": self.host_bytes_per_rank,
            "sent_per_step": asdict(self.sent_per_step),
            "exchange_s": self.exchange_s,
        }
        return asdict(self) | totals


def explain(plan: ShardingPlan) -> list[str]:
    """Lines: a table of all tables, the totals, and why each placement was taken."""
    wide = max([5, *(len(table.name) for table in plan.tables)])
    lines = [
        f"{'table':{wide}}{'rows':>13}{'dim':>5}  {'placement':12}{'a rank holds':>14}"
        f"{'rows a step':>13}{'sends a step':>14}"
    ]
    lines += [
        f"{table.name:{wide}}{table.rows:13,}{table.dim:5}  {table.placement:12}"
        f"{byte_size(table.weight_bytes + table.optimizer_bytes):>14}{table.unique:13,.0f}"
        f"{byte_size(table.sent.total):>14}"
        for table in plan.tables
    ]
    return [*lines, "", *_totals(plan), "", *_reasons(plan)]


def _totals(plan: ShardingPlan) -> list[str]:
    weights = sum(table.weight_bytes for table in plan.tables)
    state = sum(table.optimizer_bytes for table in plan.tables)
    limit = "no limit" if plan.budget_bytes is None else f"limit {byte_size(plan.budget_bytes)}"
    sent = plan.sent_per_step
    lines = [
        f"a rank holds {byte_size(plan.bytes_per_rank)} of tables: weights {byte_size(weights)}, "
        f"optimizer {byte_size(state)}; {limit}"
    ]
    if plan.host_bytes_per_rank:
        lines.append(f"and {byte_size(plan.host_bytes_per_rank)} in the host's memory")
    room = sum(table.room for table in plan.tables)
    unique = sum(table.unique for table in plan.tables)
    if room > unique:
        lines.append(
            f"a captured step has room for {room:,.0f} rows, of which {unique:,.0f} are expected"
        )
    if plan.num_ranks > 1:
        parts = (
            f"ids {byte_size(sent.ids)}, rows {byte_size(sent.rows)}, sums {byte_size(sent.sums)}"
        )
        speed = f"{byte_size(plan.costs.bytes_per_s)}/s"
        lines += [
            f"a rank sends {byte_size(sent.total)} a step: {parts}",
            f"predicted exchange {plan.exchange_s * 1e3:,.2f} ms a step, at {speed} and "
            f"{plan.costs.latency_s * 1e6:,.0f} us a collective",
        ]
    return lines


def _reasons(plan: ShardingPlan) -> list[str]:
    named: dict[tuple[str, str], list[str]] = {}
    for table in plan.tables:
        named.setdefault((table.placement, table.why), []).append(table.name)
    reasons = [
        f"{placement}: {why} ({', '.join(names)})" for (placement, why), names in named.items()
    ]
    shared = [
        f"{table.name}: one table for the columns {', '.join(table.columns)}"
        for table in plan.tables
        if len(table.columns) > 1
    ]
    return reasons + shared
