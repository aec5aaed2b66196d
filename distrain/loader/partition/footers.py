"""Reads parquet footers: returns a table's row groups, and reports all problems that they show."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import IO, TYPE_CHECKING

from distrain.errors import DataError, Unavailable
from distrain.formatting import join_names, limit_lines
from distrain.jobs.spec.data import WindowsSpec
from distrain.loader.partition.filtering import RowFilter
from distrain.loader.partition.hive import Constants, ambiguous_columns, read_constants
from distrain.loader.partition.scanning import read_files
from distrain.loader.partition.statistics import (
    RowGroupChunks,
    Statistics,
    read_chunks,
    read_statistics,
    refuse_bad_chunks,
)
from distrain.loader.partition.table import RowGroup, Table
from distrain.loader.partition.wanted_columns import (
    WantedColumn,
    type_hint,
    type_problem,
    value_problem,
    wanted_columns,
)
from distrain.loader.partition.windows import Span, cut_windows, row_group_spans
from distrain.schema.schema import Schema
from distrain.storage.identity import size_as_version, version_in
from distrain.storage.inputs import PARQUET_SUFFIXES, InputFile, list_inputs, open_input
from distrain.storage.os_errors import reading_hint
from distrain.storage.retrying import first_line, is_transient

if TYPE_CHECKING:
    from pyarrow import Schema as ArrowSchema
    from pyarrow.parquet import FileMetaData, ParquetFile

_MOST_LISTED = 5


@dataclass(frozen=True)
class _Footer:
    file: InputFile
    rows_per_group: tuple[int, ...]
    # for each row group True if the filter selects all rows, False if none, `None` if unknown
    taken: tuple[bool | None, ...]
    types: tuple[str, ...]
    problems: tuple[DataError, ...]
    constants: Constants = ()
    version: str = ""
    # minima and maxima of the first label, over row groups; `None` if unknown
    labels: frozenset[float | None] = frozenset()
    # for row groups that may have selected rows, by number, if windows are requested
    spans: Mapping[int, Span] = field(default_factory=dict)


def read_footers(
    patterns: str | Sequence[str],
    schema: Schema,
    *,
    need_label: bool = True,
    hive: bool = False,
    fill_null_id: int | None = None,
    fill_null_value: float | None = None,
    row_filter: str | None = None,
    windows: WindowsSpec | None = None,
    retry_s: float = 0.0,
) -> Table:
    """Return the row groups of a table, after checking everything that footers show.

    Args:
        patterns: Paths, folders, globs or URLs, as for `distrain.storage.inputs.list_inputs`.
        schema: The schema of the rows: it determines which columns are read (by the tags
            categorical, continuous, target, weight), their cardinalities, and which are lists.
        need_label: Whether the target columns, and the weight column if the schema has one, are
            required.
        hive: Whether folders named `key=value` give the files below them a constant column
            (see `distrain.loader.partition.hive`).
        fill_null_id: Replacement of null ids; `None` rejects nulls.
        fill_null_value: Replacement of null values; `None` rejects nulls.
        row_filter: A condition on rows, in the syntax of `distrain.jobs.spec.row_filter`. Its
            columns are read if the statistics of a row group do not determine the result. `None`
            selects all rows.
        windows: How to cut the table into windows, which are trained one after another; `None` for
            no windows.
        retry_s: How long to retry if the storage does not answer, for each file.

    Raises:
        Unavailable: The storage does not answer.
        DataError: A file is missing, empty, truncated or not parquet. A column is missing, has a
            wrong type, or nulls that are not filled. An id, a label or a weight is out of range by
            the footer's statistics. There are no rows, or they do not fit the windows. One error
            lists the first few problems of all files.
        SchemaError: The schema cannot be used (see `wanted_columns`).
        SpecError: The filter is not a condition, names a missing column, compares unlike types, or
            selects no row.
    """
    taking = None if row_filter is None else RowFilter(row_filter, hive=hive)
    wanted = wanted_columns(
        schema,
        need_label=need_label,
        fill_null_id=fill_null_id,
        fill_null_value=fill_null_value,
    )
    files = list_inputs(patterns, suffixes=PARQUET_SUFFIXES, retry_s=retry_s)
    _refuse_vocabularies(files)

    def read(number: int) -> _Footer:
        return _read_footer(files[number], wanted, hive, taking, windows)

    footers = read_files([file.path for file in files], read, retry_s)
    _raise_problems([problem for footer in footers for problem in footer.problems])
    table = Table(
        tuple(
            RowGroup(footer.file.path, index, num_rows, footer.constants, footer.version)
            for footer in footers
            for index, num_rows in enumerate(footer.rows_per_group)
            if num_rows
        ),
        _fingerprint(footers),
        _only_label(footers),
    )
    if not table.num_rows:
        raise DataError(
            f"no rows in {_count(len(files), 'file')}",
            where={"file": files[0].path},
            hint="Their writer wrote no rows; check its input and its filters.",
        )
    if taking is not None:
        pairs = [pair for f in footers for pair in zip(f.rows_per_group, f.taken, strict=True)]
        table = taking.applied(table, [taken for num_rows, taken in pairs if num_rows], retry_s)
    if windows is None:
        return table
    spans = {(f.file.path, number): span for f in footers for number, span in f.spans.items()}
    return cut_windows(windows, table, spans, retry_s)


def _only_label(footers: Sequence[_Footer]) -> float | None:
    labels = {label for footer in footers for label in footer.labels}
    label = labels.pop() if len(labels) == 1 else None
    return None if label is None else label + 0.0  # some writers store a minimum of -0.0


def _refuse_vocabularies(files: Sequence[InputFile]) -> None:
    """Raise a `DataError` if files are vocabularies, as in the whole output of `distrain prep`."""
    for file in files:
        folder, is_vocabulary, _ = file.path.rpartition("/workflow/categories/")
        if is_vocabulary:
            raise DataError(
                "the folder also holds vocabularies, which `distrain prep` writes next to the rows",
                where={"path": folder},
                hint=f"Name {folder}/train or {folder}/valid.",
            )


def _read_footer(
    file: InputFile,
    wanted: Sequence[WantedColumn],
    hive: bool,
    row_filter: RowFilter | None,
    windows: WindowsSpec | None,
) -> _Footer:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_input(file.path) as handle, pq.ParquetFile(handle) as parquet:
            version = version_in(getattr(handle, "details", None) or {})
            footer = _checked_footer(file, handle, parquet, wanted, hive, row_filter, windows)
            return replace(footer, version=version or size_as_version(file.size_bytes))
    except Unavailable:
        raise
    except DataError as missing:
        return _Footer(file, (), (), (), (missing,))
    except Exception as error:
        if is_transient(error):
            raise Unavailable(
                f"could not read the footer: {first_line(error)}", where={"file": file.path}
            ) from error
        if not isinstance(error, OSError | pa.ArrowException | UnicodeDecodeError | IndexError):
            raise
        problem = DataError(
            f"not a complete parquet file: {first_line(error)}",
            where={"file": file.path, "size_bytes": file.size_bytes},
            hint=reading_hint(error, _not_parquet_hint(file.path)),
        )
        return _Footer(file, (), (), (), (problem,))


def _not_parquet_hint(path: str) -> str:
    if path.endswith(PARQUET_SUFFIXES):
        return "Its writer died, it is still being copied, or it is another kind of file."
    return (
        "Prepare text files first with `distrain prep`; later rows need --workflow. If it is "
        "parquet, its writer died, or it is still being copied."
    )


def _checked_footer(
    file: InputFile,
    handle: IO[bytes],
    parquet: ParquetFile,
    wanted: Sequence[WantedColumn],
    hive: bool,
    row_filter: RowFilter | None,
    windows: WindowsSpec | None,
) -> _Footer:
    metadata, schema = parquet.metadata, parquet.schema_arrow
    constants, keys, problems = read_constants(file.path, wanted) if hive else ((), (), [])
    problems += ambiguous_columns(file.path, keys, schema.names)
    own = [column for column in wanted if column.name not in keys]
    names = {column.name for column in own} | set(row_filter.columns if row_filter else ())
    twice = [name for name in sorted(names) if schema.names.count(name) > 1]
    if twice:
        hint = "Write the file with one column of each name."
        where = {"file": file.path, "columns": ", ".join(twice)}
        raise DataError("several columns have the same name", where=where, hint=hint)
    refuse_bad_chunks(metadata, file.size_bytes, sorted(names.intersection(schema.names)))
    rows = tuple(metadata.row_group(i).num_rows for i in range(metadata.num_row_groups))
    if min(rows, default=0) < 0:
        raise OSError("a row group has fewer than 0 rows")
    taken: Sequence[bool | None] = [True] * len(rows)
    if row_filter is not None:
        taken = row_filter.outcomes(file.path, handle, schema)
    groups = read_chunks(handle)
    problems += _column_problems(file.path, metadata, groups, taken, schema, own)
    spans: dict[int, Span] = {}
    if windows is not None:
        wanted_groups = {
            n: one for n, one in enumerate(groups) if rows[n] and taken[n] is not False
        }
        spans, of_windows = row_group_spans(file.path, windows, metadata, wanted_groups, schema)
        problems += of_windows
    return _Footer(
        file,
        rows,
        tuple(taken),
        tuple(f"{c.name}={schema.field(c.name).type}" for c in wanted if c.name in schema.names),
        tuple(problems),
        constants,
        labels=frozenset(
            bound
            for is_taken, bounds in zip(taken, _label_bounds(metadata, groups, wanted), strict=True)
            for bound in bounds
            if is_taken is not False
        ),
        spans=spans,
    )


def _fingerprint(footers: Iterable[_Footer]) -> str:
    digest = hashlib.sha256()
    for footer in footers:
        base_name = footer.file.path.rsplit("/", 1)[-1]
        parts: tuple[object, ...] = (
            base_name,
            footer.file.size_bytes,
            footer.rows_per_group,
            footer.types,
        )
        if footer.constants:  # other files keep the fingerprint of earlier versions
            parts += (footer.constants,)
        digest.update(repr(parts).encode())
    return digest.hexdigest()


def _raise_problems(problems: Sequence[DataError]) -> None:
    if not problems:
        return
    if len(problems) == 1:
        raise problems[0]
    lines = [
        f"  - {problem.message} ({', '.join(f'{k} {v}' for k, v in problem.where.items())})"
        for problem in problems
    ]
    shown = limit_lines(lines, _MOST_LISTED, "  - and {} more")
    raise DataError(
        "\n".join([f"{_count(len(problems), 'problem')} found in the files' footers:", *shown]),
        hint=problems[0].hint,
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _column_problems(
    file: str,
    metadata: FileMetaData,
    groups: Sequence[RowGroupChunks],
    taken: Sequence[bool | None],
    schema: ArrowSchema,
    wanted: Sequence[WantedColumn],
) -> Iterator[DataError]:
    leaves = _leaves(metadata)
    for column in wanted:
        where = {"file": file, "column": column.name}
        if schema.get_field_index(column.name) < 0:
            yield _missing(column, schema.names, where)
            continue
        kind = schema.field(column.name).type
        mismatch = type_problem(column, kind)
        if mismatch:
            yield DataError(mismatch, where=where, hint=type_hint(column, kind))
            continue
        leaf = _leaf_of(leaves, column)
        for group, statistics in enumerate(_statistics_of(metadata, groups, leaf)):
            problem = _null_problem(statistics, column) or _range_problem(statistics, column)
            # If not all rows are selected, the value may be in a row that is not.
            if problem and taken[group]:
                yield DataError(
                    problem[0],
                    where={"file": file, "row group": group, "column": column.name},
                    hint=problem[1],
                )
                break


def _statistics_of(
    metadata: FileMetaData, groups: Sequence[RowGroupChunks], leaf: int | None
) -> Iterator[Statistics]:
    if leaf is None:
        return iter([Statistics()] * len(groups))
    described = metadata.schema.column(leaf)
    kind, unsigned = described.physical_type, described.converted_type.startswith("UINT")
    return (read_statistics(group, leaf, kind, unsigned) for group in groups)


def _label_bounds(
    metadata: FileMetaData, groups: Sequence[RowGroupChunks], wanted: Sequence[WantedColumn]
) -> Iterator[tuple[float | None, ...]]:
    """Yield, for each row group, the minimum and maximum of the first label column.

    Yields `(None,)` for a row group if they are unknown, and for all if there is no label column.
    """
    label = next((column for column in wanted if column.kind == "label"), None)
    leaf = None if label is None else _leaf_of(_leaves(metadata), label)
    for statistics in _statistics_of(metadata, groups, leaf):
        yield statistics.bounds or (None,)


def _missing(column: WantedColumn, names: Sequence[str], where: Mapping[str, object]) -> DataError:
    near = get_close_matches(column.name, names, n=1)
    return DataError(
        f"column {column.name!r} is missing",
        where=where,
        hint=f"Did you mean {near[0]!r}?" if near else f"The file has: {join_names(names, 20)}.",
    )


def _leaves(metadata: FileMetaData) -> list[tuple[str, bool]]:
    leaves = (metadata.schema.column(index) for index in range(metadata.num_columns))
    return [(leaf.path, leaf.max_repetition_level > 0) for leaf in leaves]


def _leaf_of(leaves: Sequence[tuple[str, bool]], column: WantedColumn) -> int | None:
    """Return the number of the parquet leaf with a column's values; `None` unless there is one.

    `leaves` has the path of each leaf of the file, and whether it is in a list.
    """
    candidates = [
        index
        for index, (path, repeated) in enumerate(leaves)
        if repeated == column.is_list
        # A list's leaf is `tags.list.element`, `tags.bag.array_element`, ..., depending on its
        # writer.
        and (path == column.name or (repeated and path.startswith(f"{column.name}.")))
    ]
    return candidates[0] if len(candidates) == 1 else None


def _null_problem(statistics: Statistics, column: WantedColumn) -> tuple[str, str] | None:
    # Writers count empty lists as nulls, so nulls in lists are only found when rows are read.
    if column.fill_null is not None or column.is_list or not statistics.nulls:
        return None
    message = f"column {column.name!r} has {statistics.nulls} nulls"
    return message, "Fill the missing values when the table is prepared."


def _range_problem(statistics: Statistics, column: WantedColumn) -> tuple[str, str] | None:
    problems = (value_problem(column, bound) for bound in statistics.bounds)
    return next((problem for problem in problems if problem), None)
