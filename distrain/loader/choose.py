"""Which reader serves a table, and why."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from distrain.errors import SpecError
from distrain.loader.packed import is_packed
from distrain.partition import Table
from distrain.partition.columns import Wanted

READERS = ("auto", "arrow", "packed", "cudf")


class ReaderChoice(NamedTuple):
    """A reader and why it was chosen.

    Attributes:
        name: `"arrow"`, `"packed"` or `"cudf"`.
        reason: A sentence for people.
    """

    name: str
    reason: str


def choose_reader(
    wish: str, table: Table, columns: Sequence[Wanted], device_type: str
) -> ReaderChoice:
    """Say who reads a table.

    Args:
        wish: One of `READERS`.
        table: The row groups.
        columns: The columns of a batch.
        device_type: Where batches go, `"cpu"` or `"cuda"`.

    Raises:
        SpecError: There is no such reader, or it cannot read this table here.
    """
    if wish not in READERS:
        raise SpecError(f"unknown reader {wish!r}", hint=f"Allowed: {', '.join(READERS)}.")
    against = {
        "packed": _why_not_packed(table, columns),
        "cudf": _why_not_cudf(table, columns, device_type),
        "arrow": None,
    }
    if wish != "auto":
        reason = against[wish]
        if reason:
            raise SpecError(f"reader {wish!r} cannot serve this table: {reason}")
        return ReaderChoice(wish, "asked for")
    if against["packed"] is None:
        return ReaderChoice("packed", "all files are in the fast layout")
    if against["cudf"] is None:
        return ReaderChoice("cudf", "batches go to a GPU and cuDF is installed")
    return ReaderChoice("arrow", f"{against['packed']}; {against['cudf']}")


def _why_not_packed(table: Table, columns: Sequence[Wanted]) -> str | None:
    if any(column.is_list for column in columns):
        return "the fast layout holds no list columns"
    for file in dict.fromkeys(group.file for group in table.row_groups):
        if "://" in file:
            return "the fast layout is read from local files only"
        try:
            packed = is_packed(pq.read_metadata(file))
        except (OSError, pa.ArrowException):
            packed = False  # whoever reads its rows will say what is wrong with it
        if not packed:
            return "the files are ordinary parquet"
    if any(group.constants for group in table.row_groups):
        return "columns come from the names of folders"
    return None


def _why_not_cudf(table: Table, columns: Sequence[Wanted], device_type: str) -> str | None:
    if device_type != "cuda":
        return "batches stay on the host"
    if importlib.util.find_spec("cudf") is None:
        return "cuDF is not installed"
    if any(column.is_list for column in columns):
        return "list columns are read by Arrow"
    if any(group.constants for group in table.row_groups):
        return "columns come from the names of folders"
    return None
