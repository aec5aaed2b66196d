"""Columns of parquet files beside those that a model reads, in step with its batches."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from distrain.errors import DataError
from distrain.storage import open_input


def side_columns(
    files: Sequence[str],
    columns: Sequence[str],
    batch_rows: int,
    schema: pa.Schema | None = None,
) -> Iterator[pa.RecordBatch]:
    """The columns of all rows of some files, in the files' order.

    Args:
        files: Parquet files: paths or URLs.
        columns: Which columns; without any, nothing is read.
        batch_rows: Rows of each piece; the last may have fewer.
        schema: The types that all files' columns get; `None`: as they are, the same in all.

    Raises:
        DataError: A value does not fit into its type.
    """
    if not columns:
        return
    pending: list[pa.RecordBatch] = []
    rows = 0
    for file in files:
        with open_input(file) as handle:
            parquet = pq.ParquetFile(handle, page_checksum_verification=True)
            for piece in parquet.iter_batches(batch_size=batch_rows, columns=list(columns)):
                piece = piece if schema is None else _as(schema, piece, file)
                while piece.num_rows:
                    taken = piece.slice(0, batch_rows - rows)
                    piece = piece.slice(taken.num_rows)
                    pending.append(taken)
                    rows += taken.num_rows
                    if rows == batch_rows:
                        yield pa.concat_batches(pending)
                        pending, rows = [], 0
    if rows:
        yield pa.concat_batches(pending)


def _as(schema: pa.Schema, piece: pa.RecordBatch, file: str) -> pa.RecordBatch:
    try:
        return piece.cast(schema)
    except pa.ArrowInvalid as error:
        raise DataError(
            f"values of {', '.join(schema.names)} do not fit into the type that all files share: "
            f"{error}",
            where={"file": file},
            hint="Write the column with one type.",
        ) from None


def check_side_columns(file: str, columns: Sequence[str], purpose: str) -> None:
    """Look whether a file has some columns.

    Args:
        file: A parquet file: a path or URL.
        columns: Their names.
        purpose: What they are for, such as `to keep`; for the message.

    Raises:
        DataError: It lacks one.
    """
    if not columns:
        return
    with open_input(file) as handle:
        names = pq.ParquetFile(handle).schema_arrow.names
    missing = [name for name in columns if name not in names]
    if missing:
        raise DataError(
            f"no column {', '.join(missing)} {purpose}",
            where={"file": file},
            hint=f"It has: {', '.join(names)}.",
        )


def common_type(files: Sequence[str], column: str) -> pa.DataType:
    """A type that a column of single values has in all files, or that all of them fit into.

    Args:
        files: Parquet files that have the column: paths or URLs.
        column: Its name.

    Raises:
        DataError: It holds lists or structs, or values that cannot be compared, such as numbers in
            one file and strings in another.
    """
    common = pa.schema([(column, pa.null())])
    for file in files:
        with open_input(file) as handle:
            dtype = pq.ParquetFile(handle).schema_arrow.field(column).type
        if pa.types.is_dictionary(dtype):
            dtype = dtype.value_type
        if pa.types.is_nested(dtype):
            raise DataError(
                f"the column {column} holds {dtype}, whose values make no groups",
                where={"file": file},
                hint="Name a column of single values, such as an id.",
            )
        try:
            common = pa.unify_schemas(
                [common, pa.schema([(column, dtype)])], promote_options="permissive"
            )
        except pa.ArrowException:
            raise DataError(
                f"the column {column} holds {dtype}, and {common.field(column).type} in the files "
                "before",
                where={"file": file},
                hint="Write it with one type.",
            ) from None
    found = common.field(column).type
    return pa.int8() if pa.types.is_null(found) else found
