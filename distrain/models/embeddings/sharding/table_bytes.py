"""Bytes that tables take of a rank's memory, and the error for tables that do not fit."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from distrain.errors import SpecError
from distrain.formatting import byte_size
from distrain.jobs.optimizers import kind_of_least_state, optimizer_facts
from distrain.models.embeddings.columns import PLACEMENTS, TableColumn, first_of_tables
from distrain.models.embeddings.sharding.costs import expected_unique

WEIGHT_BYTES = {"fp32": 4, "bf16": 2}
_MOST_RANKS = 1 << 16


@dataclass(frozen=True)
class TableSize:
    """One table as the plan sees it; without `columns` it is that of one column of its name."""

    name: str  # the table, called as its column if it has one alone
    rows: int
    dim: int
    # distinct rows that a rank's batch touches; `None`: `expected_unique` of its rows and of
    # one lookup for each row of the batch and column
    expected_unique: float | None = None
    columns: tuple[str, ...] = ()

    def unique(self, batch_rows_per_rank: int) -> float:
        if self.expected_unique is not None:
            return min(float(self.rows), self.expected_unique)
        return expected_unique(self.rows, batch_rows_per_rank * max(1, len(self.columns)))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.name, *self.columns)))


def table_sizes(columns: Sequence[TableColumn]) -> list[TableSize]:
    """The tables of columns, each once, in the order of their first columns.

    >>> columns = [TableColumn("bought", 9, 4, table="item"), TableColumn("shop", 3, 4)]
    >>> columns.append(TableColumn("seen", 9, 4, "mean", table="item"))
    >>> [(table.name, table.rows, table.columns) for table in table_sizes(columns)]
    [('item', 9, ('bought', 'seen')), ('shop', 3, ('shop',))]
    """
    return [
        TableSize(
            first.table_name,
            first.cardinality,
            first.dim,
            columns=tuple(c.name for c in columns if c.table_name == first.table_name),
        )
        for first in first_of_tables(columns)
    ]


@dataclass(frozen=True)
class RowBytes:
    optimizer: str
    weight_bytes_per_value: int = 4

    def weight(self, dim: int) -> int:
        return self.weight_bytes_per_value * dim

    def state(self, dim: int) -> int:
        """Bytes of the optimizer's state for a row, which is fp32 whatever the weights are."""
        return optimizer_facts(self.optimizer).update_rule.state_bytes(dim)

    def both(self, dim: int) -> int:
        return self.weight(dim) + self.state(dim)


Placed = tuple[TableSize, str, float]  # a table, its placement, and its distinct rows of a step


def rows_held(table: TableSize, placement: str, num_ranks: int, unique: float) -> tuple[int, int]:
    """Rows of a table in the memory that the budget is for, and in the host's beside it.

    A rank owns `ceil(rows / num_ranks)` rows of a dealt table at most; of a host-cached one the
    device must hold a step's rows at least.
    """
    facts = PLACEMENTS[placement]
    held = -(-table.rows // num_ranks) if facts.is_dealt else table.rows
    return (min(held, math.ceil(unique)), held) if facts.on_host else (held, 0)


def bytes_taken(tables: Iterable[Placed], num_ranks: int, row: RowBytes) -> int:
    return sum(
        rows_held(table, placement, num_ranks, unique)[0] * row.both(table.dim)
        for table, placement, unique in tables
    )


def does_not_fit(
    placed: Sequence[Placed], num_ranks: int, row: RowBytes, budget_bytes: int
) -> SpecError:
    """The error for tables at their smallest: the excess, and each change that mends it."""
    taken = bytes_taken(placed, num_ranks, row)
    largest = max(placed, key=lambda item: bytes_taken([item], num_ranks, row))
    table, placement, _ = largest
    share = byte_size(bytes_taken([largest], num_ranks, row))
    weights = sum(
        rows_held(table, placement, num_ranks, unique)[0] * row.weight(table.dim)
        for table, placement, unique in placed
    )
    ways = _ways(placed, num_ranks, row, budget_bytes)
    rounded_up_gib = math.ceil(taken / 2**30 * 1000) / 1000
    return SpecError(
        f"the embedding tables and their optimizer state take {byte_size(taken)} on each rank, "
        f"and may take {byte_size(budget_bytes)}",
        where={
            "ranks": num_ranks,
            "weights": f"{byte_size(weights)} on each rank",
            "optimizer state": f"{byte_size(taken - weights)} on each rank",
            "largest table": f"{table.name}, {table.rows:,} rows of {table.dim}, {placement}: "
            f"{share}",
        },
        hint="What would fit: " + "; ".join([*ways, f"embeddings.memory_gib: {rounded_up_gib}"]),
    )


def _ways(placed: Sequence[Placed], num_ranks: int, row: RowBytes, budget: int) -> list[str]:
    sharded = _all_as("row_wise", placed)
    kind = kind_of_least_state()
    small_state = replace(row, optimizer=kind)
    half = replace(row, weight_bytes_per_value=2)
    both = f"bf16 and {kind} together"
    tried = [
        ("embeddings.placement: row_wise", sharded, row),
        ("embeddings.storage: bf16", placed, half),
        (f"train.optimizer.kind: {kind}", placed, small_state),
        (both, placed, replace(small_state, weight_bytes_per_value=2)),
    ]
    found = [
        (option, needs)
        for option, tables, row_bytes in tried
        if (needs := bytes_taken(tables, num_ranks, row_bytes)) <= budget
    ]
    if len(found) > 1:  # what two changes do together matters only where one does not suffice
        found = [way for way in found if way[0] != both]
    ways = [f"{option} ({byte_size(needs)})" for option, needs in found]
    ways += _more_ranks(sharded, num_ranks, row, budget)
    ways += _smaller_dim(placed, num_ranks, row, budget)
    ways += _on_the_host(placed, num_ranks, row, budget)
    return ways


def _all_as(placement: str, placed: Sequence[Placed]) -> list[Placed]:
    return [(table, placement, unique) for table, _, unique in placed]


def _more_ranks(sharded: list[Placed], num_ranks: int, row: RowBytes, budget: int) -> list[str]:
    """The fewest ranks among which row-wise tables fit, found by bisection."""
    low, high = num_ranks, _MOST_RANKS
    if bytes_taken(sharded, high, row) > budget or bytes_taken(sharded, low, row) <= budget:
        return []
    while high - low > 1:
        middle = (low + high) // 2
        fits = bytes_taken(sharded, middle, row) <= budget
        low, high = (low, middle) if fits else (middle, high)
    return [f"row-wise on {high:,} ranks ({byte_size(bytes_taken(sharded, high, row))} each)"]


def _smaller_dim(placed: Sequence[Placed], num_ranks: int, row: RowBytes, budget: int) -> list[str]:
    """The largest width that fits, found by bisection: there may be a million to choose from."""

    def needs(most: int) -> int:
        narrow = [(replace(t, dim=min(t.dim, most)), placement, u) for t, placement, u in placed]
        return bytes_taken(narrow, num_ranks, row)

    fits, too_wide = 0, max(table.dim for table, _, _ in placed)
    while too_wide - fits > 1:
        middle = (fits + too_wide) // 2
        fits, too_wide = (middle, too_wide) if needs(middle) <= budget else (fits, middle)
    return [f"widths of at most {fits} ({byte_size(needs(fits))})"] if fits else []


def _on_the_host(placed: Sequence[Placed], num_ranks: int, row: RowBytes, budget: int) -> list[str]:
    cached = _all_as("host_cached", placed)
    least = bytes_taken(cached, num_ranks, row)
    if least > budget:
        return []
    on_host = sum(
        rows_held(table, placement, num_ranks, unique)[1] * row.both(table.dim)
        for table, placement, unique in cached
    )
    return [
        f"embeddings.placement: host_cached ({byte_size(on_host)} of host memory for each rank, "
        f"and at least {byte_size(least)} here)"
    ]


_SLACK = 1.25
_DEVIATIONS = 6  # of the number of an owner's rows, were each row with it by chance


def with_slack(expected: float) -> int:
    """Rows that there is capacity for where so many are expected.

    >>> with_slack(0), with_slack(10_000)
    (0, 13100)
    """
    return math.ceil(_SLACK * expected + _DEVIATIONS * math.sqrt(expected))


def whole_room(table: TableSize, batch_rows: int) -> int:
    """The most rows of a table that a batch can touch.

    >>> whole_room(TableSize("shop", 500, 4), 100), whole_room(TableSize("shop", 50, 4), 100)
    (100, 50)
    """
    return min(table.rows, batch_rows * max(1, len(table.columns)))


def spread_room(tables: Sequence[TableSize], batch_rows: int, owners: int) -> float:
    """Capacity of a rank for all owners' rows of a store's tables, as a multiple of those expected.

    >>> round(spread_room([TableSize("a", 10**6, 4, 10_000)], 65_536, owners=4), 2)
    1.37
    """
    expected = sum(table.unique(batch_rows) for table in tables)
    if not expected:
        return 1.0
    most = sum(min(table.rows, owners * whole_room(table, batch_rows)) for table in tables)
    return min(most, owners * with_slack(expected / owners)) / expected
