"""Which columns' tables go into which store."""

from collections.abc import Iterator, Sequence
from itertools import accumulate

from distrain.embeddings.columns import TableColumn, first_of_tables
from distrain.embeddings.peers import Peers
from distrain.embeddings.store import Store
from distrain.errors import InputError

PLACEMENTS = ("replicated", "row_wise", "host_cached")


def placement_words(
    columns: Sequence[TableColumn], placements: Sequence[str] | None, num_ranks: int
) -> tuple[str, ...]:
    """Each column's placement.

    Args:
        columns: All of a collection.
        placements: As wanted; `None` for all replicated.
        num_ranks: Ranks that share the tables; one holds everything, whatever it is called.

    Raises:
        ValueError: There are more or fewer placements than columns.
        InputError: One is unknown, or a table's columns have different ones.
    """
    words = ("replicated",) * len(columns) if placements is None else tuple(placements)
    if len(words) != len(columns):
        raise ValueError(f"{len(words)} placements for {len(columns)} tables")
    first: dict[str, tuple[str, str]] = {}
    for column, word in zip(columns, words, strict=True):
        if word not in PLACEMENTS:
            raise InputError(
                f"unknown placement {word!r}", hint=f"Allowed: {', '.join(PLACEMENTS)}."
            )
        other, other_word = first.setdefault(column.table_name, (column.name, word))
        if word != other_word:
            raise InputError(
                f"{other!r} and {column.name!r} share the table {column.table_name!r}, which "
                f"cannot be both {other_word} and {word}"
            )
    if num_ranks > 1:
        return words
    return tuple("replicated" if word == "row_wise" else word for word in words)


def make_stores(
    columns: Sequence[TableColumn],
    groups: Sequence[Sequence[int]],
    words: Sequence[str],
    peers: Peers,
) -> Iterator[Store]:
    """The stores, group by group.

    Args:
        columns: All of a collection.
        groups: Their positions by width.
        words: Each column's placement.
        peers: Who shares the tables.
    """
    for group in groups:
        of_group = first_of_tables(columns[i] for i in group)
        starts = accumulate((table.cardinality for table in of_group), initial=0)
        start_of = dict(zip((table.table_name for table in of_group), starts, strict=False))
        for word in PLACEMENTS:
            flat = tuple(i for i in group if words[i] == word and columns[i].combiner is None)
            lists = tuple(i for i in group if words[i] == word and columns[i].combiner is not None)
            if not flat + lists:
                continue
            own = tuple(columns[i] for i in flat + lists)
            tables = first_of_tables(own)
            number_of = {table.table_name: number for number, table in enumerate(tables)}
            yield Store(
                placement=word,
                flat=flat,
                lists=lists,
                columns=own,
                tables=tables,
                table_of=tuple(number_of[column.table_name] for column in own),
                places=tuple(group.index(i) for i in flat + lists),
                canonical_starts=tuple(start_of[table.table_name] for table in tables),
                peers=peers,
            )
