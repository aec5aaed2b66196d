"""A table: its row groups in little memory, and its bytes for another process."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distrain.partition.hive import Constants
from distrain.partition.lazy_sequence import LazySequence


class Slice(NamedTuple):
    """Which rows of a large row group are read at a time."""

    number: int  # which slice of the row group, from 0
    slice_rows: int  # rows of each slice; the last one may have fewer
    group_rows: int  # rows of the whole row group


@dataclass(frozen=True)
class RowGroup:
    """A row group of a parquet file, or a slice of one.

    Attributes:
        file: A local path, or a URL as fsspec takes it.
        index: Which row group of the file, from 0.
        num_rows: Its rows, or those of the slice; at least 1.
        constants: Columns that are not in the file, since the names of its folders give one value
            for all rows: integers for ids, floats for others.
        version: The file's version when its footer was read; "" if unknown.
        slice: Which rows these are; `None` for all of the row group.
    """

    file: str
    index: int
    num_rows: int
    constants: Constants = ()
    version: str = field(default="", compare=False)
    slice: Slice | None = None

    @property
    def group_rows(self) -> int:
        return self.slice.group_rows if self.slice else self.num_rows

    @property
    def first_row(self) -> int:
        return self.slice.number * self.slice.slice_rows if self.slice else 0

    @property
    def where(self) -> dict[str, object]:
        return {"file": self.file, "row group": self.index}


class RowGroups(LazySequence[RowGroup]):
    """Row groups in 16 bytes each; those of a file stand together."""

    def __init__(self, groups: Iterable[RowGroup]):
        files: list[tuple[str, Constants, str]] = []
        numbers: list[int] = []
        cells: list[tuple[int, int]] = []
        for group in groups:
            file = (group.file, group.constants, group.version)
            if not files or files[-1] != file:
                files.append(file)
            numbers.append(len(files) - 1)
            cells.append((group.index, group.num_rows))
        own = np.array(cells, np.int64).reshape(-1, 2)
        self._files = files
        self._numbers = np.array(numbers, np.int32)
        self._indices = own[:, 0].astype(np.int32)
        self._num_rows = own[:, 1].copy()

    @property
    def rows(self) -> NDArray[np.int64]:
        return self._num_rows

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(file for file, _, _ in self._files))

    @property
    def has_constants(self) -> bool:
        return any(constants for _, constants, _ in self._files)

    def __len__(self) -> int:
        return len(self._numbers)

    def _make(self, place: int) -> RowGroup:
        file, constants, version = self._files[self._numbers[place]]
        index, num_rows = int(self._indices[place]), int(self._num_rows[place])
        return RowGroup(file, index, num_rows, constants, version)


@dataclass(frozen=True)
class Table:
    """The row groups of all files of a table.

    Attributes:
        row_groups: In the order of the files, without empty ones.
        fingerprint: SHA-256 (hex) over, in order, each file's base name, size, rows per row group,
            the types of the columns that are used, and the columns that its folders give. It does
            not depend on where the files lie otherwise, and it does not read their rows.
        only_label: The label that all rows have; `None` if there are two, or footers do not say.
    """

    row_groups: Sequence[RowGroup]
    fingerprint: str
    only_label: float | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.row_groups, RowGroups):
            object.__setattr__(self, "row_groups", RowGroups(self.row_groups))

    @property
    def compact(self) -> RowGroups:
        assert isinstance(self.row_groups, RowGroups)
        return self.row_groups

    @cached_property
    def num_rows(self) -> int:
        return int(self.compact.rows.sum())

    def to_bytes(self) -> bytes:
        groups = self.compact
        header = json.dumps({"fingerprint": self.fingerprint, "files": groups._files})
        content = io.BytesIO()
        np.savez_compressed(
            content,
            told=np.frombuffer(header.encode(), np.uint8),
            files=groups._numbers,
            indices=groups._indices,
            rows=groups._num_rows,
        )
        return content.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> Table:
        """The inverse of `to_bytes`; a `ValueError` if this is no table."""
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                header = json.loads(arrays["told"].tobytes())
                groups = RowGroups(())
                groups._files = [
                    (file, tuple((name, value) for name, value in constants), version)
                    for file, constants, version in header["files"]
                ]
                groups._numbers = arrays["files"]
                groups._indices, groups._num_rows = arrays["indices"], arrays["rows"]
            return cls(groups, header["fingerprint"])
        except Exception as error:  # a zip file can be damaged in many ways
            raise ValueError(f"no table: {error}") from error
