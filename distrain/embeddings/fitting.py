"""The error for tables that do not fit, with what would fit in numbers."""

import math
from collections.abc import Sequence
from dataclasses import replace

from distrain.embeddings.table_bytes import RowBytes, TableSize, bytes_taken, rows_held
from distrain.errors import SpecError

Placed = tuple[TableSize, str, float]
"""A table, its placement, and its distinct rows of a step."""

_MOST_RANKS = 1 << 16
_BOTH = "bf16 and rowwise_adagrad together"


def does_not_fit(
    placed: Sequence[Placed], num_ranks: int, row: RowBytes, budget_bytes: int
) -> SpecError:
    """Say by how much tables exceed the budget, and each single change that would mend it.

    Args:
        placed: The tables as they were to be placed, in the way that takes least.
        num_ranks: Ranks that share them.
        row: What a row takes.
        budget_bytes: What they may take on a rank.
    """
    taken = bytes_taken(placed, num_ranks, row)
    largest = max(placed, key=lambda item: bytes_taken([item], num_ranks, row))
    table, placement, _ = largest
    share = size_text(bytes_taken([largest], num_ranks, row))
    weights = bytes_taken(placed, num_ranks, replace(row, optimizer="sgd"))  # which has no state
    ways = _ways(placed, num_ranks, row, budget_bytes)
    return SpecError(
        f"the embedding tables and their optimizer state take {size_text(taken)} on each rank, "
        f"and may take {size_text(budget_bytes)}",
        where={
            "ranks": num_ranks,
            "weights": f"{size_text(weights)} on each rank",
            "optimizer state": f"{size_text(taken - weights)} on each rank",
            "largest table": f"{table.name}, {table.rows:,} rows of {table.dim}, {placement}: "
            f"{share}",
        },
        hint="What would fit: "
        + "; ".join([*ways, f"embeddings.memory_gib: {_rounded_up(taken)}"]),
    )


def size_text(size_bytes: float) -> str:
    """A size for people, not rounded to nothing.

    >>> size_text(3 * 2**30), size_text(2**20), size_text(1000)
    ('3.00 GiB', '1.00 MiB', '1,000 bytes')
    """
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:,.2f} {name}"
    return f"{size_bytes:,.0f} bytes"


def _rounded_up(size_bytes: int) -> float:
    return math.ceil(size_bytes / 2**30 * 1000) / 1000


def _ways(placed: Sequence[Placed], num_ranks: int, row: RowBytes, budget: int) -> list[str]:
    sharded = _all_as("row_wise", placed)
    small_state = replace(row, optimizer="rowwise_adagrad")
    half = replace(row, weight_bytes_per_value=2)
    both = replace(small_state, weight_bytes_per_value=2)
    tried = [
        ("embeddings.placement: row_wise", sharded, row),
        ("embeddings.storage: bf16", placed, half),
        ("train.optimizer.kind: rowwise_adagrad", placed, small_state),
        (_BOTH, placed, both),
    ]
    found = [
        (words, needs)
        for words, tables, kind in tried
        if (needs := bytes_taken(tables, num_ranks, kind)) <= budget
    ]
    if len(found) > 1:  # what two changes do together matters only where one does not suffice
        found = [way for way in found if way[0] != _BOTH]
    ways = [f"{words} ({size_text(needs)})" for words, needs in found]
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
    return [f"row-wise on {high:,} ranks ({size_text(bytes_taken(sharded, high, row))} each)"]


def _smaller_dim(placed: Sequence[Placed], num_ranks: int, row: RowBytes, budget: int) -> list[str]:
    """The largest width that fits, found by bisection: there may be a million to choose from."""

    def needs(most: int) -> int:
        narrow = [(replace(t, dim=min(t.dim, most)), word, u) for t, word, u in placed]
        return bytes_taken(narrow, num_ranks, row)

    fits, too_wide = 0, max(table.dim for table, _, _ in placed)
    while too_wide - fits > 1:
        middle = (fits + too_wide) // 2
        fits, too_wide = (middle, too_wide) if needs(middle) <= budget else (fits, middle)
    return [f"widths of at most {fits} ({size_text(needs(fits))})"] if fits else []


def _on_the_host(placed: Sequence[Placed], num_ranks: int, row: RowBytes, budget: int) -> list[str]:
    cached = _all_as("host_cached", placed)
    least = bytes_taken(cached, num_ranks, row)
    if least > budget:
        return []
    on_host = sum(
        rows_held(table, word, num_ranks, unique)[1] * row.both(table.dim)
        for table, word, unique in cached
    )
    return [
        f"embeddings.placement: host_cached ({size_text(on_host)} of host memory for each rank, "
        f"and at least {size_text(least)} here)"
    ]
