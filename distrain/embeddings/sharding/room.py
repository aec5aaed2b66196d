"""Room for distinct rows in a captured step, whose shapes cannot follow from its ids.

Of tables that a rank holds whole there is room for all rows that a batch can touch. Of those that
are spread over ranks there is room for more rows of each owner than are expected of it, and it
grows where a batch wants more (`embeddings/padded.py`). No torch in here.
"""

import math
from collections.abc import Sequence

from distrain.embeddings.sharding.table_bytes import TableSize

_SLACK = 1.25
_DEVIATIONS = 6  # of the number of an owner's rows, were each row with it by chance


def with_slack(expected: float) -> int:
    """Rows that there is room for where so many are expected.

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
    """Room of a rank for the rows of all owners, as a multiple of those expected.

    The owners of a store have room for its tables together.

    >>> round(spread_room([TableSize("a", 10**6, 4, 10_000)], 65_536, owners=4), 2)
    1.37
    """
    expected = sum(table.unique(batch_rows) for table in tables)
    if not expected:
        return 1.0
    most = sum(min(table.rows, owners * whole_room(table, batch_rows)) for table in tables)
    return min(most, owners * with_slack(expected / owners)) / expected
