"""Parts: row groups of one file that stay together when row groups are permuted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from distrain.errors import SpecError

if TYPE_CHECKING:
    from distrain.partition.table import RowGroup


def parts_of(
    row_groups: Sequence[RowGroup], part_rows: int | None = None
) -> tuple[tuple[int, ...], ...]:
    """Join neighbouring row groups of a file to parts of at most `part_rows` rows.

    Small row groups cost a reader more per row than large ones, and shuffling mixes the rows of
    small ones less. From the first row group on, each joins the part before it if both lie in the
    same file and the part has room; so a row group larger than `part_rows` is a part by itself.

    Args:
        row_groups: Those of a table, in file order.
        part_rows: The most rows of a part that has several row groups; `None` joins none.

    Returns:
        For each part its row groups, as places in `row_groups`: each place once, in order.

    Raises:
        SpecError: `part_rows` is less than 1.

    >>> from distrain.partition import RowGroup
    >>> parts_of([RowGroup("a", 0, 4), RowGroup("a", 1, 5), RowGroup("b", 0, 1)], part_rows=10)
    ((0, 1), (2,))
    """
    if part_rows is not None and part_rows < 1:
        raise SpecError(f"part_rows is {part_rows}, not 1 or more")
    parts: list[list[int]] = []
    rows_of_part = 0
    for place, group in enumerate(row_groups):
        rows_of_part += group.num_rows
        joins = (
            part_rows is not None
            and rows_of_part <= part_rows
            and place > 0
            and row_groups[place - 1].file == group.file
        )
        if joins:
            parts[-1].append(place)
        else:
            parts.append([place])
            rows_of_part = group.num_rows
    return tuple(tuple(part) for part in parts)
