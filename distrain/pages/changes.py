"""Updates of a browser's columns: no change, some cells, rows to append, or all columns."""

from collections.abc import Mapping, Sequence
from typing import Any

from bokeh.models import ColumnDataSource

from distrain.pages.figure_data import Columns, Series

KEPT_POINTS = 4_096
"""Points of a curve in a browser at most; the series that it follows are far shorter."""


def bring_up_to_date(source: ColumnDataSource, columns: Columns) -> bool:
    """Send the smallest change of a source's columns; returns whether rows were replaced.

    Rows that were selected by number are other rows then.
    """
    old: Mapping[str, Sequence[Any]] = source.data
    lengths = {len(column) for column in old.values()}
    had = lengths.pop() if len(lengths) == 1 and old.keys() == columns.keys() else 0
    have = min((len(column) for column in columns.values()), default=0)
    cells = {
        name: [(row, column[row]) for row in range(had) if column[row] != old[name][row]]
        for name, column in columns.items()
        if have >= had
    }
    cells = {name: changed for name, changed in cells.items() if changed}
    if have > had > 0 and not cells:
        source.stream({name: column[had:] for name, column in columns.items()})
    elif have == had > 0:
        if cells:
            source.patch(cells)
    elif {name: list(column) for name, column in old.items()} != columns:
        source.data = columns
        return True
    return False


def extend(source: ColumnDataSource, points: Series, anew: bool) -> None:
    if anew:
        source.data = {name: values[-KEPT_POINTS:] for name, values in points.items()}
    elif any(len(values) for values in points.values()):
        source.stream(points, rollover=KEPT_POINTS)
