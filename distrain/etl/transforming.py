"""One part through a fitted workflow to one training file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from distrain.errors import DataError
from distrain.etl.column_group import run_operators
from distrain.etl.days import Seen, seen_in
from distrain.etl.features import FeatureDocument, TableWindows, window_numbers
from distrain.etl.histories import OpenHistory, PartHistory
from distrain.etl.lists import Int64Array, holds_lists
from distrain.etl.lookups import Lookups, load_workflow
from distrain.etl.on_cudf import RunOnCudf
from distrain.etl.operators import concrete
from distrain.etl.parts import FILE, ROW_NUMBER, Part, located, read_part, write_parquet
from distrain.etl.request import SplitReport
from distrain.schema import LABEL
from distrain.storage import whole_file


@dataclass(frozen=True)
class WrittenPart:
    source: str  # the input file of its rows
    num_rows: int  # how many rows were written
    # how many values were missing, by column, labels left out; of lists, whole lists
    missing: dict[str, int]
    # least and greatest length of the lists as written, by column that holds lists
    list_lengths: dict[str, tuple[int, int]]
    seen: Seen  # what the workflow made of the rows
    num_ones: int | None  # how many rows have the label 1; `None` without labels


def transform_part(
    part: Part,
    workflow_dir: str,
    lookups: Lookups,
    output: str,
    row_group_rows: int,
    device: str = "cpu",
    labeled: bool = True,
    kept: Mapping[str, str] | None = None,
    document: FeatureDocument | None = None,
    history: PartHistory | None = None,
) -> WrittenPart:
    """Transform a part's rows and write them, in order, to `output`.

    The file is the one that the loader reads fastest: nothing nullable, int32 ids, dictionaries,
    LZ4, column statistics, a checksum per page. With `kept` rows say where they come from, and have
    these columns of the part, by the name that they are written under.
    """
    workflow = load_workflow(workflow_dir, lookups)
    is_binary = document is None or document.target.kind == "binary"
    beside = [] if document is None else [column.name for column in document.beside]
    table = read_part(part, (*((LABEL,) if labeled else ()), *workflow.columns, *beside))
    with located(part):
        if labeled:
            field = pa.field(LABEL, pa.float32(), nullable=False)
            label = _checked_label(table[LABEL]) if is_binary else concrete(table[LABEL])
            table = table.set_column(0, field, label)
        run = RunOnCudf() if device == "cuda" else run_operators
        features = workflow.transform(table, run)
    for name in beside:
        values = concrete(table[name])
        if pa.types.is_integer(values.type):
            values = values.cast(pa.float32())
        features = features.append_column(pa.field(name, values.type, nullable=False), values)
    if kept is not None:
        for name, values in _traced(part, kept).items():
            features = features.append_column(name, values)
    windows = document.windows if document else None
    lists = None if history is None else history.opened(part)
    _write(features, output, row_group_rows, windows, lists)
    missing = {column: _num_missing(table[column]) for column in workflow.columns}
    lengths = {
        column: pc.min_max(pc.list_value_length(features[column])).as_py()
        for column in workflow.columns
        if holds_lists(features.schema.field(column).type)
    }
    bounds = {column: (found["min"] or 0, found["max"] or 0) for column, found in lengths.items()}
    ones = int(pc.sum(features[LABEL]).as_py() or 0) if labeled and is_binary else None
    seen = seen_in(workflow, features)
    return WrittenPart(part.source, table.num_rows, missing, bounds, seen, ones)


def split_report(written: Sequence[WrittenPart]) -> SplitReport:
    """What was written of one split, in the order of its parts."""
    rows = sum(part.num_rows for part in written)
    missing: Counter[str] = Counter()
    for part in written:
        missing.update(part.missing)
    shares = {column: round(missing[column] / rows, 6) for column in written[0].missing}
    seen = Seen.of_all([part.seen for part in written])
    sources = tuple(part.source for part in written)
    ones = [part.num_ones for part in written if part.num_ones is not None]
    return SplitReport(
        rows,
        len(written),
        sum(ones) if ones else None,
        shares,
        seen.unknown_share(),
        seen.mean_shifts(),
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
    """Write the rows in their order; with windows one after another, no two in a row group."""
    settings = {"compression": "lz4", "use_dictionary": True, "write_page_checksum": True}
    if windows is None and history is None:
        write_parquet(table, output, row_group_size=rows, **settings)
        return
    pieces = _in_windows(table, windows)
    schema = table.schema if history is None else history.append_to(table, _NOWHERE).schema
    with (
        whole_file(output, make_folder=False, sync=False) as partial,
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


def _traced(part: Part, kept: Mapping[str, str]) -> dict[str, pa.ChunkedArray | pa.Array]:
    is_staged = part.path != part.source
    table = read_part(part, (*kept.values(), *((ROW_NUMBER,) if is_staged else ())))
    first = (part.first_row or 0) + part.skip_rows
    numbers = table[ROW_NUMBER] if is_staged else pa.array(np.arange(first, first + part.num_rows))
    files = pa.DictionaryArray.from_arrays(np.zeros(part.num_rows, np.int32), [part.source])
    return {
        FILE: files,
        ROW_NUMBER: pc.add(numbers, part.rows_before),
        **{name: table[column] for name, column in kept.items()},
    }


def _checked_label(values: pa.ChunkedArray) -> pa.Array:
    floats = concrete(values).cast(pa.float64()) if len(values) else pa.array([], pa.float64())
    labels = floats.to_numpy(zero_copy_only=False)  # gaps become NaN
    bad = (labels != 0) & (labels != 1)
    if bad.any():
        row = int(np.argmax(bad))
        found = floats[row].as_py()
        said = "missing" if found is None else f"{found:g}, not 0 or 1"
        raise DataError(
            f"the label is {said}",
            where={"column": LABEL, "row": row},
            hint="Labels say whether there was a click.",
        )
    return pa.array(labels.astype(np.float32))


def _num_missing(values: pa.ChunkedArray) -> int:
    missing: int = values.null_count
    if pa.types.is_floating(values.type):
        missing += int(np.isnan(values.drop_null().to_numpy()).sum())
    return missing
