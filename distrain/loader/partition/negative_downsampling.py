"""Drops rows with label 0 at random: the same rows in every epoch, for any number of ranks."""

from __future__ import annotations

from zlib import crc32

import numpy as np

from distrain.errors import DataError
from distrain.loader.partition.row_order import row_draws
from distrain.loader.partition.scanning import Columns, scan_columns
from distrain.loader.partition.table import RowGroup, Table
from distrain.schema.folders import folder_values


def downsampled(table: Table, label: str, share: float, seed: int, retry_s: float = 0.0) -> Table:
    """Return a table in which each row whose label is 0 is kept with probability `share`.

    Whether a row is kept depends on its number in its file, the file's base name, the `key=value`
    folders above it, and the seed; not on other files or on which other rows are selected. Rows
    with other labels are always kept.

    Args:
        label: The name of the label's column.
        share: The probability, above 0 and below 1.
        retry_s: How long to retry if the storage does not answer, for each file.

    Raises:
        DataError: A file cannot be read, or no row is left.
        Unavailable: The storage does not answer.
    """

    def kept(group: RowGroup, columns: Columns, first: int) -> RowGroup | None:
        folders = [f"{key}={value}/" for key, value in folder_values(group.file)]
        file = crc32("".join([*folders, group.file.rpartition("/")[2]]).encode())
        draws = row_draws(seed, file, first, group.group_rows)[group.rows_in_file]
        stays = draws < np.uint64(share * 2.0**64)
        if label in columns:
            labels = columns[label].to_numpy()  # nulls, which the loader rejects, become NaN
            return group.taking(stays | (labels != 0))
        return group.taking(stays) if dict(group.constants)[label] == 0 else group

    groups = scan_columns(table.row_groups, [label], kept, retry_s)
    if not any(groups):
        raise DataError(
            "data.negatives leaves no rows",
            where={"data.negatives": share, "rows": table.num_rows},
            hint="The table is small, and all its rows have label 0.",
        )
    return table.taking(groups)
