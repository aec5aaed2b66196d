"""The mark in a packed file's footer: where each row group's bytes lie, and their checksums.

It is JSON under the footer's key `distrain.packed`: for each row group its bytes' place, a checksum
of all of them, and one of each column's values. It has a checksum of its own. Files with columns of
lists have version 2; readers that know version 1 alone take them for ordinary parquet.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq
import xxhash

from distrain.errors import DataError

FORMAT_VERSION = 1
LISTS_VERSION = 2
MARK_KEY = "distrain.packed"
DAMAGED = "The footer is damaged, or another program changed the file: pack it again."

_HEX_DIGITS = 16
_LEAF = ".list.element"

checksum = xxhash.xxh3_64_intdigest
new_checksum = xxhash.xxh3_64  # the same, part by part


@dataclass(frozen=True)
class GroupMark:
    start: int  # where its bytes begin in the file
    length: int  # the number of bytes, including page headers
    num_rows: int
    all_checksum: int  # XXH3 (64 bits) of these bytes
    # XXH3 of each column's values alone, in the order of the file, then of the lengths of
    # each list column's rows
    checksums: tuple[int, ...]
    items: tuple[int, ...] = ()  # the number of values of each list column

    def to_json(self) -> list[object]:
        sums = "".join(map(_hex, self.checksums))
        found: list[object] = [self.start, self.length, self.num_rows, _hex(self.all_checksum)]
        return [*found, sums, *([list(self.items)] if self.items else [])]

    @staticmethod
    def from_json(document: list[Any]) -> GroupMark:
        start, length, num_rows, all_, sums, *items = document
        return GroupMark(
            start,
            length,
            num_rows,
            int(all_, 16),
            tuple(int(sums[i : i + _HEX_DIGITS], 16) for i in range(0, len(sums), _HEX_DIGITS)),
            tuple(items[0] if items else ()),
        )


@dataclass(frozen=True)
class Mark:
    columns: tuple[str, ...]  # all columns, in the order of the file
    source: str  # the fingerprint of the table it was made from
    groups: tuple[GroupMark, ...]
    lists: tuple[str, ...] = ()  # those of the columns that are lists

    @property
    def leaves(self) -> tuple[str, ...]:
        return tuple(name + _LEAF if name in self.lists else name for name in self.columns)

    def to_json(self) -> str:
        groups = [group.to_json() for group in self.groups]
        body = {"columns": self.columns, "source": self.source, "row_groups": groups}
        version = FORMAT_VERSION
        if self.lists:
            version, body["lists"] = LISTS_VERSION, self.lists
        document = {"version": version, "checksum": _checksum_of(body), **body}
        return json.dumps(document, ensure_ascii=False)

    @staticmethod
    def from_json(text: bytes) -> Mark:
        """Parse it; a `ValueError` says that it is damaged, or of another version."""
        document = _parsed(text)
        if document.pop("version") not in (FORMAT_VERSION, LISTS_VERSION):
            raise ValueError("written by another version")
        if document.pop("checksum") != _checksum_of(document):
            raise ValueError("damaged")
        groups = tuple(map(GroupMark.from_json, document["row_groups"]))
        lists = tuple(document.get("lists", ()))
        mark = Mark(tuple(document["columns"]), document["source"], groups, lists)
        mark._check()
        return mark

    def _check(self) -> None:
        # The checksum finds damage, but a writer can make it fit any numbers.
        if not set(self.lists) <= set(self.columns):
            raise ValueError("a list column is no column")
        for group in self.groups:
            numbers = (group.start, group.length, group.num_rows, *group.items)
            if not all(type(number) is int and number >= 0 for number in numbers):
                raise ValueError("a row group's place is no place in a file")
            if len(group.checksums) != len(self.columns) + len(self.lists):
                raise ValueError("a row group has not one checksum a column")
            if len(group.items) != len(self.lists):
                raise ValueError("a row group has not one number of items a list column")


def is_packed(metadata: pq.FileMetaData) -> bool:
    """Whether a parquet file has the layout, in a version that is known here.

    Only the mark's presence and version count; a damaged mark is reported when a row group is read.
    Files of a later version are read as ordinary parquet.
    """
    text = (metadata.metadata or {}).get(MARK_KEY.encode())
    if text is None:
        return False
    try:
        return _parsed(text)["version"] in (FORMAT_VERSION, LISTS_VERSION)
    except (ValueError, KeyError, TypeError):
        return True  # so that reading reports the damage


def mark_of(metadata: pq.FileMetaData, file: str) -> Mark:
    """The mark of a packed file; it must be whole and fit the footer."""
    where = {"file": file}
    text = (metadata.metadata or {}).get(MARK_KEY.encode())
    if text is None:
        raise DataError(
            "not a packed file", where=where, hint="Make one of it with `distrain pack`."
        )
    try:
        mark = Mark.from_json(text)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = "the footer's key distrain.packed cannot be used"
        raise DataError(message, where={**where, "cause": str(error)}, hint=DAMAGED) from None
    names = tuple(metadata.schema.column(i).path for i in range(metadata.num_columns))
    if names != mark.leaves or metadata.num_row_groups != len(mark.groups):
        message = "the footer has other columns or row groups than its key distrain.packed says"
        raise DataError(message, where=where, hint=DAMAGED)
    return mark


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _hex(number: int) -> str:
    return f"{number:0{_HEX_DIGITS}x}"


def _checksum_of(body: dict[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return _hex(checksum(text.encode()))
