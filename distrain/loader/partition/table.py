"""`Table`: the row groups of a table in little memory, which can be sent to another process."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distrain.loader.partition.hive import Constants
from distrain.loader.partition.lazy_sequence import LazySequence


@dataclass(frozen=True)
class Selection:
    """Some rows of a row group, at least one; stored in one bit for each row of the row group."""

    group_rows: int  # rows of the whole row group
    num_rows: int  # rows that are selected
    bits: bytes = field(repr=False)  # whether each row is selected, as from `numpy.packbits`

    @classmethod
    def of(cls, is_taken: NDArray[np.bool_]) -> Selection:
        """Return the selection of the rows where a mask, `[group_rows]`, is True.

        >>> Selection.of(np.array([True, False, True])).places.tolist()
        [0, 2]
        """
        packed = np.packbits(is_taken).tobytes()
        return cls(len(is_taken), int(np.count_nonzero(is_taken)), packed)

    @property
    def is_taken(self) -> NDArray[np.bool_]:
        """Whether each row is selected, `[group_rows]`."""
        packed = np.frombuffer(self.bits, np.uint8)
        return np.unpackbits(packed, count=self.group_rows).view(np.bool_)

    @property
    def places(self) -> NDArray[np.int64]:
        """The indices of the selected rows in the row group, `[num_rows]`."""
        return np.flatnonzero(self.is_taken)

    @cached_property
    def digest(self) -> str:
        return hashlib.blake2b(self.bits, digest_size=16).hexdigest()


class Slice(NamedTuple):
    """A slice of a large row group: consecutive rows of its selection, which are read together."""

    number: int  # the slice's number in the row group, from 0
    slice_rows: int  # selected rows of each slice; the last slice may have fewer
    group_rows: int  # selected rows of the whole row group


@dataclass(frozen=True)
class RowGroup:
    """A row group of a parquet file, or a slice of a row group, with all or some of its rows."""

    file: str  # a local path, or an fsspec URL
    index: int  # the row group's number in the file, from 0
    num_rows: int  # the selected rows of the row group, or of the slice; at least 1
    # columns with one value for all rows, from the names of the file's folders: integers for ids,
    # floats for others
    constants: Constants = ()
    # the file's version when its footer was read; "" if unknown
    version: str = field(default="", compare=False)
    slice: Slice | None = None  # if set, only this slice of the selected rows
    # which rows of the row group are selected; `None` if all are
    selection: Selection | None = None

    def taking(self, is_taken: NDArray[np.bool_]) -> RowGroup | None:
        """Return the row group with some of its rows; `None` if no row is taken. Not for slices.

        Args:
            is_taken: Whether to keep each of the currently selected rows, `[num_rows]`.

        >>> group = RowGroup("a", 0, 4).taking(np.array([False, True, True, True]))
        >>> again = group.taking(np.array([True, False, True]))
        >>> again.num_rows, again.group_rows, again.rows_in_file.tolist()
        (2, 4, [1, 3])
        """
        assert self.slice is None
        if is_taken.all():
            return self
        if not is_taken.any():
            return None
        if self.selection is not None:
            own = self.selection.is_taken.copy()
            own[own] = is_taken
            is_taken = own
        selection = Selection.of(is_taken)
        return replace(self, num_rows=selection.num_rows, selection=selection)

    @property
    def group_rows(self) -> int:
        """The number of rows of the whole row group in the file."""
        if self.selection:
            return self.selection.group_rows
        return self.slice.group_rows if self.slice else self.num_rows

    @cached_property
    def rows_in_file(self) -> NDArray[np.int64]:
        """The number of each selected row in the row group of the file, `[num_rows]`."""
        first = self.slice.number * self.slice.slice_rows if self.slice else 0
        if self.selection is None:
            return np.arange(first, first + self.num_rows)
        return self.selection.places[first : first + self.num_rows]

    @property
    def first_row(self) -> int:
        """The number in the row group of the first row to read."""
        if not self.slice:
            return 0
        if self.selection:
            return int(self.rows_in_file[0])
        return self.slice.number * self.slice.slice_rows

    @property
    def read_rows(self) -> int:
        """The number of consecutive rows to read, from `first_row` on, to get the selected rows."""
        if not self.selection:
            return self.num_rows
        return int(self.rows_in_file[-1]) + 1 - self.first_row if self.slice else self.group_rows

    @property
    def taken(self) -> NDArray[np.int64] | None:
        """The indices of the selected rows among the rows that are read; `None` to keep all."""
        return self.rows_in_file - self.first_row if self.selection else None

    def row_in_file(self, row: int) -> int:
        """Return the number in the file's row group of selected row `row`, from 0."""
        return int(self.rows_in_file[row]) if self.selection else self.first_row + row

    @property
    def spans(self) -> NDArray[np.int64]:
        """The first row, and one past the last, of every slice of this slice's row group.

        The result is `[slices, 2]`, with the rows' numbers in the row group. Fails if this is a
        whole row group.
        """
        assert self.slice is not None
        firsts = np.arange(0, self.slice.group_rows, self.slice.slice_rows)
        lasts = np.minimum(firsts + self.slice.slice_rows, self.slice.group_rows) - 1
        if self.selection:
            firsts, lasts = self.selection.places[firsts], self.selection.places[lasts]
        return np.stack([firsts, lasts + 1], axis=1)

    @property
    def where(self) -> dict[str, object]:
        return {"file": self.file, "row group": self.index}


class RowGroups(LazySequence[RowGroup]):
    """Row groups, stored in 16 bytes each, plus one bit a row for partially selected row groups.

    Row groups of a file are consecutive.

    Attributes:
        selections: The selections of partially selected row groups, by place in this sequence.
    """

    def __init__(self, groups: Iterable[RowGroup]):
        files: list[tuple[str, Constants, str]] = []
        numbers: list[int] = []
        cells: list[tuple[int, int]] = []
        self.selections: dict[int, Selection] = {}
        for group in groups:
            if group.selection is not None:
                self.selections[len(cells)] = group.selection
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
        """The number of selected rows of each row group, `[row groups]`."""
        return self._num_rows

    @property
    def group_rows(self) -> NDArray[np.int64]:
        """The number of rows of each row group in its file, selected or not."""
        rows = self._num_rows.copy()
        for place, selection in self.selections.items():
            rows[place] = selection.group_rows
        return rows

    @property
    def files(self) -> list[str]:
        # not np.unique, whose first call imports numpy.ma
        return list(dict.fromkeys(self._files[n][0] for n in sorted({*self._numbers.tolist()})))

    def at(self, places: NDArray[np.int64]) -> RowGroups:
        """Return the row groups at some places of this sequence, in the order of `places`."""
        some = RowGroups(())
        some._files, some._numbers = self._files, self._numbers[places]
        some._indices, some._num_rows = self._indices[places], self._num_rows[places]
        if self.selections:
            kept = ((new, self.selections.get(old)) for new, old in enumerate(places.tolist()))
            some.selections = {place: one for place, one in kept if one is not None}
        return some

    @property
    def has_constants(self) -> bool:
        return any(constants for _, constants, _ in self._files)

    def __len__(self) -> int:
        return len(self._numbers)

    def _make(self, place: int) -> RowGroup:
        file, constants, version = self._files[self._numbers[place]]
        index, num_rows = int(self._indices[place]), int(self._num_rows[place])
        selection = self.selections.get(place)
        return RowGroup(file, index, num_rows, constants, version, None, selection)


class Windows(NamedTuple):
    """A table's windows: all row groups of a window are trained before those of the next."""

    names: tuple[str, ...]  # in the order of training
    of_group: NDArray[np.int32]  # the window of each row group

    def at(self, is_kept: Sequence[bool]) -> Windows:
        """Return the windows with only the row groups for which `is_kept` is True.

        Windows that become empty are dropped.
        """
        numbers, of_group = np.unique(self.of_group[np.array(is_kept, bool)], return_inverse=True)
        names = tuple(self.names[number] for number in numbers.tolist())
        return Windows(names, of_group.astype(np.int32))


@dataclass(frozen=True)
class Table:
    """The row groups of all files of a table."""

    row_groups: Sequence[RowGroup]  # in the order of the files, without empty ones
    # SHA-256 (hex) over, in order, each file's base name, size, rows per row group, the types of
    # the used columns, and the columns from its folders. It does not depend on the files' location
    # otherwise, and rows are not read. If rows are dropped, the selection is hashed too.
    fingerprint: str
    # the label of all rows; `None` if labels differ, or footers have no bounds of labels
    only_label: float | None = field(default=None, compare=False)
    # the windows of its row groups; `None` if not requested
    windows: Windows | None = field(default=None, compare=False)

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

    def taking(self, kept: Sequence[RowGroup | None]) -> Table:
        """Return a table of parts of this table's row groups.

        `kept` has, for each row group in order, the row group with the kept rows, or `None` to drop
        it.
        """
        digest = hashlib.sha256(self.fingerprint.encode())
        for group in kept:
            some = group and group.selection
            digest.update(some.bits if some else b"-" if group is None else b"+")
        same = all(own == group for own, group in zip(self.row_groups, kept, strict=True))
        fingerprint = self.fingerprint if same else digest.hexdigest()
        windows = self.windows and self.windows.at([group is not None for group in kept])
        return Table([group for group in kept if group], fingerprint, self.only_label, windows)

    def followed_by(self, other: Table) -> Table:
        """Return a table of the rows of both tables.

        They must have no windows and no file in common.
        """
        both = hashlib.sha256(f"{self.fingerprint}{other.fingerprint}".encode()).hexdigest()
        label = self.only_label if self.only_label == other.only_label else None
        return Table([*self.row_groups, *other.row_groups], both, label)

    def of_window(self, window: int) -> Table:
        """Return a table of the row groups of window number `window`, in the order of the files."""
        assert self.windows is not None
        places = np.flatnonzero(self.windows.of_group == window)
        return Table(self.compact.at(places), self.fingerprint, self.only_label)

    def to_bytes(self) -> bytes:
        groups, windows = self.compact, self.windows
        header: dict[str, object] = {"fingerprint": self.fingerprint, "files": groups._files}
        more: dict[str, Any] = {}
        if windows is not None:
            header["windows"], more["windows"] = windows.names, windows.of_group
        content = io.BytesIO()
        np.savez_compressed(
            content,
            told=np.frombuffer(json.dumps(header).encode(), np.uint8),
            files=groups._numbers,
            indices=groups._indices,
            rows=groups._num_rows,
            selected=np.array(list(groups.selections), np.int32),
            group_rows=groups.group_rows,
            bits=np.frombuffer(b"".join(s.bits for s in groups.selections.values()), np.uint8),
            **more,
        )
        return content.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> Table:
        """Return the table that `to_bytes` serialised, without `only_label`.

        Raises a `ValueError` for other bytes.
        """
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
                bits, sizes, end = arrays["bits"].tobytes(), arrays["group_rows"], 0
                for place in arrays["selected"].tolist():
                    size, first = int(sizes[place]), end
                    end += -(-size // 8)
                    taken = int(groups._num_rows[place])
                    groups.selections[place] = Selection(size, taken, bits[first:end])
                windows = None
                if "windows" in header:
                    windows = Windows(tuple(header["windows"]), arrays["windows"])
            return cls(groups, header["fingerprint"], windows=windows)
        except Exception as error:  # a zip file can be damaged in many ways
            raise ValueError(f"no table: {error}") from error
