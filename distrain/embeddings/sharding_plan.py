"""Where all tables live, as a plan says it."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from distrain.embeddings.columns import TableColumn
from distrain.embeddings.costs import Costs, Sent


@dataclass(frozen=True)
class TablePlan:
    """One table's place, and what it costs a rank.

    Attributes:
        name: Of the table: its column, if it is of one alone.
        rows: Of the table.
        dim: Width of a row.
        placement: "replicated", "row_wise" or "host_cached".
        why: In words.
        unique: Distinct rows that a rank's step is expected to touch.
        weight_bytes: Of its weights on a rank, at most.
        optimizer_bytes: Of the optimizer's state for them.
        host_bytes: Of both in the host's memory, for a host-cached table.
        sent: Bytes that a rank sends in a step.
        exchange_s: Predicted seconds of a step: its bytes, and its share of its store's latencies.
        columns: Those that are looked up in it.
    """

    name: str
    rows: int
    dim: int
    placement: str
    why: str
    unique: float
    weight_bytes: int
    optimizer_bytes: int
    host_bytes: int
    sent: Sent
    exchange_s: float
    columns: tuple[str, ...]


@dataclass(frozen=True)
class ShardingPlan:
    """Where all tables live.

    Attributes:
        tables: In the order of their first columns.
        num_ranks: Ranks that share them.
        budget_bytes: What they may take on a rank; `None`: no limit.
        costs: What the exchange was predicted with.
    """

    tables: tuple[TablePlan, ...]
    num_ranks: int
    budget_bytes: int | None
    costs: Costs

    @property
    def placements(self) -> tuple[str, ...]:
        """One word for each table."""
        return tuple(table.placement for table in self.tables)

    def placements_of(self, columns: Iterable[TableColumn]) -> tuple[str, ...]:
        """One word for each column, as `EmbeddingCollection` takes them."""
        word_of = {table.name: table.placement for table in self.tables}
        return tuple(word_of[column.table_name] for column in columns)

    @property
    def bytes_per_rank(self) -> int:
        """Weights and state on a rank."""
        return sum(table.weight_bytes + table.optimizer_bytes for table in self.tables)

    @property
    def host_bytes_per_rank(self) -> int:
        """What host-cached tables take of the host's memory for a rank."""
        return sum(table.host_bytes for table in self.tables)

    @property
    def sent_per_step(self) -> Sent:
        """Bytes that a rank sends in a step."""
        sent = [table.sent for table in self.tables]
        return Sent(sum(s.ids for s in sent), sum(s.rows for s in sent), sum(s.sums for s in sent))

    @property
    def exchange_s(self) -> float:
        """Predicted seconds of a step's exchange."""
        return sum(table.exchange_s for table in self.tables)

    def to_json(self) -> dict[str, Any]:
        """As JSON values, with the totals."""
        totals = {
            "bytes_per_rank": self.bytes_per_rank,
            "host_bytes_per_rank": self.host_bytes_per_rank,
            "sent_per_step": asdict(self.sent_per_step),
            "exchange_s": self.exchange_s,
        }
        return asdict(self) | totals
