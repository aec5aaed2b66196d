"""Some rows of the inputs, to see what the columns hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from distrain.errors import DataError
from distrain.etl.bad_lines import BadLineTally
from distrain.etl.features.bad_values import BadValues
from distrain.etl.features.document import FormatSpec
from distrain.etl.features.partitions import partitions_of, with_partitions
from distrain.etl.features.table_file import TableFile, look_at
from distrain.etl.features.text_rows import rows_of_pieces
from distrain.etl.features.values import flat
from distrain.etl.operators import concrete
from distrain.etl.parts import readable_parquet
from distrain.etl.texts import TextRange, read_pieces
from distrain.storage import InputFile

_MOST_FILES = 8
_TEXT_BYTES = 16 << 20
SAMPLE_ROWS = 100_000


@dataclass(frozen=True, eq=False)
class Sample:
    table: pa.Table  # each column of the inputs; of CSV as texts
    told: str  # which rows they are, in words
    file: TableFile
    text: FormatSpec  # how text is read
    # the lines among them that are no rows
    bad_lines: BadLineTally = field(default_factory=BadLineTally)


def sampled(files: Sequence[InputFile], most_rows: int = SAMPLE_ROWS) -> Sample:
    """The first rows of some files, spread evenly over all.

    Raises:
        DataError: A file cannot be read, or is no table of the others' columns.
    """
    step = -(-len(files) // _MOST_FILES)
    chosen = files[::step]
    folders = partitions_of([file.path for file in files], {})[::step]
    text = FormatSpec()
    first = look_at(chosen[0].path, chosen[0].size_bytes, text)
    if not first.is_typed and not _is_utf8(first):
        text = FormatSpec(encoding="latin-1")
    tables, bad_lines = [], BadLineTally()
    first = replace(first, folders=folders[0])
    for chosen_file, values in zip(chosen, folders, strict=True):
        file = look_at(chosen_file.path, chosen_file.size_bytes, text)
        file = replace(file, folders=values)
        lacking = [name for name in first.columns if name not in file.columns]
        if lacking and file.kind != "jsonl":
            raise DataError(
                f"a table without the columns {', '.join(lacking[:5])} of an earlier file",
                where={"file": file.path, "earlier file": first.path},
                hint="Infer from files of one table.",
            )
        rows, bad = rows_of(file, text, list(first.types), max(1, most_rows // len(chosen)))
        bad_lines = bad_lines.merged(bad)
        tables.append(with_partitions(rows, values).select(list(first.columns)))
    table = pa.concat_tables(tables, promote_options="permissive").combine_chunks()
    if not table.num_rows:
        where = {"file": first.path, **bad_lines.where}
        raise DataError("the inputs hold no rows", where=where)
    of_files = f"of {len(chosen)} of {len(files)} files" if len(files) > 1 else "of the file"
    told = f"the first {table.num_rows:,} rows {of_files}"
    return Sample(table, told, first, text, bad_lines)


def _is_utf8(file: TableFile) -> bool:
    try:
        for piece in _pieces(file):
            piece.decode()
    except UnicodeDecodeError:
        return False
    return True


def _pieces(file: TableFile) -> list[bytes]:
    stop = min(file.size_bytes, _TEXT_BYTES)
    text = TextRange(file.path, 0, None if file.codec else stop, file.codec)
    pieces, size = [], 0
    for _, piece in read_pieces(text, _TEXT_BYTES):
        pieces.append(piece)
        size += len(piece)
        if size >= _TEXT_BYTES:
            break
    return pieces


def rows_of(
    file: TableFile, text: FormatSpec, columns: list[str], most: int
) -> tuple[pa.Table, BadLineTally]:
    """A file's first rows, at most so many, and the lines before the last that are no rows."""
    if not file.is_text:
        with readable_parquet(file.path) as parquet:
            groups: list[int] = []
            rows = 0
            while rows < most and len(groups) < len(file.row_groups):
                rows += file.row_groups[len(groups)]
                groups.append(len(groups))
            table = parquet.read_row_groups(groups, columns).slice(0, most)
        return pa.table({name: _flat(table[name]) for name in columns}), BadLineTally()
    tables, bad_lines, rows = [], BadLineTally(), 0
    known = [name for name in columns if name in file.types]
    for found, before in rows_of_pieces(_pieces(file), file, text, known):
        wanted = found.lines[: most - rows]
        is_cut = len(wanted) < len(found.lines)
        bad = [line for line in found.bad if not is_cut or line.line <= wanted[-1]]
        bad_lines = bad_lines.merged(BadLineTally.of(bad).shifted(file.path, before))
        tables.append(found.table)
        rows += found.table.num_rows
        if rows >= most:
            break
    table = pa.concat_tables(tables, promote_options="permissive").slice(0, most).combine_chunks()
    return pa.table({name: _flat(table[name]) for name in known}), bad_lines


def _flat(values: pa.ChunkedArray) -> pa.Array:
    try:
        return flat(values)
    except BadValues:  # bytes that are no text
        return concrete(values)
