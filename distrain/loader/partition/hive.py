"""Reads columns from the names of folders, such as `.../day=2026-11/hour=7/part-0.parquet`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from distrain.errors import DataError
from distrain.loader.partition.wanted_columns import WantedColumn, value_problem
from distrain.schema.folders import NULL_FOLDER, folder_values

Constants = tuple[tuple[str, int | float], ...]

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_TRUTHS = {"true": 1, "false": 0}


def read_constants(
    path: str, wanted: Sequence[WantedColumn]
) -> tuple[Constants, tuple[str, ...], list[DataError]]:
    """Read the wanted columns that are in the names of the folders above a file.

    Returns:
        The name and value of each column, in the order of `wanted` (integers for ids, floats for
        others); the names of these columns and of columns with problems; and the problems.
    """
    pairs = folder_values(path)
    constants: list[tuple[str, int | float]] = []
    problems: list[DataError] = []
    columns = [column for column in wanted if any(key == column.name for key, _ in pairs)]
    for column in columns:
        texts = {text for key, text in pairs if key == column.name}
        value = _constant(column, texts)
        if isinstance(value, _Problem):
            where = {"file": path, "column": column.name}
            problems.append(DataError(value.message, where=where, hint=value.hint))
        else:
            constants.append((column.name, value))
    return tuple(constants), tuple(column.name for column in columns), problems


def ambiguous_columns(path: str, keys: Sequence[str], names: Sequence[str]) -> Iterator[DataError]:
    """Yield an error for each of `keys`, from folders' names, that is also a column of the file.

    `names` are the columns of the file at `path`.
    """
    for key in keys:
        if key in names:
            yield DataError(
                f"column {key!r} is in the file and in the name of a folder above it",
                where={"file": path, "column": key},
                hint="This is ambiguous: drop the column from the files, rename the folders, "
                "or read the table without hive.",
            )


class _Problem(NamedTuple):
    message: str
    hint: str


def _constant(column: WantedColumn, texts: set[str]) -> int | float | _Problem:
    name = repr(column.name)
    if column.is_list:
        return _Problem(
            f"column {name} is in a folder's name, but the schema says that each row holds a list",
            "Leave is_list (value_count) out of the schema.",
        )
    if len(texts) > 1:
        return _Problem(
            f"the folders give column {name} more than one value: {', '.join(sorted(texts))}",
            "Move the file below one folder of that name.",
        )
    (text,) = texts
    if text == NULL_FOLDER and column.fill_null is None:
        return _Problem(
            f"column {name} is null in the name of a folder ({NULL_FOLDER})",
            "Leave that folder out, or fill nulls.",
        )
    value = column.fill_null if text == NULL_FOLDER else _parse(column, text)
    if value is None:
        needed = "an integer id" if column.kind == "id" else "a number"
        return _Problem(
            f"column {name} is {text!r} in the name of a folder, but {needed} is needed",
            "Write the column to the files instead, as prepared numbers, and rename the folders.",
        )
    problem = value_problem(column, value)
    if problem:
        return _Problem(*problem)
    return int(value) if column.kind == "id" else float(value)


def _parse(column: WantedColumn, text: str) -> int | float | None:
    truth = _TRUTHS.get(text.lower())
    if truth is not None:
        return truth
    if column.kind == "id":
        return int(text) if _INTEGER.fullmatch(text) else None
    number = folder_number(text)
    return None if number is None else float(number)


def folder_number(text: str) -> int | float | None:
    """Return a value in a folder's name as a number; `None` if it is not a number.

    >>> folder_number("007"), folder_number("1e3"), folder_number("1_000")
    (7, 1000.0, None)
    """
    if "_" not in text and text.isascii() and text == text.strip():  # Python-only syntax
        for kind in (int, float):
            with suppress(ValueError):
                return kind(text)
    return None
