"""A categorical column's values and their ids.

    id       0      1       2 .. 2+K-1               2+K ..
    kind     pad    null    out of vocabulary (K)    the kept values, most frequent first

K is the number of hash buckets, at least 1. Values are out of vocabulary if they are rare, beyond
the maximum size, or unseen. The bucket of a value is `splitmix64(x) mod K`, where x is an integer's
64-bit two's complement or the CRC-32 of a string's UTF-8 bytes: stable across machines, processes
and versions.

The files have the format that Merlin uses since 2023: `unique.COLUMN.parquet` (`COLUMN`,
`COLUMN_size`, in id order) and `meta.COLUMN.parquet` (`kind`, `offset`, `num_indices`,
`num_observed`).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from distrain.errors import DataError
from distrain.prep.parts import readable_parquet, write_parquet
from distrain.prep.steps import FIRST_OOV_ID, NULL_ID, bucket_of, keys_of
from distrain.storage.inputs import open_input
from distrain.storage.outputs import atomic_file
from distrain.storage.retrying import RETRY_S

PAD_ID = 0
WORKFLOW_FILE = "workflow.json"
CATEGORIES = "categories"
"""The folder of vocabularies in a workflow's folder, next to its `WORKFLOW_FILE`."""
ROW_GROUP_VALUES = 1 << 20
"""Values in a row group of `unique.COLUMN.parquet`."""

_LONGEST_NAME_BYTES = (
    200  # file names are limited to 255, with extensions and the marks of unfinished files
)

_KINDS = ["pad", "null", "oov", "unique"]

BoolArray = np.ndarray[Any, np.dtype[np.bool_]]
Int32Array = np.ndarray[Any, np.dtype[np.int32]]


def mistake_of_name(name: str) -> str | None:
    """Return why a vocabulary cannot have a name; `None` if it can.

    >>> mistake_of_name("item/sku")
    "a file gets this name, so it cannot contain '/'"
    """
    for character in "/\0":
        if character in name:
            return f"a file gets this name, so it cannot contain {character!r}"
    size = len(name.encode())
    if size > _LONGEST_NAME_BYTES:
        return f"a file gets this name: it has {size} bytes, the limit is {_LONGEST_NAME_BYTES}"
    return None


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The ids of one column, or of a domain.

    Attributes:
        values: The kept values in id order, int64 or string; large_string if they have too many
            bytes for string.
        counts: How often each value was seen in training, int64.
        num_oov: K, the number of out-of-vocabulary ids.
        nulls_observed: Number of missing training values.
        oov_observed: Number of training values that were not kept.
    """

    values: pa.Array
    counts: pa.Array
    num_oov: int = 1
    nulls_observed: int = 0
    oov_observed: int = 0

    @property
    def cardinality(self) -> int:
        """The number of ids, including those for padding, missing and unknown values."""
        return self.first_value_id + len(self.values)

    @property
    def first_value_id(self) -> int:
        """The id of the first of `values`."""
        return FIRST_OOV_ID + self.num_oov

    @cached_property
    def _sorted(self) -> tuple[np.ndarray[Any, np.dtype[np.int64]], Int32Array]:
        values = self.values.to_numpy(zero_copy_only=False)
        order = np.argsort(values, kind="stable").astype(np.int32)
        return values[order], order

    def encode(self, values: pa.Array) -> Int32Array:
        """Return the ids, `[rows]`, int32.

        `values`, which may have nulls, are int64 or (large) string, or dictionaries of these.
        """
        # Each distinct value is looked up once; most columns repeat their values often.
        encoded = values.dictionary_encode()
        distinct = self._distinct_ids(encoded.dictionary)
        indices = encoded.indices.fill_null(len(distinct)).to_numpy(zero_copy_only=False)
        ids: Int32Array = np.append(distinct, np.int32(NULL_ID))[indices]
        return ids

    def _distinct_ids(self, distinct: pa.Array) -> Int32Array:
        is_known, places = self.places_of(distinct)
        ids: Int32Array = (places + self.first_value_id).astype(np.int32)
        unknown = pa.array(~is_known)
        ids[~is_known] = FIRST_OOV_ID + stable_buckets(distinct.filter(unknown), self.num_oov)
        return ids

    def places_of(self, distinct: pa.Array) -> tuple[BoolArray, Int32Array]:
        """Return a mask of the known values, and their indices in `values`, `[distinct]` each.

        `distinct` has no nulls. The indices of unknown values have no meaning.
        """
        if is_text(distinct.type):
            known_values = self.values
            if distinct.type != known_values.type:
                distinct = distinct.cast(pa.large_string())
                known_values = known_values.cast(pa.large_string())
            places = pc.index_in(distinct, value_set=known_values)
            is_known = places.is_valid().to_numpy(zero_copy_only=False)
            return is_known, places.fill_null(0).to_numpy(zero_copy_only=False)
        wanted = distinct.to_numpy(zero_copy_only=False)
        in_order, order = self._sorted
        if len(order) == 0:
            return np.zeros(len(wanted), bool), np.zeros(len(wanted), np.int32)
        at = np.minimum(np.searchsorted(in_order, wanted), len(order) - 1)
        return in_order[at] == wanted, order[at]

    def save(self, folder: Path | str, column: str) -> None:
        """Write `unique.COLUMN.parquet` and `meta.COLUMN.parquet` to a folder or a URL."""
        with VocabularyWriter.open(folder, column, self.values.type) as writer:
            writer.write(self.values, self.counts)
            writer.write_meta(self.num_oov, self.nulls_observed, self.oov_observed)

    @classmethod
    def load(cls, folder: Path | str, column: str) -> Vocabulary:
        """Read the files that `save` wrote.

        Raises `DataError` if one is missing or unreadable, or if they do not belong together.
        """
        meta = read_meta(folder, column)
        file = f"{folder}/unique.{column}.parquet"
        with readable_parquet(file) as parquet:
            unique = parquet.read().combine_chunks()
            vocabulary = cls(
                unique[column].combine_chunks(),
                unique[f"{column}_size"].combine_chunks(),
                meta["oov"]["num_indices"],
                meta["null"]["num_observed"],
                meta["oov"]["num_observed"],
            )
        if vocabulary.cardinality != meta["unique"]["offset"] + meta["unique"]["num_indices"]:
            raise DataError(
                f"{len(unique)} values, but the meta file says {meta['unique']['num_indices']}",
                where={"file": file},
                hint="Files of two workflows were mixed; save the workflow again.",
            )
        return vocabulary


class RowGroupWriter:
    """Writes rows to a parquet file, piece by piece.

    The sizes of the pieces do not affect the file: all its row groups except the last have
    `num_rows` rows.
    """

    def __init__(self, to: pq.ParquetWriter, num_rows: int):
        self._to = to
        self._num_rows = num_rows
        self._waiting = to.schema.empty_table()
        self._has_row_groups = False

    @classmethod
    @contextmanager
    def open(cls, file: str, schema: pa.Schema, num_rows: int) -> Iterator[Self]:
        """Context manager that yields a writer of a new file; on success, the file appears.

        Raises `OutputError` if the file cannot be written.
        """
        with (
            atomic_file(file, make_folder=False, sync=False) as partial,
            pq.ParquetWriter(partial, schema, compression="zstd") as to,
        ):
            writer = cls(to, num_rows)
            yield writer
            if writer._waiting.num_rows or not writer._has_row_groups:
                writer._write_row_group(writer._waiting)

    def write(self, rows: pa.Table) -> None:
        """Add rows, and write full row groups; the other rows are written later or at the end."""
        waiting = pa.concat_tables([self._waiting, rows])
        while waiting.num_rows >= self._num_rows:
            self._write_row_group(waiting.slice(0, self._num_rows))
            waiting = waiting.slice(self._num_rows)
        self._waiting = waiting

    def _write_row_group(self, rows: pa.Table) -> None:
        self._has_row_groups = True
        self._to.write_table(rows.combine_chunks(), row_group_size=self._num_rows)


class VocabularyWriter:
    """Writes a vocabulary's values with their counts, in id order, piece by piece.

    The file has the columns `COLUMN` (the values) and `COLUMN_size` (the counts).
    """

    def __init__(self, schema: pa.Schema, to: RowGroupWriter, meta: str):
        self._schema = schema
        self._to = to
        self._meta = meta
        self.value_type = schema.types[0]
        self.num_values = 0
        self.num_observed = 0

    @classmethod
    @contextmanager
    def open(cls, folder: Path | str, column: str, value_type: pa.DataType) -> Iterator[Self]:
        """Context manager that yields a writer of a new `unique.COLUMN.parquet`.

        The file appears on success. Raises `OutputError` if the file cannot be written.
        """
        schema = pa.schema([(column, value_type), (f"{column}_size", pa.int64())])
        file = f"{folder}/unique.{column}.parquet"
        with RowGroupWriter.open(file, schema, ROW_GROUP_VALUES) as to:
            yield cls(schema, to, f"{folder}/meta.{column}.parquet")

    def write(self, values: pa.Array, counts: pa.Array) -> None:
        self.num_values += len(values)
        self.num_observed += pc.sum(counts).as_py() or 0
        self._to.write(pa.table([values, counts], schema=self._schema))

    def write_meta(self, num_oov: int, nulls_observed: int, oov_observed: int) -> None:
        """Write `meta.COLUMN.parquet`, when all values are written.

        Args:
            num_oov: The number of out-of-vocabulary ids.
            nulls_observed: The number of missing training values.
            oov_observed: The number of training values without an id.
        """
        meta = pa.table(
            {
                "kind": _KINDS,
                "offset": [PAD_ID, NULL_ID, FIRST_OOV_ID, FIRST_OOV_ID + num_oov],
                "num_indices": [1, 1, num_oov, self.num_values],
                "num_observed": [0, nulls_observed, oov_observed, self.num_observed],
            }
        )
        write_parquet(meta, self._meta)


def check_cardinality(cardinality: int) -> None:
    """Raise a `DataError` if this number of ids does not fit into int32."""
    if cardinality > np.iinfo(np.int32).max:
        raise DataError(
            f"{cardinality:,} ids do not fit into int32", hint="Set freq_threshold or max_size."
        )


def read_meta(folder: Path | str, column: str) -> dict[str, dict[str, int]]:
    """Return the rows of `meta.COLUMN.parquet`, by `kind`: `pad`, `null`, `oov` and `unique`.

    A row has `offset`, `num_indices` and `num_observed`. Raises a `DataError` if the file cannot be
    read.
    """
    file = f"{folder}/meta.{column}.parquet"
    with readable_parquet(file) as parquet:
        meta = {row["kind"]: row for row in parquet.read().to_pylist()}
        for kind in _KINDS[1:]:
            meta[kind]["num_indices"], meta[kind]["num_observed"]
    return meta


def read_footer(folder: Path | str, column: str) -> tuple[pa.Schema, int]:
    """Return the schema and the row count of `unique.COLUMN.parquet`.

    Raises a `DataError` if the file cannot be read, `Unavailable` if the storage does not answer.
    """
    path = f"{folder}/unique.{column}.parquet"
    with readable_parquet(path) as file:
        schema: pa.Schema = file.schema_arrow
        schema.field(column), schema.field(f"{column}_size")
        return schema, int(file.metadata.num_rows)


def read_batches(folder: Path | str, column: str, most: int) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Yield the values and counts of `unique.COLUMN.parquet`, at most `most` at a time.

    They are in the order of the ids. An empty file gives one empty batch. Raises a `DataError` if
    the file cannot be read, and `Unavailable` if the storage does not answer.
    """
    path = f"{folder}/unique.{column}.parquet"
    with readable_parquet(path) as file:
        columns = [column, f"{column}_size"]
        empty = True
        for batch in file.iter_batches(most, columns=columns, use_threads=False):
            empty = False
            yield batch[column], batch[columns[1]]
        if empty:
            none = file.schema_arrow.empty_table().combine_chunks()
            yield one_array(none[column]), one_array(none[columns[1]])


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; copies it only if it has several chunks."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def copy_file(source: str, target: str) -> None:
    """Copy a file of a saved workflow, a MiB at a time; `source` and `target` are paths or URLs.

    Raises `DataError` if it cannot be read, `OutputError` if it cannot be written, and
    `Unavailable` if the source's storage does not answer.
    """
    with (
        open_input(source, retry_s=RETRY_S) as handle,
        atomic_file(target, make_folder=False, sync=False) as partial_file,
        partial_file.open("wb") as copy,
    ):
        shutil.copyfileobj(handle, copy, 1 << 20)


def is_text(dtype: pa.DataType) -> bool:
    """Return True for string types, with 32-bit or 64-bit offsets."""
    return bool(pa.types.is_string(dtype) or pa.types.is_large_string(dtype))


def stable_buckets(values: pa.Array, num_buckets: int) -> Int32Array:
    """Return the hash bucket of each value, `0 .. num_buckets-1`, int32 `[values]`.

    The module's docstring defines the hash. `values` are integers or texts, without nulls.

    >>> stable_buckets(pa.array([1, 2, 3]), 10).tolist()
    [5, 0, 3]
    """
    if num_buckets == 1:
        return np.zeros(len(values), np.int32)
    is_hashed = is_text(values.type)
    keys = keys_of(values.to_pylist()) if is_hashed else values.to_numpy(zero_copy_only=False)
    buckets: Int32Array = bucket_of(keys, num_buckets).astype(np.int32)
    return buckets
