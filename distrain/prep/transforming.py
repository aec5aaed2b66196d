"""Applies a fitted workflow to a part, which becomes one training file, or to rows in memory."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from distrain.prep.column_group import LISTS_OF
from distrain.prep.column_statistics import ColumnStatistics, seen_in
from distrain.prep.features.config import FeatureConfig
from distrain.prep.features.file_checks import rows_in_memory
from distrain.prep.features.rows import window_numbers
from distrain.prep.features.staging import StagingTask, staged_rows
from distrain.prep.features.table_file import TableFile
from distrain.prep.features.targets import TableWindows
from distrain.prep.fit_task import read_training_rows
from distrain.prep.histories.reading import OpenHistory, PartHistory
from distrain.prep.lists import Int64Array, holds_lists
from distrain.prep.lookups.index import Lookups, load_workflow
from distrain.prep.operators.operator import concrete
from distrain.prep.parts import FILE, ROW_NUMBER, Part, located, read_part, write_parquet
from distrain.prep.raw_lines import RAW_COLUMNS, TextLayout, with_words_as_numbers
from distrain.prep.reading import saved_features
from distrain.prep.request import SplitReport
from distrain.prep.saved_vocabulary import SavedVocabulary
from distrain.prep.vocabulary import CATEGORIES, WORKFLOW_FILE
from distrain.prep.workflow import HOLDS, Workflow
from distrain.schema.criteo import LABEL
from distrain.storage.identity import file_identity
from distrain.storage.outputs import atomic_file
from distrain.storage.urls import is_remote

_INDEXED_BYTES = 64 << 20
"""Memory for one sorted range of values while a vocabulary is indexed."""


@dataclass(frozen=True)
class WrittenPart:
    """Facts about the rows that `transform_part` wrote."""

    source: str  # the input file of the part's rows
    num_rows: int  # number of rows written
    # number of missing values, by feature; for list columns, of missing lists
    missing: dict[str, int]
    # minimum and maximum length of the written lists, by list column
    list_lengths: dict[str, tuple[int, int]]
    seen: ColumnStatistics  # statistics of the transformed rows
    num_ones: int | None  # number of rows with label 1; `None` without binary labels


def transform_part(
    part: Part,
    workflow_dir: str,
    lookups: Lookups,
    output: str,
    row_group_rows: int,
    features: FeatureConfig,
    history: PartHistory | None = None,
    training: bool = False,
) -> WrittenPart:
    """Transform a part's rows, write them to `output`, and return statistics of them.

    Rows keep their order; with windows, they are written window by window, in order within each.
    The file has the format that the loader reads fastest: nothing nullable, int32 ids,
    dictionaries, LZ4, column statistics, a checksum per page.

    Args:
        features: Describes labels, columns to keep, and other columns besides the features.
        history: Finds the rows' lists of earlier events; `None` for no lists.
        training: Whether the workflow was fitted on these rows. Target means then exclude a row's
            own fold or, by time, the row's own and later blocks.
    """
    workflow = load_workflow(workflow_dir, lookups)
    columns = _columns_of(workflow, features)
    table = read_training_rows(part, columns, workflow) if training else read_part(part, columns)
    with located(part):
        made = _transformed(table, workflow, features)
    if features.is_traced:
        for name, values in _traced(part, features).items():
            made = made.append_column(name, values)
    lists = None if history is None else history.opened(part)
    _write(made, output, row_group_rows, features.windows, lists)
    missing = {column: _num_missing(table[column]) for column in workflow.columns}
    lengths = {
        column: pc.min_max(pc.list_value_length(made[column])).as_py()
        for column in workflow.columns
        if holds_lists(made.schema.field(column).type)
    }
    bounds = {
        column: (bounds_found["min"] or 0, bounds_found["max"] or 0)
        for column, bounds_found in lengths.items()
    }
    is_counted = not features.unlabeled and features.document.target.kind == "binary"
    ones = int(pc.sum(made[LABEL]).as_py() or 0) if is_counted else None
    beside = [name for name in columns if name not in workflow.columns]
    seen = seen_in(workflow, made, beside)
    return WrittenPart(part.source, table.num_rows, missing, bounds, seen, ones)


def _columns_of(workflow: Workflow, features: FeatureConfig) -> tuple[str, ...]:
    beside = (column.name for column in features.beside)
    return (*(() if features.unlabeled else (LABEL,)), *workflow.columns, *beside)


def _transformed(table: pa.Table, workflow: Workflow, features: FeatureConfig) -> pa.Table:
    """Return the output columns of staged rows.

    They are the label, the features, and the document's other columns, such as weights. All other
    columns of the document become float32 if they hold integers.
    """
    if LABEL in table.column_names:
        label = table[LABEL].cast(pa.float32())
        field = pa.field(LABEL, pa.float32(), nullable=False)
        table = table.set_column(table.column_names.index(LABEL), field, label)
    made = workflow.transform(table)
    for column in features.beside:
        values = concrete(table[column.name])
        if pa.types.is_integer(values.type):
            values = values.cast(pa.float32())
        made = made.append_column(pa.field(column.name, values.type, nullable=False), values)
    return made


class RawTables:
    """Applies a saved workflow to raw rows, without a cluster.

    The result equals that of `prepare` if each prepared row depends only on its raw row (see
    `needs_other_rows`). Thread-safe. The vocabularies are indexed when the first rows are prepared.

    Args:
        folder: The folder or URL of the workflow.
        labeled: Whether rows have targets.

    Raises:
        DataError: A file of the workflow is missing, damaged or of another version.
    """

    def __init__(self, folder: str, labeled: bool = True):
        look_at = partial(SavedVocabulary.look_at, f"{folder}/{CATEGORIES}")
        self._folder = folder
        self.workflow = Workflow.load(folder, look_at)
        features = saved_features(folder) or FeatureConfig.built_in(
            self.workflow, TextLayout(), False, ()
        )
        self.features = replace(features, unlabeled=not labeled)
        self._loaded: Workflow | None = None
        self._lock = threading.Lock()

    @property
    def needs_other_rows(self) -> str | None:
        """The output that depends on other rows, as a text for errors; `None` if there is none.

        The text is "histories of" or "windows of"; the caller appends "rows".
        """
        if self.workflow.history is not None:
            return "histories of"
        return "windows of" if self.features.windows else None

    def of_rows(self, table: pa.Table, name: str) -> pa.Table:
        """Return rows in memory as `prepare` writes them.

        Rows without a label are dropped if the features document says `missing: drop`.

        Args:
            name: The name of the rows in errors.

        Raises:
            DataError: A column is missing; or a value cannot be used, with its row and column.
        """
        if self.features.is_built_in:
            numbers = {*self.workflow.categorical} & {*RAW_COLUMNS} - self.workflow.text_categories
            table = with_words_as_numbers(table, numbers)
        types = {field.name: field.type for field in table.schema}
        file = rows_in_memory(name, types, self.features)
        part = Part(name, (0,), table.num_rows, name)
        table = staged_rows(table, self._task(file, part))
        return _transformed(table, self._with_vocabularies(), self.features)

    def _task(self, file: TableFile, part: Part) -> StagingTask:
        holds = self.workflow.record.get(HOLDS, {}).items()
        fitted = {name: "lists" for name, kind in holds if kind.startswith(LISTS_OF)}
        shapes = fitted | file.shapes(self.features)
        lists = frozenset(name for name, shape in shapes.items() if shape == "lists")
        return StagingTask(
            *(file, part, self.features, lists, False, 0, ""),
            **self.workflow.reading(self.features.document.format.null_values),
        )

    def _with_vocabularies(self) -> Workflow:
        with self._lock:
            if self._loaded is None:
                names = self.workflow.vocabulary_names
                lookups = Lookups(None, names, _INDEXED_BYTES)
                open_index = partial(lookups.vocabulary, f"{self._folder}/{CATEGORIES}")
                self._loaded = Workflow.load(self._folder, open_index)
            return self._loaded


def raw_tables(folder: str, labeled: bool = True) -> RawTables:
    """Return the `RawTables` of a workflow; this process caches the last two.

    A local workflow is read again when its `workflow.json` has changed; one at a URL is not.
    `labeled` is whether rows have targets.
    """
    folder = folder if is_remote(folder) else os.path.abspath(folder)
    version = None
    with suppress(OSError):
        version = file_identity(f"{folder}/{WORKFLOW_FILE}")
    return _raw_tables(folder, labeled, version)


@lru_cache(maxsize=2)
def _raw_tables(folder: str, labeled: bool, _version: str | None) -> RawTables:
    return RawTables(folder, labeled)


def split_report(written: Sequence[WrittenPart]) -> SplitReport:
    """Return the report on a written split (`train` or `valid`), given its parts in order."""
    rows = sum(part.num_rows for part in written)
    missing: Counter[str] = Counter()
    for part in written:
        missing.update(part.missing)
    shares = {column: round(missing[column] / rows, 6) for column in written[0].missing}
    seen = ColumnStatistics.of_all([part.seen for part in written])
    sources = tuple(part.source for part in written)
    ones = [part.num_ones for part in written if part.num_ones is not None]
    return SplitReport(
        rows,
        len(written),
        sum(ones) if ones else None,
        shares,
        seen.unknown_share(),
        seen.coarse(),
        sources,
    )


def _write(
    table: pa.Table,
    output: str,
    rows: int,
    windows: TableWindows | None,
    history: OpenHistory | None,
) -> None:
    """Write the rows, with the lists of `history`, in order or, with `windows`, window by window.

    A row group has at most `rows` rows, and never rows of two windows.
    """
    settings = {"compression": "lz4", "use_dictionary": True, "write_page_checksum": True}
    if windows is None and history is None:
        write_parquet(table, output, row_group_size=rows, **settings)
        return
    pieces = _in_windows(table, windows)
    schema = table.schema if history is None else history.append_to(table, _NOWHERE).schema
    with (
        atomic_file(output, make_folder=False, sync=False) as partial,
        pq.ParquetWriter(partial, schema, **settings) as writer,
    ):
        for of_window in pieces:
            if history is None:
                writer.write_table(table.take(pa.array(of_window)), row_group_size=rows)
                continue
            for of_group in history.pieces(of_window, rows):
                writer.write_table(history.append_to(table, of_group), row_group_size=rows)


_NOWHERE = np.zeros(0, np.int64)


def _in_windows(table: pa.Table, windows: TableWindows | None) -> list[Int64Array]:
    if windows is None:
        return [np.arange(table.num_rows)]
    numbers = window_numbers(concrete(table[windows.by]), windows)
    order = np.argsort(numbers, kind="stable")
    begins = np.flatnonzero(np.diff(numbers[order], prepend=numbers.min() - 1))
    return np.split(order, begins[1:])


def _traced(part: Part, features: FeatureConfig) -> dict[str, pa.ChunkedArray | pa.Array]:
    """Return the origin of each row of a part, and the columns to keep, by their output names."""
    # Staged rows have the kept columns under their names in the output.
    table = read_part(part, (*features.kept, ROW_NUMBER))
    files = pa.DictionaryArray.from_arrays(np.zeros(part.num_rows, np.int32), [part.source])
    return {
        FILE: files,
        ROW_NUMBER: pc.add(table[ROW_NUMBER], part.rows_before),
        **{name: table[name] for name in features.kept},
    }


def _num_missing(values: pa.ChunkedArray) -> int:
    missing: int = values.null_count
    if pa.types.is_floating(values.type):
        missing += int(np.isnan(values.drop_null().to_numpy()).sum())
    return missing
