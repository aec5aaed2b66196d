"""Detects the format, the columns and the types of the table in a file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import pyarrow as pa

from distrain.errors import DataError
from distrain.formatting import join_names
from distrain.prep.features.bad_values import guess
from distrain.prep.features.columns import TIMES_OF_HISTORY, ColumnSpec, ContinuousSpec
from distrain.prep.features.config import FeatureConfig
from distrain.prep.features.document import (
    CRITEO,
    ColumnSplit,
    FormatSpec,
    HashSplit,
    TimeSplit,
)
from distrain.prep.features.file_format import PARQUET, detect_format
from distrain.prep.features.partitions import Values
from distrain.prep.features.rows import mistake_of_split, mistake_of_target
from distrain.prep.features.text_head import first_lines, header_of
from distrain.prep.features.values import mistake_of_type, mistake_of_values, staged_type
from distrain.prep.lists import holds_lists
from distrain.prep.parts import readable_parquet, rows_of_groups
from distrain.prep.raw_lines import STAGED_SCHEMA, TextLayout, parse_lines

SHOWN_COLUMNS = 20
_MOST_MISSING = 12  # of more missing columns, only the first are listed
_JSON_ENDINGS = (".jsonl", ".ndjson", ".json")


@dataclass(frozen=True)
class AddedColumn:
    """The type of a column that a file gets from its folders' names or from a side table."""

    dtype: pa.DataType
    text: FormatSpec | None = None  # the format of the column's texts; `None` for typed values


@dataclass(frozen=True)
class TableFile:
    """A file of rows and the types of its columns."""

    path: str
    kind: str  # `parquet`, `csv`, `jsonl` or `criteo`
    codec: str | None  # `gzip`, `zstd` or `None`
    # the type of each column: text for CSV, the type of the first lines for JSON
    types: dict[str, pa.DataType]
    delimiter: str  # the character between fields of CSV; empty for other kinds
    row_groups: tuple[int, ...] = ()  # the rows of each row group of parquet
    size_bytes: int = 0
    # the columns from the names of its folders; columns of the file itself take precedence
    folders: Values = field(default_factory=dict)
    # the columns joined from side tables
    joined: Mapping[str, AddedColumn] = field(default_factory=dict)

    @cached_property
    def added(self) -> dict[str, AddedColumn]:
        """The columns that the file itself lacks: those of folder names and side tables."""
        own = self.types
        from_folders = {n: AddedColumn(v.type) for n, v in self.folders.items() if n not in own}
        return {**from_folders, **self.joined}

    @cached_property
    def columns(self) -> dict[str, pa.DataType]:
        """The type of each column, also of added ones."""
        return {**self.types, **{name: column.dtype for name, column in self.added.items()}}

    def text_of(self, column: str, layout: FormatSpec) -> FormatSpec:
        """Return the format by which texts of a column are parsed.

        `layout` is the format of the file. A column of a side table has the format of that table.
        """
        added = self.added.get(column)
        return layout if added is None or added.text is None else added.text

    def has_types_in(self, column: str) -> bool:
        """Return True if a column holds typed values rather than texts."""
        return self.added[column].text is None if column in self.added else self.is_typed

    def type_to_keep(self, column: str) -> pa.DataType | None:
        """Return the type to which a kept column is cast; `None` if it is kept unchanged."""
        if self.kind != "jsonl" or column not in self.types:
            return None
        dtype = self.types[column]  # of the first lines; later lines may differ
        return pa.string() if pa.types.is_null(dtype) else dtype

    @property
    def is_text(self) -> bool:
        return self.kind != PARQUET

    @property
    def is_typed(self) -> bool:
        """Whether columns are typed: all values of each column are of one kind."""
        return self.kind in (PARQUET, CRITEO)

    def check(self, features: FeatureConfig, option: str = "--keep") -> None:
        """Raise a `DataError` if the file does not fit the features document.

        `option` is the command's option for the columns to keep, which errors name.
        """
        mistakes = dict(_mistakes(self, features))
        if not mistakes:
            return
        if not dict(_mistakes(self, replace(features, keep=()))):
            check_named(option, features.keep, self.columns, self.path)
        hint = (
            "Correct the file, or leave it out. A workflow needs files with the columns that it "
            "was fitted on."
            if features.is_fitted
            else "Correct the features document, or leave the file out. A workflow needs files "
            "with the columns that it was fitted on."
        )
        if features.is_built_in:
            hint = (
                "Correct the file, or leave it out. Other columns than Criteo's, or than those of "
                "the workflow, need --features (docs/any-table.md). A table of ids and finite "
                "numbers needs only a schema."
            )
        if self.kind == "csv" and len(self.types) == 1 and len(features.inputs) > 1:
            hint = (
                f"Its first line has one field with the delimiter {self.delimiter!r}: set "
                "format.delimiter to the one between its columns."
            )
        if mistakes.keys() == {features.document.target.column}:
            hint = (
                "Rows without a target: `distrain predict RUN FILE` scores them, and "
                "`distrain prep FILE --workflow W --unlabeled` prepares them."
            )
        missing = [name for name, problem in mistakes.items() if problem == "missing"]
        listed = [name for name in mistakes if len(missing) <= _MOST_MISSING or name not in missing]
        where = {"file": self.path, **{f"column {name}": mistakes[name] for name in listed}}
        if len(listed) < len(mistakes):
            where["columns missing"] = join_names(missing, _MOST_MISSING)
        if sum(problem.startswith("missing") for problem in mistakes.values()) * 2 > len(mistakes):
            where["columns here"] = join_names(list(self.columns), SHOWN_COLUMNS)
        raise DataError(
            f"{len(mistakes)} of {len(features.inputs)} columns cannot be used",
            where=where,
            hint=hint,
        )

    def category_types(self, features: FeatureConfig) -> dict[str, str]:
        """Return the type of each categorical feature's categories, by feature.

        It is `int64` or `string`. Features that take numbers are left out, and features of a column
        with the type null.
        """
        types_by_column = {}
        for name, column in features.document.columns.items():
            source, *others = column.sources(name)
            dtype, is_typed = _of_item(self.columns[source]), self.has_types_in(source)
            if column.takes != "categories":
                continue
            if others:
                types_by_column[name] = "string"
            elif not (is_typed and pa.types.is_null(dtype)):
                types_by_column[name] = staged_type(dtype, column, is_typed)
        return types_by_column

    def shapes(self, features: FeatureConfig) -> dict[str, str]:
        """Return `lists` or `single values` for each feature.

        Features of a column with the type null are left out.
        """
        shape_of = {}
        for name, column in features.document.columns.items():
            dtype = self.columns[column.sources(name)[0]]
            if holds_lists(dtype) or column.separator is not None:
                shape_of[name] = "lists"
            elif not pa.types.is_null(dtype):
                shape_of[name] = "single values"
        return shape_of


def check_named(option: str, names: Iterable[str], held: Iterable[str], file: str) -> None:
    """Raise a `DataError` if a file lacks a column that the user named.

    `held` are the columns of `file`, and `option` is the option with the `names`.
    """
    held = list(held)
    lacking = [name for name in names if name not in held]
    if lacking:
        raise DataError(
            f"{option} {lacking[0]}: the rows have no such column{guess(lacking[0], held)}",
            where={"file": file},
            hint=f"They have: {join_names(held, SHOWN_COLUMNS)}.",
        )


def look_at(path: str, size_bytes: int, text: FormatSpec, may_lack: str | None = None) -> TableFile:
    """Detect the format and the columns of a file.

    They are read from the footer of parquet, or the first lines of text. Text in Criteo's form
    always has the same columns, so its lines are not read.

    Args:
        text: The text format of the features document.
        may_lack: A column, usually the target, that text without a header may lack. Text in
            Criteo's form is described without it.

    Raises:
        DataError: The file is not a table, or several of its columns have the same name.
        Unavailable: The storage does not answer.
    """
    codec = detect_format(path)
    if codec == PARQUET:
        with readable_parquet(path) as file:
            schema = file.schema_arrow
            rows = rows_of_groups(file)
        if text.kind != CRITEO:  # without a document, unused columns may repeat
            _refuse_repeats(path, schema.names)
        types = {column.name: column.type for column in schema}
        return TableFile(path, PARQUET, None, types, "", rows, size_bytes)
    if text.kind == CRITEO:
        types = {column.name: column.type for column in STAGED_SCHEMA if column.name != may_lack}
        return TableFile(path, CRITEO, codec, types, text.delimiter or "\t", (), size_bytes)
    lines = first_lines(path, codec, text.encoding)
    kind = _kind(path, lines, text)
    if kind == "jsonl":
        return TableFile(path, kind, codec, _json_types(path, lines), "", (), size_bytes)
    delimiter, names = header_of(path, lines, text, may_lack)
    _refuse_repeats(path, names)
    types = dict.fromkeys(names, pa.string())
    return TableFile(path, kind, codec, types, delimiter, (), size_bytes)


def holds_criteo_lines(path: str) -> bool:
    """Return True if the first lines of a file have the form of Criteo's logs, without a header.

    All lines that `first_lines` returns must have this form, except empty ones. Raises the errors
    of `detect_format` and `first_lines`.
    """
    codec = detect_format(path)
    if codec == PARQUET:
        return False
    lines = first_lines(path, codec, "latin-1")
    block = "".join(f"{line}\n" for line in lines if line).encode("latin-1")
    return parse_lines(block, TextLayout()) is not None


def _kind(path: str, lines: list[str], text: FormatSpec) -> str:
    if text.kind != "auto":
        return text.kind
    bare = path.lower().removesuffix(".gz").removesuffix(".zst").removesuffix(".zstd")
    first = next(line for line in lines if line.strip())
    return "jsonl" if bare.endswith(_JSON_ENDINGS) or first.lstrip()[:1] == "{" else "csv"


def _refuse_repeats(path: str, names: Sequence[str]) -> None:
    repeated = sorted(name for name, times in Counter(names).items() if times > 1)
    if repeated:
        raise DataError(
            f"several columns are named {', '.join(map(repr, repeated))}",
            where={"file": path},
            hint="Rename them; if the text has no header, set format.header and format.names.",
        )


def _json_types(path: str, lines: list[str]) -> dict[str, pa.DataType]:
    values_of: dict[str, list[Any]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json_row(line.encode())
        except ValueError:
            row = None
        if not isinstance(row, dict):
            if number > 1:
                continue  # a bad line, which is reported when the lines are read
            raise DataError(
                "the first line is not a JSON object",
                where={"file": path, "line": 1, "content": line[:72]},
                hint="JSON lines hold one object each: one row, by column.",
            )
        for name, value in row.items():
            values_of.setdefault(name, []).append(value)
    return {name: json_type(_most_alike(values)) for name, values in values_of.items()}


def _most_alike(values: list[Any]) -> list[Any]:
    """Return the non-null values of the more frequent shape: the lists, or the single values.

    If both are equally frequent, return the single values.
    """
    lists = [value for value in values if isinstance(value, list)]
    single = [v for v in values if v is not None and not isinstance(v, list)]
    return lists if len(lists) > len(single) else single


def json_row(line: bytes) -> Any:
    """Return the value of a line of JSON.

    Raises a `ValueError` if the line is invalid, nested too deeply, or has a lone surrogate.
    """
    try:
        row = json.loads(line)
    except RecursionError as error:
        raise ValueError(f"too deep: {error}") from None
    if b"\\u" in line:
        json.dumps(row, ensure_ascii=False).encode()
    return row


def json_type(values: Iterable[Any]) -> pa.DataType:
    """Return the type of some values of one column of JSON lines; text if their types differ.

    >>> json_type([1, None, 2.5]), json_type([["a"], []]), json_type([1, "a"])
    (DataType(double), ListType(list<item: string>), DataType(string))
    """
    given = [value for value in values if value is not None]
    if given and all(isinstance(value, list) for value in given):
        return pa.list_(json_type(item for value in given for item in value))
    kinds = {type(value) for value in given}
    if not kinds:
        return pa.null()
    for allowed, dtype in (
        ({bool}, pa.bool_()),
        ({int}, pa.int64()),
        ({int, float}, pa.float64()),
    ):
        if kinds <= allowed:
            return dtype
    return pa.string()


def _mistakes(file: TableFile, features: FeatureConfig) -> Iterable[tuple[str, str]]:
    document = features.document
    checks: list[tuple[str, Callable[[pa.DataType], str | None]]] = [
        (name, lambda _: None) for name in features.keep
    ]
    if not features.unlabeled:
        targets = document.targets.values()
        checks += [(t.column, partial(mistake_of_target, target=t)) for t in targets]
        beside = (document.weight, document.windows and document.windows.by)
        checks += [(name, mistake_of_values) for name in beside if name]
    for split in (document.test, document.split):
        if isinstance(split, TimeSplit | HashSplit | ColumnSplit):
            checks.append((split.column, partial(mistake_of_split, split=split)))
    for name, spec in document.columns.items():
        checks += [(one, partial(_of_column, column=spec)) for one in spec.sources(name)]
    if (history := document.history) is not None:
        order = history.staged[TIMES_OF_HISTORY]
        by = _of_key if isinstance(order, ContinuousSpec) else partial(_of_column, column=order)
        checks += [(history.by, by), (history.order, partial(_of_column, column=order))]
    for join in document.joins:
        checks += [(name, _of_key) for name in join.key]
        for name in join.columns:
            if name in file.types or name in file.folders:
                yield name, f"already present, and also in {join.file}; rename it in joins.columns"
    for name in features.keep:
        if file.kind == "jsonl" and pa.types.is_nested(file.types.get(name, pa.null())):
            yield name, "lists in JSON lines, which cannot be kept"
    for name in document.partitions:
        if name not in file.folders and name not in file.types:
            yield name, f"in partitions, but no folder of the file is named {name}=..."
    for name, mistake_of in checks:
        if name not in file.columns:
            yield name, f"missing{guess(name, file.columns)}"
        elif file.has_types_in(name) and (mistake := mistake_of(_plain(file.columns[name]))):
            yield name, mistake


def _of_key(dtype: pa.DataType) -> str | None:
    if pa.types.is_nested(dtype):
        return f"{dtype}, not single values, which keys must be"
    return mistake_of_values(dtype)


def _of_column(dtype: pa.DataType, column: ColumnSpec) -> str | None:
    if column.cross and holds_lists(dtype):
        return f"{dtype}, not single values, which cross needs"
    may_be_lists = holds_lists(dtype) or column.separator is not None
    if column.list_slice is not None and not may_be_lists:
        return f"{dtype}, not lists, which list_slice needs"
    return mistake_of_type(_plain(_of_item(dtype)), column)


def _of_item(dtype: pa.DataType) -> pa.DataType:
    return _plain(dtype.value_type if holds_lists(dtype) else dtype)


def _plain(dtype: pa.DataType) -> pa.DataType:
    return dtype.value_type if pa.types.is_dictionary(dtype) else dtype
