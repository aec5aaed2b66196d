"""Schema files: Merlin's `schema.pbtxt` and `schema.json`, and distrain's own JSON form.

All three are read. `write_columns` writes `*.pbtxt` and `*.json` in Merlin's forms only.
"""

import contextlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from distrain.errors import SchemaError
from distrain.schema.column import ColumnSchema, columns_from_json
from distrain.schema.merlin import column_of, feature_of
from distrain.schema.messages import (
    FEATURE,
    SHARED_DOMAINS,
    Feature,
    FieldKind,
    read_json,
    read_text,
    snake_case,
    write_json,
    write_text,
)
from distrain.schema.textproto import Field, parse, render
from distrain.storage.inputs import PARQUET_SUFFIXES, list_inputs, open_input, read_bytes
from distrain.storage.outputs import atomic_file
from distrain.storage.prefixes import refuse_unfinished
from distrain.storage.urls import is_remote

_log = logging.getLogger(__name__)

_Where: TypeAlias = dict[str, object]
_Entry: TypeAlias = tuple[str, Any, _Where]  # field's name, unparsed message, place for errors
_Reader: TypeAlias = Callable[[Any, Mapping[str, FieldKind]], Feature]

_NAMES_IN_FOLDER = ("schema.pbtxt", "schema.json", ".merlin/schema.json")
_RAW_HINT = (
    "This is a raw file: prepare it with `distrain prep`, and name the folder OUT/train that it "
    "makes. docs/any-table.md shows how."
)
_FORMATS_HINT = "Known are Merlin's text format (*.pbtxt) and JSON (*.json)."


def read_columns(path: str | Path) -> tuple[ColumnSchema, ...]:
    """Return the columns of a schema file, or of the schema file in a folder.

    The file's extension determines its format. Top-level domains (`string_domain`, ...) become
    part of the columns that refer to them. Other top-level entries are ignored with a warning,
    since they describe no column. If a feature is listed twice with equal definitions, the second
    entry is ignored with a warning.

    Raises:
        SchemaError: The file is missing, its format unknown, or its content unreadable; or a column
            has two definitions. The error names the file, and the line or the feature.
        DataError: The file is in an unfinished output on an object store.
    """
    url = str(path) if is_remote(path) else None
    path = Path(path)
    if url is None and path.is_dir():
        path = find_schema(path)
    if url is not None or path.exists():  # for a mistyped path, report the missing file instead
        _check_ending(path)
    with _placed({"file": url or path}):
        if url is not None:
            refuse_unfinished(url.rpartition("/")[0])
        text = _read(url or path)
        try:
            if path.suffix == ".pbtxt":
                entries: Iterator[_Entry] = (
                    (field.key, field, {"line": field.line}) for field in parse(text)
                )
                return _assembled(entries, _read_feature, path)
            document = _json_document(text)
            if "columns" in document:
                return columns_from_json(document)
            return _assembled(_json_entries(document), read_json, path)
        except RecursionError:
            raise SchemaError("nested too deeply to be a schema") from None


def write_columns(columns: Sequence[ColumnSchema], path: str | Path) -> None:
    """Write a schema, completely or not at all. The file's extension determines the format.

    Raises:
        SchemaError: The extension is not a known format, or a column cannot be written.
        OutputError: The file could not be written.
        Unavailable: `path` is a URL, and its store does not answer.
    """
    url = str(path) if is_remote(path) else None
    path = Path(path)
    _check_ending(path)
    kinds: dict[str, FieldKind] = {"feature": [FEATURE]}
    with _placed({"file": path}):
        try:
            message = {"feature": [feature_of(column) for column in columns]}
            if path.suffix == ".pbtxt":
                text = render(write_text(message, kinds))
            else:
                text = json.dumps(write_json(message, kinds), indent=2, allow_nan=False) + "\n"
        except ValueError as error:  # a lone surrogate in a name, a NaN as a bound
            raise SchemaError(f"the schema cannot be written: {error}") from None
    with atomic_file(url or path) as partial:
        partial.write_text(text, encoding="utf-8")


def find_schema(folder: str | Path) -> Path:
    """Return the schema file in a folder of data or of a workflow.

    The names are tried in this order: `schema.pbtxt`, `schema.json`, `.merlin/schema.json`.

    Raises:
        SchemaError: The folder has no schema file.
    """
    for name in _NAMES_IN_FOLDER:
        if (Path(folder) / name).is_file():
            return Path(folder) / name
    raise SchemaError(
        "no schema in the folder" if Path(folder).is_dir() else "no such folder",
        where={"folder": folder},
        hint=f"Looked for: {', '.join(_NAMES_IN_FOLDER)}.",
    )


def find_schema_next_to(file: str | Path) -> Path | None:
    """Return the schema file in a data file's folder, or in the parent of that folder.

    `None` if neither folder has one. The folders of remote files are not searched.
    """
    if is_remote(file):
        return None
    for folder in (Path(file).parent, Path(file).parent.parent):
        try:
            return find_schema(folder)
        except SchemaError:
            continue
    return None


def schema_of_rows(patterns: Sequence[str], hint: str, retry_s: float = 0.0) -> Path:
    """Return the schema file beside the first of the files of rows.

    Args:
        patterns: The rows' files, folders, globs or URLs.
        hint: How to pass a schema, for the error.
        retry_s: How long to retry if the storage does not answer.

    Raises:
        SchemaError: There is no schema in the file's folder, nor in the parent of that folder; or
            the file is remote, and its folder is not searched.
        DataError, Unavailable: The rows' files cannot be listed.
    """
    file = list_inputs(patterns, suffixes=PARQUET_SUFFIXES, retry_s=retry_s)[0].path
    found = find_schema_next_to(file)
    if found is not None:
        return found
    raise SchemaError(
        "remote folders are not searched for a schema"
        if is_remote(file)
        else "found no schema beside the rows",
        where={"file": file},
        hint=hint if is_remote(file) or _is_parquet(file) else _RAW_HINT,
    )


def _is_parquet(file: str) -> bool:
    with open_input(file) as handle:
        return handle.read(4) in (b"PAR1", b"PARE")


def _check_ending(path: Path) -> None:
    if path.suffix not in (".pbtxt", ".json"):
        raise SchemaError(
            f"unknown ending {path.suffix!r} of a schema file",
            where={"file": path},
            hint=_FORMATS_HINT,
        )


def _read(path: Path | str) -> str:
    try:
        data = read_bytes(path)
    except FileNotFoundError:
        raise SchemaError("no such schema file", hint="Check the path.") from None
    except OSError as error:
        raise SchemaError(f"the schema file cannot be read: {error.strerror}") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SchemaError("the schema file is not UTF-8 text", where={"line": line}) from None


def _assembled(entries: Iterable[_Entry], read: _Reader, path: Path) -> tuple[ColumnSchema, ...]:
    """Return the columns of a file's top-level entries, in the order of the file.

    `read` converts an unparsed entry to a dictionary; `path` is named in warnings.
    """
    features: list[tuple[_Where, Feature]] = []
    shared: dict[str, tuple[str, Feature]] = {}
    ignored: set[str] = set()
    for key, raw, where in entries:
        with _placed(where):
            if key == "feature":
                features.append((where, read(raw, FEATURE)))
            elif key in SHARED_DOMAINS:
                domain = read(raw, SHARED_DOMAINS[key])
                shared[domain.get("name", "")] = (key, domain)
            else:
                ignored.add(key)
    if ignored:
        names = ", ".join(sorted(ignored))
        _log.warning("%s: ignored entries that describe no column: %s", path, names)
    columns: dict[str, ColumnSchema] = {}
    repeated: set[str] = set()
    for where, feature in features:
        with _placed(where):
            column = column_of(feature, shared)
            if columns.setdefault(column.name, column) != column:
                raise SchemaError(
                    f"the column {column.name!r} is listed twice, with different definitions",
                    hint="Remove the one that does not fit the table.",
                )
            if columns[column.name] is not column:
                repeated.add(column.name)
    if repeated:
        twice = ", ".join(sorted(repeated))
        _log.warning("%s: columns listed twice with equal definitions count once: %s", path, twice)
    return tuple(columns.values())


@contextlib.contextmanager
def _placed(where: _Where) -> Iterator[None]:
    """Context manager that adds `where` to the `where` of a `SchemaError` raised inside.

    The error's own entries take precedence.
    """
    try:
        yield
    except SchemaError as error:
        raise SchemaError(error.message, where={**where, **error.where}, hint=error.hint) from None


def _read_feature(field: Field, kinds: Mapping[str, FieldKind]) -> Feature:
    message: Feature = read_text([field], {field.key: dict(kinds)})[field.key]
    return message


def _json_entries(document: dict[str, Any]) -> Iterator[_Entry]:
    for key, items in document.items():
        for number, item in enumerate(items if isinstance(items, list) else [items], start=1):
            yield snake_case(key), item, {key: _label(number, item)}


def _label(number: int, item: Any) -> str:
    name = item.get("name") if isinstance(item, dict) else None
    return f"number {number}" + (f", {name!r:.60}" if name else "")


def _json_document(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise SchemaError(
            f"not JSON: {error.msg}", where={"line": error.lineno, "character": error.colno}
        ) from None
    if not isinstance(document, dict) or not {"feature", "columns"} & document.keys():
        raise SchemaError(
            "not a schema: it has neither `feature` (Merlin's form) nor `columns` (distrain's form)"
        )
    return document
