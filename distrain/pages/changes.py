"""Updates of a browser's columns: no change, some cells, rows to append, or all columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bokeh.models import ColumnDataSource

from distrain.pages.figure_data import Columns, Series

KEPT_POINTS = 4_096
"""Points of a curve in a browser at most; the series that it follows are far shorter."""


@dataclass(frozen=True)
class Append:
    """Rows to append."""

    columns: Columns


@dataclass(frozen=True)
class Patch:
    """Cells to change, by column and row."""

    cells: dict[str, list[tuple[int, Any]]]


@dataclass(frozen=True)
class Replace:
    """All columns anew."""

    columns: Columns


Change = Append | Patch | Replace


def difference(old: Mapping[str, Sequence[Any]], new: Columns) -> Change | None:
    """The smallest of the changes that turns `old` into `new`; `None` if they are equal.

    >>> difference({"a": [1, 2]}, {"a": [1, 3]})
    Patch(cells={'a': [(1, 3)]})
    >>> difference({"a": [1, 2]}, {"a": [1, 2, 3]})
    Append(columns={'a': [3]})
    >>> difference({"a": [1, 2]}, {"a": [1, 2]})
    """
    lengths = {len(column) for column in old.values()}
    had = lengths.pop() if len(lengths) == 1 and old.keys() == new.keys() else 0
    have = min((len(column) for column in new.values()), default=0)
    if not had or have < had:
        return None if _equal(old, new) else Replace(new)
    cells = {
        name: [(row, column[row]) for row in range(had) if column[row] != old[name][row]]
        for name, column in new.items()
    }
    cells = {name: changed for name, changed in cells.items() if changed}
    if have > had:
        return Replace(new) if cells else Append({name: c[had:] for name, c in new.items()})
    return Patch(cells) if cells else None


def bring_up_to_date(source: ColumnDataSource, columns: Columns) -> bool:
    """Send the changes of a source's columns; returns whether rows were replaced.

    Rows that were selected by number are other rows then.
    """
    match difference(source.data, columns):
        case Append(new):
            source.stream(new)
        case Patch(cells):
            source.patch(cells)
        case Replace(new):
            source.data = new
            return True
    return False


def extend(source: ColumnDataSource, points: Series, anew: bool) -> None:
    """Append points to a curve, or draw it anew."""
    if anew:
        source.data = {name: values[-KEPT_POINTS:] for name, values in points.items()}
    elif any(len(values) for values in points.values()):
        source.stream(points, rollover=KEPT_POINTS)


def _equal(old: Mapping[str, Sequence[Any]], new: Columns) -> bool:
    return old.keys() == new.keys() and all(list(old[name]) == new[name] for name in new)
