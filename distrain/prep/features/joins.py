"""Side tables: small files whose columns are joined to a table's rows by keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc

from distrain.errors import DataError
from distrain.prep.features.bad_values import BadValues
from distrain.prep.features.document import JoinSpec
from distrain.prep.features.table_file import AddedColumn, TableFile, look_at
from distrain.prep.features.text_rows import rows_of_pieces
from distrain.prep.features.values import category_texts_of, flat, mistake_of_values
from distrain.prep.lists import holds_lists
from distrain.prep.operators.spelling import joined_texts
from distrain.prep.parts import readable_parquet
from distrain.prep.raw_values import BETWEEN_TEXTS
from distrain.prep.text_files.byte_ranges import TextRange, read_pieces
from distrain.storage.identity import file_identity
from distrain.storage.inputs import list_inputs
from distrain.storage.retrying import first_line

MOST_BYTES = 256 << 20
"""Maximum memory of a side table on each worker: its keys and the joined columns."""

_BLOCK_BYTES = 16 << 20
_LOCK = Lock()


class SideTable:
    """A side table in memory.

    Attributes:
        spec: The join.
        columns: The type and text format of each joined column, by its name in the main table.
    """

    def __init__(self, spec: JoinSpec, keys: pa.Array, values: pa.Table, text: bool):
        self.spec = spec
        self._keys = keys
        self._values = values
        layout = spec.format if text else None
        self.columns = {
            field.name: AddedColumn(field.type, layout) for field in self._values.schema
        }

    def joined(self, keys: Sequence[pa.Array]) -> pa.Table:
        """Return the joined columns for rows with these keys; nulls for rows without a match.

        `keys` are the rows' key columns, in the order of the join's `key`.
        """
        return self._values.take(pc.index_in(_key_texts(keys), value_set=self._keys))


def side_tables(joins: Sequence[JoinSpec]) -> list[SideTable]:
    """Read the side tables of the joins; this process caches the last 16 unchanged ones.

    Raises a `DataError` if a table cannot be read or used.
    """
    with _LOCK:
        return [_side_table(join, _identity(join)) for join in joins]


def _identity(join: JoinSpec) -> str | None:
    try:
        return file_identity(join.file)
    except OSError as error:
        raise DataError(
            f"the side table cannot be read: {error.strerror or error}",
            where={"file": join.file},
            hint="A relative joins.file starts at the features document's folder; all workers "
            "must be able to read the file. With --workflow, pass --features with another document "
            "if it has moved.",
        ) from None


@lru_cache(maxsize=16)
def _cached(spec_json: str, identity: str) -> SideTable:
    return _loaded(JoinSpec.model_validate_json(spec_json))


def _side_table(join: JoinSpec, identity: str | None) -> SideTable:
    if identity is None:  # changes of the file cannot be detected, so the table is not cached
        return _loaded(join)
    return _cached(join.model_dump_json(by_alias=True), identity)


def _loaded(join: JoinSpec) -> SideTable:
    (file_found,) = list_inputs(join.file)
    file = look_at(file_found.path, file_found.size_bytes, join.format)
    missing = [
        name for name in (*join.key.values(), *join.columns.values()) if name not in file.types
    ]
    if missing:
        raise DataError(
            f"the side table lacks {', '.join(dict.fromkeys(missing))}",
            where={"file": join.file, "columns here": ", ".join(list(file.types)[:20])},
            hint="Correct joins in the features document: key and columns map the name in the rows "
            "to the one in the side table.",
        )
    lists = [name for name in join.key.values() if holds_lists(file.types[name])]
    if lists:
        raise DataError(
            f"the key {', '.join(lists)} holds lists",
            where={"file": join.file},
            hint="Keys must be single values.",
        )
    for name in join.key.values():
        dtype = file.types[name]
        dtype = dtype.value_type if pa.types.is_dictionary(dtype) else dtype
        if (mistake := mistake_of_values(dtype)) is not None:
            raise DataError(
                f"the key {name} of the side table is {mistake}", where={"file": join.file}
            )
    names = list(dict.fromkeys((*join.key.values(), *join.columns.values())))
    table = _bounded(_pieces(file, join, names), join)
    keys = _key_texts([_flat(table[name], join) for name in join.key.values()])
    values = pa.table({name: _flat(table[own], join) for name, own in join.columns.items()})
    keys, values = keys.filter(keys.is_valid()), values.filter(keys.is_valid())
    _refuse_duplicates(keys, join)
    return SideTable(join, keys.cast(pa.large_string()), values, not file.is_typed)


def _pieces(file: TableFile, join: JoinSpec, names: list[str]) -> Iterator[pa.Table]:
    if not file.is_text:
        with readable_parquet(file.path) as parquet:
            for group in range(parquet.num_row_groups):
                yield parquet.read_row_group(group, names)
        return
    text = TextRange(file.path, 0, None if file.codec else file.size_bytes, file.codec)
    pieces = (piece for _, piece in read_pieces(text, _BLOCK_BYTES))
    for rows, before in rows_of_pieces(pieces, file, join.format, names):
        if rows.bad:
            raise rows.bad[0].at(file.path, before).error()
        yield rows.table


def _bounded(pieces: Iterator[pa.Table], join: JoinSpec) -> pa.Table:
    held: list[pa.Table] = []
    size_bytes = 0
    for piece in pieces:
        size_bytes += piece.nbytes
        if size_bytes > MOST_BYTES:
            raise DataError(
                f"the side table takes more than {MOST_BYTES >> 20} MiB of memory",
                where={"file": join.file},
                hint="Each worker holds all of it: leave out columns and rows that are not needed, "
                "or join the tables beforehand.",
            )
        held.append(piece)
    try:
        return pa.concat_tables(held, promote_options="permissive")
    except pa.ArrowException as error:
        raise DataError(
            f"the side table's columns change their types: {first_line(error)}",
            where={"file": join.file},
            hint="Write each column with values of one type.",
        ) from None


def _flat(values: pa.ChunkedArray, join: JoinSpec) -> pa.Array:
    try:
        return flat(values)
    except BadValues as bad:
        raise DataError(
            f"the side table holds {bad.described(0)}",
            where={"file": join.file},
            hint="Set the encoding in the join's format.encoding.",
        ) from None


def _key_texts(keys: Sequence[pa.Array]) -> pa.Array:
    return joined_texts([category_texts_of(key) for key in keys])


def _refuse_duplicates(keys: pa.Array, join: JoinSpec) -> None:
    counted = keys.value_counts()
    again = counted.filter(pc.greater(counted.field("counts"), 1))
    if not len(again):
        return
    first = again[0]["values"].as_py().split(BETWEEN_TEXTS)
    rows = f"{again[0]['counts'].as_py():,} rows"
    key = ", ".join(
        f"{name} {value!r}" for name, value in zip(join.key.values(), first, strict=True)
    )
    raise DataError(
        f"{len(again):,} keys of the side table have several rows; {key} has {rows}",
        where={"file": join.file, "key": ", ".join(join.key.values())},
        hint="A join needs one row for each key: remove the others, or add a column to `key`.",
    )
