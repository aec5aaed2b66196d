"""Reads columns of prepared rows to copy to the scores, or to group the rows by."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from distrain.errors import DataError
from distrain.prep.parts import readable_parquet


def side_columns(
    file: str,
    columns: Sequence[str],
    batch_rows: int,
    schema: pa.Schema | None = None,
    *,
    row_groups: Sequence[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield `columns` of all rows of a parquet file, in order, in batches of `batch_rows` rows.

    The last batch may be shorter. If `columns` is empty, there are no batches. If `schema` is
    given, columns are cast to it. If `row_groups` is given, only the row groups with these indices
    are read.

    Raises:
        DataError: The file cannot be read, or a value does not fit into the type in `schema`.
        Unavailable: The storage does not answer.
    """
    if not columns:
        return
    pending: list[pa.RecordBatch] = []
    rows = 0
    with readable_parquet(file) as parquet:
        groups = None if row_groups is None else list(row_groups)
        for piece in parquet.iter_batches(batch_rows, groups, list(columns)):
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


def check_side_columns(file: str, columns: Sequence[str], option: str) -> None:
    """Raise a `DataError` if a parquet file lacks one of the columns that an option names.

    Also raises it if the file cannot be read, and `Unavailable` if the storage does not answer.
    """
    if not columns:
        return
    from distrain.prep.features.table_file import check_named  # late: it imports much of `prep`

    with readable_parquet(file) as parquet:
        names = parquet.schema_arrow.names
    check_named(option, columns, names, file)


def common_type(files: Sequence[str], column: str) -> pa.DataType:
    """Return a type that a column's values in all files fit into; int8 if all have the type null.

    Raises:
        DataError: A file cannot be read, or the column holds lists or structs, or values that
            cannot be compared, such as numbers in one file and strings in another.
        Unavailable: The storage does not answer.
    """
    common = pa.schema([(column, pa.null())])
    for file in files:
        with readable_parquet(file) as parquet:
            dtype = parquet.schema_arrow.field(column).type
        if pa.types.is_dictionary(dtype):
            dtype = dtype.value_type
        if pa.types.is_nested(dtype):
            raise DataError(
                f"the column {column} has type {dtype}, whose values cannot form groups",
                where={"file": file},
                hint="Name a column of single values, such as an id.",
            )
        try:
            common = pa.unify_schemas(
                [common, pa.schema([(column, dtype)])], promote_options="permissive"
            )
        except pa.ArrowException:
            raise DataError(
                f"the column {column} has type {dtype} here and {common.field(column).type} in "
                "earlier files",
                where={"file": file},
                hint="Write it with one type.",
            ) from None
    dtype_of_all = common.field(column).type
    return pa.int8() if pa.types.is_null(dtype_of_all) else dtype_of_all
