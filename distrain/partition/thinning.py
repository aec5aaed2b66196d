"""Leaves out rows with label 0 by chance, the same ones on any number of ranks, in every epoch."""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from distrain.errors import DataError
from distrain.partition.order import row_draws
from distrain.partition.scanning import Columns, scan_columns
from distrain.partition.table import RowGroup, Table


def thinned(table: Table, label: str, share: float, seed: int, retry_s: float = 0.0) -> Table:
    """The table with each row whose label is 0 kept with probability `share`.

    Whether a row is kept depends on its number in the table, of the rows that are taken, and on the
    seed. Rows with other labels stay.

    Args:
        share: Above 0 and below 1.
        retry_s: How long to try again where the storage does not answer, for each file.

    Raises:
        DataError: A file cannot be read, or no row is left.
        Unavailable: The storage does not answer.
    """
    groups = table.row_groups
    firsts = accumulate((group.num_rows for group in groups), initial=0)
    first_of = {
        (group.file, group.index): first for group, first in zip(groups, firsts, strict=False)
    }

    def kept(group: RowGroup, columns: Columns) -> RowGroup | None:
        first = first_of[group.file, group.index]
        stays = row_draws(seed, first, group.num_rows) < np.uint64(share * 2.0**64)
        if label in columns:
            labels = columns[label].to_numpy()  # nulls, which the loader refuses, become NaN
            return group.taking(stays | (labels != 0))
        return group.taking(stays) if dict(group.constants)[label] == 0 else group

    found = scan_columns(groups, [label], kept, retry_s)
    if not any(found):
        raise DataError(
            "data.negatives leaves no rows",
            where={"data.negatives": share, "rows": table.num_rows},
            hint="All of few rows have label 0.",
        )
    return table.taking(found)
