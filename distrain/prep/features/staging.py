"""Writes labels and features of a file's rows to staging files.

Each block of lines of a text file gives one staging file for training rows and one for validation
rows. They are written while pieces of the block are parsed, so memory is bounded. `text_rows`
handles the formats of text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distrain.errors import DataError
from distrain.prep.bad_lines import NO_LABEL, BadLine, BadLineTally, num_lines, shown
from distrain.prep.features.bad_values import BadValues, Places, converted
from distrain.prep.features.columns import KEYS_OF_HISTORY
from distrain.prep.features.config import FeatureConfig
from distrain.prep.features.document import (
    ColumnSplit,
    FormatSpec,
    HashSplit,
    RandomSplit,
    TimeSplit,
)
from distrain.prep.features.joins import side_tables
from distrain.prep.features.partitions import with_partitions
from distrain.prep.features.rows import (
    Mask,
    Unlabelled,
    finite_numbers,
    hashed_rows,
    known_labels_of,
    labels_of,
    validation_mask,
    window_values,
)
from distrain.prep.features.table_file import TableFile
from distrain.prep.features.targets import known_name
from distrain.prep.features.text_rows import (
    TextRows,
    TornLines,
    line_of,
    parse_block,
    without_head,
)
from distrain.prep.features.values import category_texts_of, flat, staged_values
from distrain.prep.lists import holds_lists
from distrain.prep.operators.buckets import HashBucket
from distrain.prep.operators.operator import concrete
from distrain.prep.operators.spelling import crossed
from distrain.prep.parts import ROW_NUMBER, STAGED_SUFFIX, Part, located, slices_of, write_staged
from distrain.prep.steps import bucket_of
from distrain.prep.text_files.byte_ranges import (
    TextRange,
    count_lines_before,
    parsed_pieces,
)
from distrain.prep.vocabulary import is_text
from distrain.schema.criteo import LABEL


@dataclass(frozen=True)
class StagingTask:
    """Which rows of a file one task reads, and how it converts them to staged columns."""

    file: TableFile
    rows: TextRange | Part  # bytes of text, or row groups of parquet
    features: FeatureConfig
    lists: frozenset[str]  # the features that hold lists
    skip_bad_lines: bool  # drop bad lines of text, rather than stop at the first
    block_bytes: int  # bytes of text for each staging file
    stem: str  # the prefix of the staging files' names
    # the type of the categories, `int64` or `string`, by categorical column
    holds: Mapping[str, str] = field(default_factory=dict)
    null_texts: tuple[str, ...] = ()  # texts of typed columns that mean a missing value

    @property
    def read_columns(self) -> list[str]:
        """The columns that are read from the file, in the order of the features' inputs."""
        return [name for name in self.features.inputs if name in self.file.types]


@dataclass(frozen=True)
class Staged:
    """The files that `stage_rows` wrote, and counts of their rows."""

    # rows in input order: training rows, or all rows if the split is not by values
    parts: tuple[Part, ...]
    valid_parts: tuple[Part, ...] = ()  # rows for validation
    test_parts: tuple[Part, ...] = ()  # rows for testing
    num_lines: int = 0  # number of lines of text
    # the dropped lines, numbered from the range's start
    bad_lines: BadLineTally = field(default_factory=BadLineTally)
    unlabelled: int = 0  # number of rows dropped because their target is missing
    num_ones: int = 0  # number of rows with label 1
    # for a split by hash, some of the hashes of the rows' values
    hashes: frozenset[int] = frozenset()

    @property
    def all_parts(self) -> tuple[Part, ...]:
        return (*self.parts, *self.valid_parts, *self.test_parts)

    @property
    def num_left_out(self) -> int:
        """The number of rows and lines of the input that are not in the staging files."""
        return self.bad_lines.count + self.unlabelled


_BYTES_PER_VALUE, _FEW_COLUMNS = 8, 32
_PLACES = 1 << 40  # of hashes of rows' numbers
_FITTED = "Correct the value, or leave the row out: a fitted workflow keeps its features document."
"""The hint of errors for rows of a fitted workflow.

It replaces hints that propose to change the features document.
"""


class _BadColumn(Exception):
    def __init__(self, column: str, bad: BadValues):
        super().__init__(column)
        self.column = column
        self.bad = bad


def stage_rows(task: StagingTask) -> Staged:
    """Read the rows of a task, and write their labels and features to files `STEM-*`.

    Returns the files as parts for later tasks, and counts of lines, dropped rows and labels.

    Raises:
        DataError: A value or a line cannot be used.
    """
    if not isinstance(task.rows, Part):
        return _stage_text(task, task.rows)
    columns = task.read_columns
    most_rows = max(1, task.block_bytes // (_BYTES_PER_VALUE * max(_FEW_COLUMNS, len(columns))))
    parts: list[_Parts] = []
    rows_before = unlabelled = num_ones = 0
    hashes: frozenset[int] = frozenset()
    for number, (part, table) in enumerate(slices_of(task.rows, columns, most_rows)):
        with located(part):
            made = _usable_of(table, task, (part.first_row or 0) + part.skip_rows)
        with _BlockWriter(task, number) as block:
            block.write(made, made.places + rows_before)
        rows_before += part.num_rows
        parts.append(block.parts)
        unlabelled += made.unlabelled
        num_ones += made.num_ones
        hashes |= made.hashes
    return Staged(*_joined(parts), 0, BadLineTally(), unlabelled, num_ones, hashes)


_Parts = tuple[tuple[Part, ...], tuple[Part, ...], tuple[Part, ...]]
"""Parts for training, validation and testing."""


def _joined(of_blocks: Sequence[_Parts]) -> _Parts:
    train, valid, test = (
        tuple(chain.from_iterable(of_block[side] for of_block in of_blocks)) for side in range(3)
    )
    return train, valid, test


def staged_rows(table: pa.Table, task: StagingTask) -> pa.Table:
    """Return labels and features of a table's rows, without writing them.

    Rows without a label are dropped if the features document has `missing: drop` for the target.
    Raises a `DataError` with the row of a bad value.
    """
    return _usable_of(table, task).rows


def _usable_of(table: pa.Table, task: StagingTask, first: int = 0) -> _Usable:
    def refuse(bad_column: _BadColumn, rows: Places) -> NoReturn:
        where = {"column": bad_column.column, "row": int(rows[bad_column.bad.places[0]])}
        message = f"{bad_column.column} is {bad_column.bad.described(0)}"
        hint = _FITTED if task.features.is_fitted else bad_column.bad.hint
        if bad_column.column in task.file.folders:
            hint = "Rename the folder, or leave its files out: other folders have integers."
        raise DataError(message, where=where, hint=hint) from None

    layout = task.features.document.format
    table = without_null_texts(table, task.null_texts)
    return _usable(TextRows(table, np.arange(table.num_rows)), task, layout, refuse, first)


def _stage_text(task: StagingTask, text: TextRange) -> Staged:
    layout = task.features.document.format

    def parse(piece: bytes, lines_before: int) -> _ParsedPiece:
        block, before = piece, lines_before
        if text.start == before == 0:
            block, before = without_head(piece, task.file, layout)
        usable, numbers, bad = _parsed(block, task, layout, before, text)
        tally = BadLineTally.of(bad).shifted(text.path, before)
        return _ParsedPiece(usable, numbers, num_lines(piece), tally)

    parts: list[_Parts] = []
    tally, lines, num_rows, unlabelled, num_ones = BadLineTally(), 0, 0, 0, 0
    hashes: frozenset[int] = frozenset()
    with closing(parsed_pieces(text, task.block_bytes, parse)) as pieces:
        for number, of_block in groupby(pieces, key=itemgetter(0)):
            with _BlockWriter(task, number) as block:
                for _, piece in of_block:
                    block.write(piece.usable, piece.row_numbers + num_rows)
                    tally = tally.merged(piece.bad_lines)
                    lines += piece.num_lines
                    unlabelled += piece.usable.unlabelled
                    num_ones += piece.usable.num_ones
                    hashes |= piece.usable.hashes
                    num_rows += piece.num_rows
            parts.append(block.parts)
    return Staged(*_joined(parts), lines, tally, unlabelled, num_ones, hashes)


class _Usable(NamedTuple):
    """The staged columns of the rows that can be used, among some rows."""

    rows: pa.Table
    places: Places  # the indices of these rows among the given rows
    # the index in `_SIDES` of each row's side; `None` if no rows are split off by values
    sides: Places | None
    unlabelled: int  # number of rows dropped because their target is missing
    hashes: frozenset[int] = frozenset()  # as in `Staged`

    @property
    def num_ones(self) -> int:
        if LABEL not in self.rows.column_names:
            return 0
        return int(pc.sum(self.rows[LABEL]).as_py() or 0)


class _ParsedPiece(NamedTuple):
    usable: _Usable
    row_numbers: Places
    num_lines: int
    bad_lines: BadLineTally

    @property
    def num_rows(self) -> int:
        """The number of lines that are rows, including dropped rows and bad lines."""
        return len(self.row_numbers) + self.usable.unlabelled + self.bad_lines.count


class _BlockWriter(ExitStack):
    """Writes the staging files of one block; a file without rows is not written."""

    def __init__(self, task: StagingTask, number: int):
        super().__init__()
        self._task = task
        self._stem = f"{task.stem}-{number:05d}"
        self._writers: dict[str, pa.ipc.RecordBatchFileWriter] = {}
        self._rows: dict[str, int] = {}

    def write(self, usable: _Usable, numbers: Places) -> None:
        rows = usable.rows
        if self._task.features.is_traced:
            rows = rows.append_column(ROW_NUMBER, pa.array(numbers, pa.int64()))
        if usable.sides is None:
            self._write(_SIDES[0], rows)
            return
        for number, side in enumerate(_SIDES):
            self._write(side, rows.filter(pa.array(usable.sides == number)))

    def _write(self, side: str, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        if side not in self._writers:
            self._writers[side] = self.enter_context(write_staged(self._path(side), rows.schema))
        self._writers[side].write_table(rows)
        self._rows[side] = self._rows.get(side, 0) + rows.num_rows

    def _path(self, side: str) -> str:
        return f"{self._stem}{side}{STAGED_SUFFIX}"

    @property
    def parts(self) -> _Parts:
        of, source = self._task.rows, self._task.file.path
        groups = of.row_groups if isinstance(of, Part) else ()
        train, valid, test = (
            (Part(self._path(s), groups, self._rows[s], source),) if s in self._rows else ()
            for s in _SIDES
        )
        return train, valid, test


_SIDES = ("-train", "-valid", "-test")


def _parsed(
    block: bytes, task: StagingTask, layout: FormatSpec, lines_before: int, text: TextRange
) -> tuple[_Usable, Places, list[BadLine]]:
    """Return a block's usable rows, their numbers in the block, and its bad lines.

    The numbers include bad lines. Raises `DataError` for a bad line unless `task.skip_bad_lines`,
    and always if lines and rows do not match, because a quoted CSV value may contain a line break.
    `layout` is the text format, `text` the range of the file, and `lines_before` the number of the
    range's lines before the block.
    """

    def stop(line: BadLine) -> DataError:
        return line.at(task.file.path, lines_before + count_lines_before(text)).error()

    columns, stop_at_first = task.read_columns, not task.skip_bad_lines
    try:
        rows = parse_block(block, task.file, layout, columns, stop_at_first=stop_at_first)
    except TornLines as torn:
        raise stop(torn.line) from None
    bad = list(rows.bad)
    if bad and stop_at_first:
        raise stop(bad[0])

    def leave_out(bad_column: _BadColumn, lines: Places) -> None:
        if task.features.is_fitted:
            bad_column.bad.hint = None  # that of a line of text is enough
        more = _bad_lines(block, lines, bad_column)
        if stop_at_first:
            raise stop(next(more)) from None
        bad.extend(more)

    if task.file.kind == "jsonl":  # in CSV, null texts have become nulls already
        rows = replace(rows, table=without_null_texts(rows.table, task.null_texts))
    no_rows = [line.line - 1 for line in rows.bad]
    usable = _usable(rows, task, layout, leave_out, text.start + lines_before)
    numbers = usable.places + np.searchsorted(no_rows, rows.lines[usable.places])
    return usable, numbers, sorted(bad, key=lambda line: line.line)


def _usable(
    rows: TextRows,
    task: StagingTask,
    layout: FormatSpec,
    leave_out: Callable[[_BadColumn, Places], None],
    first: int,
) -> _Usable:
    """Return the rows that can be staged.

    Rows without a label are dropped and counted if the target has `missing: drop`. For other
    unusable values of a column, `leave_out` is called with the error and with the line numbers of
    the rows not yet dropped; the error's row indices refer to these line numbers. Unless
    `leave_out` raises, the rows with these values are dropped, too. `layout` is the text format.
    `first`, the place of the first row in the file, and the rows' numbers decide which are drawn.
    """
    targets, unlabelled = task.features.document.targets.values(), 0
    may_lack = {target.column for target in targets if target.missing == "drop"}
    table, places = rows.table, np.arange(rows.table.num_rows)
    while True:
        try:
            staged, sides, hashes = _staged(table, task, layout, first + rows.lines[places])
            return _Usable(staged, places, sides, unlabelled, hashes)
        except _BadColumn as found:
            if found.column in may_lack and isinstance(found.bad, Unlabelled):
                unlabelled += len(found.bad.places)
            else:
                leave_out(found, rows.lines[places])
            places = np.delete(places, found.bad.places)
            table = rows.table.take(places)


def _bad_lines(block: bytes, lines: Places, bad_column: _BadColumn) -> Iterator[BadLine]:
    reported: set[int] = set()
    kind = NO_LABEL if isinstance(bad_column.bad, Unlabelled) else f"bad {bad_column.column}"
    for number, row in enumerate(bad_column.bad.places):
        line = int(lines[row])
        if line in reported:
            continue  # several items of one list are bad
        reported.add(line)
        problem = f"{bad_column.column} is {bad_column.bad.described(number)}"
        # Only the first few lines get their text, since finding it takes a while.
        text = shown(line_of(block, line)) if len(reported) < 10 else ""
        yield BadLine(line + 1, kind, problem, text, bad_column.bad.hint)


def _staged(
    table: pa.Table, task: StagingTask, layout: FormatSpec, numbers: Places
) -> tuple[pa.Table, Places | None, frozenset[int]]:
    """Return the columns to stage, the rows' sides, and hashes to check the split.

    The sides, `[rows]`, are `None` unless the document splits rows by the values of a column, or
    draws test rows by the rows' `numbers`. For a split by hash, the hashes are those from
    `hashed_rows`; for other splits, there are none. Raises `_BadColumn` if values of a column
    cannot be used. `layout` is the text format.
    """
    document = task.features.document
    table = with_partitions(table, task.file.folders)

    def of(column: str, make: Callable[..., Any], plain: Callable[..., pa.Array] = flat) -> Any:
        try:
            return make(plain(table[column]), text=task.file.text_of(column, layout))
        except BadValues as bad:
            raise _BadColumn(column, bad) from None

    # Several features may use one cross, and many crosses one column: each text is made once.
    @cache
    def texts_of(column: str) -> pa.Array:
        return of(column, _category_texts)

    @cache
    def cross_of(columns: tuple[str, ...], num_buckets: int | None) -> pa.Array:
        if num_buckets is not None:
            return HashBucket(num_buckets).staged(cross_of(columns, None))
        return crossed([texts_of(column) for column in columns])

    for side in side_tables(document.joins):
        joined = side.joined([of(name, lambda v, text: v) for name in side.spec.key])
        for name in joined.column_names:
            table = table.append_column(name, joined[name])
    made = {
        name: of(
            column,
            partial(_kept, dtype=task.file.type_to_keep(column)),
            concrete if task.file.has_types_in(column) else flat,
        )
        for name, column in task.features.kept.items()
    }
    if not task.features.unlabeled:
        for name, target in document.targets.items():
            if target.missing == "unknown":
                labels, known = of(target.column, partial(known_labels_of, target=target))
                made |= {name: labels, known_name(name): known}
            else:
                made[name] = of(target.column, partial(labels_of, target=target))
        if (weight := document.weight) is not None:
            made[weight] = of(weight, partial(finite_numbers, least=0))
        if (windows := document.windows) is not None:
            made[windows.by] = of(windows.by, partial(window_values, windows=windows))
    held = {**task.file.category_types(task.features), **task.holds}

    def selected(split: Any, *, is_test: bool) -> tuple[Mask | None, frozenset[int]]:
        match split:
            case HashSplit(share=share):
                hashed: tuple[Mask, frozenset[int]] = of(
                    split.column, lambda v, text: hashed_rows(v, share, is_test=is_test)
                )
                return hashed
            case TimeSplit() | ColumnSplit():
                mask = of(split.column, lambda v, text: validation_mask(v, split, text))
                return mask, frozenset()
            case RandomSplit(share=share) if is_test:
                return bucket_of(numbers, _PLACES) < share * _PLACES, frozenset()
        return None, frozenset()

    mask, hashes = selected(document.split, is_test=False)
    sides = None if mask is None else mask.astype(np.int64)
    if (mask := selected(document.test, is_test=True)[0]) is not None:
        sides = np.where(mask, _SIDES.index("-test"), 0 if sides is None else sides)
    for name, column in task.features.staged.items():
        holds = "string" if name == KEYS_OF_HISTORY else held.get(name)
        if column.cross:
            values = cross_of(column.cross, column.hash_buckets)
        else:
            (source,) = column.sources(name)
            values = of(source, partial(staged_values, column=column, holds=holds))
        if name in task.lists and not holds_lists(values.type):  # all lists are missing
            values = pa.nulls(len(values), pa.list_(values.type))
        made[name] = values
    return pa.table(made), sides, hashes


def _category_texts(values: pa.Array, text: FormatSpec | None) -> pa.Array:
    return category_texts_of(values)


def without_null_texts(table: pa.Table, null_texts: Sequence[str]) -> pa.Table:
    """Return the table with nulls in place of texts that mean a missing value.

    Applies to columns of texts, bytes or dictionaries of these; items of lists are unchanged.
    """
    for place, column in enumerate(table.schema if null_texts else ()):
        texts = table[place]
        if pa.types.is_dictionary(column.type):
            texts = texts.cast(column.type.value_type)
        if pa.types.is_string_view(texts.type):
            texts = texts.cast(pa.string())
        types = pa.types
        bytes_too = types.is_binary(texts.type) or types.is_large_binary(texts.type)
        if is_text(texts.type) or bytes_too:
            gaps = pc.is_in(texts, value_set=pa.array(null_texts, texts.type))
            texts = pc.if_else(gaps, pa.scalar(None, texts.type), texts)
            table = table.set_column(place, column.name, texts)
    return table


def _kept(values: pa.Array, text: FormatSpec | None, dtype: pa.DataType | None) -> pa.Array:
    if dtype is None or values.type == dtype:
        return values
    problem = f"not {dtype}, which the first lines hold"
    return converted(values, lambda some: some.cast(dtype), problem)
