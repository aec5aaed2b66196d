"""The plan of the placement of all tables, and its explanation for users."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from distrain.formatting import byte_size
from distrain.models.embeddings.columns import PLACEMENTS, TableColumn
from distrain.models.embeddings.sharding.table_bytes import TablePlan


@dataclass(frozen=True)
class ShardingPlan:
    tables: tuple[TablePlan, ...]
    num_ranks: int
    budget_bytes: int | None  # the limit of the tables' bytes on a rank; `None`: no limit

    @property
    def placements(self) -> tuple[str, ...]:
        return tuple(table.placement for table in self.tables)

    def placements_of(self, columns: Iterable[TableColumn]) -> tuple[str, ...]:
        """Return the placement of each column, for `EmbeddingCollection`."""
        placement_of = {table.name: table.placement for table in self.tables}
        return tuple(placement_of[column.table_name] for column in columns)

    def sharers(self, placement: str) -> int:
        return self.num_ranks if PLACEMENTS[placement].is_dealt else 1

    def total(self, field: str) -> float:
        """Return the sum of one field of `TablePlan` over all tables."""
        total: float = sum(getattr(table, field) for table in self.tables)
        return total

    @property
    def bytes_per_rank(self) -> int:
        return sum(table.held_bytes for table in self.tables)

    @property
    def host_bytes_per_rank(self) -> int:
        """The bytes of the host-cached tables of one rank, in the host's memory."""
        return sum(table.host_bytes for table in self.tables)

    def to_json(self) -> dict[str, Any]:
        totals = {
            "bytes_per_rank": self.bytes_per_rank,
            "host_bytes_per_rank": self.host_bytes_per_rank,
            "sent_bytes_per_step": self.total("sent_bytes"),
        }
        return asdict(self) | totals


def explain(plan: ShardingPlan) -> list[str]:
    """Return lines of text: one for each table, the totals, and the reasons for the placements."""
    wide = max([5, *(len(table.name) for table in plan.tables)])
    lines = [
        f"{'table':{wide}}{'rows':>13}{'dim':>5}  {'placement':12}{'a rank holds':>14}"
        f"{'rows a step':>13}{'sends a step':>14}"
    ]
    lines += [
        f"{table.name:{wide}}{table.rows:13,}{table.dim:5}  {table.placement:12}"
        f"{byte_size(table.held_bytes):>14}{table.unique:13,.0f}{byte_size(table.sent_bytes):>14}"
        for table in plan.tables
    ]
    return [*lines, "", *_totals(plan), "", *_reasons(plan)]


def _totals(plan: ShardingPlan) -> list[str]:
    parts = {"weights": "weight_bytes", "optimizer": "optimizer_bytes", "averages": "average_bytes"}
    sizes = ((name, plan.total(field)) for name, field in parts.items())
    held = ", ".join(f"{name} {byte_size(size)}" for name, size in sizes if size)
    limit = "no limit" if plan.budget_bytes is None else f"limit {byte_size(plan.budget_bytes)}"
    lines = [f"a rank holds {byte_size(plan.bytes_per_rank)} of tables: {held}; {limit}"]
    if plan.host_bytes_per_rank:
        lines.append(f"and {byte_size(plan.host_bytes_per_rank)} in the host's memory")
    room, unique = plan.total("room"), plan.total("unique")
    if room > unique:
        lines.append(
            f"a recorded step has room for {room:,.0f} rows, of which {unique:,.0f} are expected"
        )
    if plan.num_ranks > 1:
        lines.append(f"a rank sends {byte_size(plan.total('sent_bytes'))} a step")
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
