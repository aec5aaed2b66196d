"""Which reader serves a table, and why."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from distrain.errors import SpecError
from distrain.loader.packed import is_packed
from distrain.partition import Table
from distrain.partition.columns import Wanted

READERS = ("auto", "arrow", "packed", "cudf")

_HINTS = {
    "packed": "`distrain pack` writes files for it; reader 'auto' takes what serves the table.",
    "cudf": "It decodes on the GPU that batches go to; reader 'auto' takes what serves the table.",
}

_READERS_OF_FOOTERS = 16

# Of these we know what cuDF makes of them. A date64, for one, is of milliseconds for Arrow.
_CUDF_TYPES = frozenset(
    (
        *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.date32()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float32(), pa.float64()),
    )
)


class ReaderChoice(NamedTuple):
    """A reader and why it was chosen.

    Attributes:
        name: `"arrow"`, `"packed"` or `"cudf"`.
        reason: A sentence for people.
    """

    name: str
    reason: str


def choose_reader(
    wish: str,
    table: Table,
    columns: Sequence[Wanted],
    device_type: str,
    *,
    has_cache: bool = False,
) -> ReaderChoice:
    """Say who reads a table.

    Args:
        wish: One of `READERS`.
        table: The row groups.
        columns: The columns of a batch.
        device_type: Where batches go, `"cpu"` or `"cuda"`.
        has_cache: Whether decoded row groups are to be kept on a disk.

    Raises:
        SpecError: There is no such reader, or it cannot read this table here.
    """
    if wish not in READERS:
        raise SpecError(f"unknown reader {wish!r}", hint=f"Allowed: {', '.join(READERS)}.")
    against = {
        "packed": _why_not_packed(table, columns),
        "cudf": _why_not_cudf(table, columns, device_type, has_cache),
        "arrow": None,
    }
    if wish != "auto":
        reason = against[wish]
        if reason:
            raise SpecError(f"reader {wish!r} cannot serve this table: {reason}", hint=_HINTS[wish])
        return ReaderChoice(wish, "asked for")
    if against["packed"] is None:
        return ReaderChoice("packed", "all files are in the fast layout")
    if against["cudf"] is None:
        return ReaderChoice("cudf", "batches go to a GPU and cuDF is installed")
    return ReaderChoice("arrow", f"{against['packed']}; {against['cudf']}")


def _why_not_packed(table: Table, columns: Sequence[Wanted]) -> str | None:
    if any(column.is_list for column in columns):
        return "the fast layout holds no list columns"
    for file in table.compact.files:
        if "://" in file:
            return "the fast layout is read from local files only"
        try:
            packed = is_packed(pq.read_metadata(file))
        except (OSError, pa.ArrowException):
            packed = False  # whoever reads its rows will say what is wrong with it
        if not packed:
            return "the files are ordinary parquet"
    if table.compact.has_constants:
        return "columns come from the names of folders"
    return None


def _why_not_cudf(
    table: Table, columns: Sequence[Wanted], device_type: str, has_cache: bool
) -> str | None:
    if device_type != "cuda":
        return "batches stay on the host"
    if any(importlib.util.find_spec(name) is None for name in ("pylibcudf", "rmm")):
        return "cuDF is not installed"
    if has_cache:
        return "the cache keeps what Arrow decodes"
    if any(column.is_list for column in columns):
        return "list columns are read by Arrow"
    if any("." in column.name for column in columns):
        return "cuDF takes a name with a dot for a field of a struct"
    if table.compact.has_constants:
        return "columns come from the names of folders"
    files = table.compact.files
    with ThreadPoolExecutor(_READERS_OF_FOOTERS) as pool:
        reasons = pool.map(partial(_why_not_cudf_file, columns=columns), files)
        return next((reason for reason in reasons if reason), None)


def _why_not_cudf_file(file: str, columns: Sequence[Wanted]) -> str | None:
    if "://" in file:
        return "remote files are read by Arrow"
    try:
        kinds = {field.name: field.type for field in pq.read_schema(file)}
    except (OSError, pa.ArrowException) as error:
        return f"{file} cannot be read: {str(error).splitlines()[0]}"
    for column in columns:
        kind = kinds.get(column.name)
        if kind is not None and kind not in _CUDF_TYPES:  # a missing one is told by who reads
            return f"column {column.name!r} holds {kind}, which is not known to be the same by cuDF"
    return None
