"""The rows of a file to staging files: labels and features, apart for training and validation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distrain.errors import DataError
from distrain.etl.features.bad_values import BadValues, Places, converted
from distrain.etl.features.config import FeatureConfig
from distrain.etl.features.document import FormatSpec
from distrain.etl.features.joins import same_side_tables
from distrain.etl.features.partitions import with_partitions
from distrain.etl.features.rows import Mask, Unlabelled, labels_of, validation_mask
from distrain.etl.features.table_file import TableFile
from distrain.etl.features.text_rows import (
    TextRows,
    TornLines,
    line_of,
    parse_block,
    without_header,
)
from distrain.etl.features.values import flat, staged_values
from distrain.etl.lists import holds_lists
from distrain.etl.operators import PLAIN, concrete
from distrain.etl.parts import ROW_NUMBER, Part, located, read_part, stage_table
from distrain.etl.raw_lines import NO_LABEL, BadLine, BadLineTally, num_lines, shown
from distrain.etl.texts import TextRange, check_stream, count_lines_before, parsed_pieces
from distrain.schema import LABEL


@dataclass(frozen=True)
class TableTask:
    """What one task stages.

    Attributes:
        file: The file.
        rows: Bytes of text, or row groups of parquet.
        features: What the columns are.
        lists: The features that hold lists.
        skip_bad_lines: Leave bad lines of text out, rather than stop at the first.
        block_bytes: Text that is parsed at once.
        stem: How the names of the staging files begin.
        side_digests: Of the side tables that rows are joined with.
        spelling: How the workflow makes texts of other values.
    """

    file: TableFile
    rows: TextRange | Part
    features: FeatureConfig
    lists: frozenset[str]
    skip_bad_lines: bool
    block_bytes: int
    stem: str
    side_digests: tuple[str, ...] = ()
    spelling: int = PLAIN

    @property
    def is_traced(self) -> bool:
        """Whether rows say where in the file they stand."""
        return self.features.unlabeled or bool(self.features.keep)

    @property
    def read_columns(self) -> list[str]:
        """What is read of the file."""
        return [name for name in self.features.inputs if name in self.file.types]


@dataclass(frozen=True)
class StagedTable:
    """The staging files of one task.

    Attributes:
        parts: Rows in input order: those for training, or all where nothing is split by values.
        valid_parts: Rows for validation.
        num_lines: How many lines of text there were.
        bad_lines: The lines left out, numbered from the range's start.
        unlabelled: How many rows were left out since their target is missing.
        num_ones: How many rows have the label 1.
    """

    parts: tuple[Part, ...]
    valid_parts: tuple[Part, ...]
    num_lines: int = 0
    bad_lines: BadLineTally = field(default_factory=BadLineTally)
    unlabelled: int = 0
    num_ones: int = 0

    @property
    def num_left_out(self) -> int:
        """Rows that are in no part."""
        return self.bad_lines.count + self.unlabelled


class _BadColumn(Exception):
    def __init__(self, column: str, bad: BadValues):
        super().__init__(column)
        self.column = column
        self.bad = bad


def stage_table_rows(task: TableTask) -> StagedTable:
    """Read rows, make labels and features of them, and write these to `STEM-*`.

    Raises:
        DataError: A value, or a line, that cannot be used.
    """
    if not isinstance(task.rows, Part):
        return _stage_text(task, task.rows)
    table = read_part(task.rows, task.read_columns)

    def refuse(found: _BadColumn, rows: Places) -> NoReturn:
        where = {"column": found.column, "row": int(rows[found.bad.places[0]])}
        message = f"{found.column} is {found.bad.said(0)}"
        raise DataError(message, where=where, hint=found.bad.hint) from None

    with located(task.rows):
        whole = TextRows(table, np.arange(table.num_rows))
        made = _usable(whole, task, None, refuse)
    staged = _numbered(made.rows, made.places, task)
    parts, valid = _written(staged, made.mask, task, 0)
    return StagedTable(parts, valid, unlabelled=made.unlabelled, num_ones=_ones(staged))


def _stage_text(task: TableTask, text: TextRange) -> StagedTable:
    layout = task.features.document.format
    has_header = layout.header and text.start == 0 and task.file.kind == "csv"

    def parse(piece: bytes, lines_before: int) -> _ParsedPiece:
        found, before = piece, lines_before
        if has_header and before == 0:
            found, before = without_header(piece), 1
        try:
            staged, numbers, bad = _parsed(found, task, layout, before, text)
        except DataError:
            check_stream(text)  # or a damaged file would be told as a mistake of its writer
            raise
        tally = BadLineTally.of(bad).shifted(text.path, before)
        return _ParsedPiece(staged, numbers, num_lines(piece), tally)

    parts: list[Part] = []
    valid: list[Part] = []
    tally, lines, num_rows, unlabelled, num_ones = BadLineTally(), 0, 0, 0, 0
    with closing(parsed_pieces(text, task.block_bytes, parse)) as pieces:
        for number, block in groupby(pieces, key=itemgetter(0)):
            found = [piece for _, piece in block]
            tally = reduce(BadLineTally.merged, (piece.bad_lines for piece in found), tally)
            lines += sum(piece.num_lines for piece in found)
            unlabelled += sum(piece.staged.unlabelled for piece in found)
            masks = [piece.staged.mask for piece in found if piece.staged.mask is not None]
            whole = np.concatenate(masks) if masks else None
            numbered = []
            for piece in found:
                numbered.append(_numbered(piece.staged.rows, piece.row_numbers + num_rows, task))
                num_rows += piece.num_rows
            rows = pa.concat_tables(numbered)
            num_ones += _ones(rows)
            of_block, valid_of_block = _written(rows, whole, task, number)
            parts += of_block
            valid += valid_of_block
    return StagedTable(tuple(parts), tuple(valid), lines, tally, unlabelled, num_ones)


class _Usable(NamedTuple):
    rows: pa.Table
    places: Places  # among the rows that were given
    mask: Mask | None
    unlabelled: int


class _ParsedPiece(NamedTuple):
    staged: _Usable
    row_numbers: Places
    num_lines: int
    bad_lines: BadLineTally

    @property
    def num_rows(self) -> int:
        """All rows, those left out counted."""
        return len(self.row_numbers) + self.staged.unlabelled + self.bad_lines.count


def _parsed(
    block: bytes, task: TableTask, layout: FormatSpec, lines_before: int, text: TextRange
) -> tuple[_Usable, Places, list[BadLine]]:
    """The rows, their places among all rows of the block, bad ones counted, and what is bad."""

    def stop(line: BadLine) -> DataError:
        return line.at(task.file.path, lines_before + count_lines_before(text)).error()

    try:
        rows = parse_block(block, task.file, layout, task.read_columns)
    except TornLines as torn:
        raise stop(torn.line) from None
    bad = list(rows.bad)
    if bad and not task.skip_bad_lines:
        raise stop(bad[0])

    def leave_out(found: _BadColumn, lines: Places) -> None:
        more = _bad_lines(block, lines, found)
        if not task.skip_bad_lines:
            raise stop(next(more)) from None
        bad.extend(more)

    no_rows = [line.line - 1 for line in rows.bad]
    staged = _usable(rows, task, layout, leave_out)
    numbers = staged.places + np.searchsorted(no_rows, rows.lines[staged.places])
    return staged, numbers, sorted(bad, key=lambda line: line.line)


def _usable(
    rows: TextRows,
    task: TableTask,
    layout: FormatSpec | None,
    leave_out: Callable[[_BadColumn, Places], None],
) -> _Usable:
    """The rows that can be used; `leave_out` hears of the others, and may raise an error."""
    may_lack_labels, unlabelled = task.features.document.target.missing == "drop", 0
    table, places = rows.table, np.arange(rows.table.num_rows)
    while True:
        try:
            staged, mask = _staged(table, task, layout)
            return _Usable(staged, places, mask, unlabelled)
        except _BadColumn as found:
            if may_lack_labels and isinstance(found.bad, Unlabelled):
                unlabelled += len(found.bad.places)
            else:
                leave_out(found, rows.lines[places])
            places = np.delete(places, found.bad.places)
            table = rows.table.take(places)


def _bad_lines(block: bytes, lines: Places, found: _BadColumn) -> Iterator[BadLine]:
    told: set[int] = set()
    kind = NO_LABEL if isinstance(found.bad, Unlabelled) else f"bad {found.column}"
    for number, row in enumerate(found.bad.places):
        line = int(lines[row])
        if line in told:
            continue  # several items of one list
        told.add(line)
        problem = f"{found.column} is {found.bad.said(number)}"
        # Only the first few are shown, and to find a line's text takes a while.
        text = shown(line_of(block, line)) if len(told) < 10 else ""
        yield BadLine(line + 1, kind, problem, text, found.bad.hint)


def _ones(staged: pa.Table) -> int:
    return int(pc.sum(staged[LABEL]).as_py() or 0) if LABEL in staged.column_names else 0


def _staged(
    table: pa.Table, task: TableTask, layout: FormatSpec | None
) -> tuple[pa.Table, Mask | None]:
    document = task.features.document
    table = with_partitions(table, task.file.folders)

    def of(column: str, make: Callable[..., Any], plain: Callable[..., pa.Array] = flat) -> Any:
        try:
            return make(plain(table[column]), text=task.file.text_of(column, layout))
        except BadValues as bad:
            raise _BadColumn(column, bad) from None

    for side in same_side_tables(document.joins, task.side_digests):
        found = side.joined([of(name, lambda v, text: v) for name in side.spec.key])
        for name in found.column_names:
            table = table.append_column(name, found[name])
    made = {
        name: of(
            column,
            partial(_kept, dtype=task.file.type_to_keep(column)),
            concrete if task.file.has_types_in(column) else flat,
        )
        for name, column in task.features.kept.items()
    }
    if not task.features.unlabeled:
        target = document.target
        made[LABEL] = of(target.column, lambda v, text: labels_of(v, target, text))
    mask = None
    split = document.split
    if split is not None and split.by in ("time", "hash", "column"):
        mask = of(split.column, lambda v, text: validation_mask(v, split, text))
    for name, column in document.columns.items():
        values = of(
            column.source or name, partial(staged_values, column=column, spelling=task.spelling)
        )
        if name in task.lists and not holds_lists(values.type):  # all are missing
            values = pa.nulls(len(values), pa.list_(values.type))
        made[name] = values
    return pa.table(made), mask


def _kept(values: pa.Array, text: FormatSpec | None, dtype: pa.DataType | None) -> pa.Array:
    if dtype is None or values.type == dtype:
        return values
    problem = f"not {dtype}, which the first lines hold"
    return converted(values, lambda some: some.cast(dtype), problem)


def _numbered(rows: pa.Table, numbers: Places, task: TableTask) -> pa.Table:
    if not task.is_traced:
        return rows
    return rows.append_column(ROW_NUMBER, pa.array(numbers, pa.int64()))


def _written(
    staged: pa.Table, mask: Mask | None, task: TableTask, number: int
) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """The parts of a block's rows, for training and for validation; none are empty."""
    stem, source = f"{task.stem}-{number:05d}", task.file.path
    if mask is None:
        return ((stage_table(staged, stem, source),) if staged.num_rows else ()), ()
    cut = [
        (stage_table(rows, f"{stem}-{name}", source),) if rows.num_rows else ()
        for name, rows in (
            ("train", staged.filter(pa.array(~mask))),
            ("valid", staged.filter(pa.array(mask))),
        )
    ]
    return cut[0], cut[1]
