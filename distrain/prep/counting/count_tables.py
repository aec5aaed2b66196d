"""The tables of counts and target means, fitted out of core.

No process holds a whole table: each piece is summed by a task, and one task for each column writes
its file, piece by piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from distrain.prep.counting.count_tasks import CountedColumn, Work, add_up
from distrain.prep.counting.spilled import read_buckets, write_rows
from distrain.prep.mapped_files import MappedFile
from distrain.prep.memory import MemoryPlan
from distrain.prep.operators.encodings import Encoding, check_number
from distrain.prep.operators.operator import in_column
from distrain.prep.operators.value_table import Cells, SavedTable, ValueTable
from distrain.prep.workers import TaskRunner


@dataclass(frozen=True)
class _Piece:
    path: str
    num_values: int


def fit_tables(
    counted: Sequence[CountedColumn],
    runner: TaskRunner,
    categories: str,
    staging: str,
    memory: MemoryPlan,
) -> list[SavedTable]:
    """Write the tables of counts or target means of some columns to the folder `categories`.

    Returns one table for each of `counted`, in order. Each stays in its file until it is used.
    `staging` is a folder for temporary files. `memory` bounds the memory of each task.

    Raises:
        DataError: A column has more than `MOST_VALUES` distinct values.
    """
    work = []
    for column in counted:
        num_folds = cast(Encoding, column.operator).num_folds
        # A cell takes as much memory as counts and sums of two folds; a table has all folds.
        size_bytes = column.size_bytes * (1 + num_folds // 2)
        whole = (column.name, categories, memory.table_bytes)
        work.append(Work(size_bytes, (column.files, num_folds), whole))
    stem = f"{staging}/table"
    return add_up(runner, _sum_piece, _write_table, work, stem, memory.piece_bytes)


def _sum_piece(files: Sequence[str], num_folds: int, buckets: range, stem: str) -> _Piece:
    cells = Cells.joined([read_buckets(path, buckets) for path in files])
    table = ValueTable.of_cells(cells, num_folds)
    write_rows(table.rows, f"{stem}.arrow")
    return _Piece(f"{stem}.arrow", len(table.values))


def _write_table(
    name: str, categories: str, table_bytes: int, pieces: Sequence[_Piece]
) -> SavedTable:
    with in_column(name):
        check_number(sum(piece.num_values for piece in pieces))
    files = [MappedFile.staged(piece.path) for piece in pieces]
    table = SavedTable.write(categories, name, [file.rows for file in files], files)
    return replace(table, most_bytes=table_bytes)
