"""Parts, the units of work: some rows of an input file of parquet, or of a staging file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from distrain.errors import DataError, InputError
from distrain.prep.steps import bucket_of
from distrain.schema.criteo import LABEL
from distrain.storage.inputs import open_input
from distrain.storage.os_errors import reading_hint
from distrain.storage.outputs import atomic_file
from distrain.storage.retrying import RETRY_S, first_line
from distrain.storage.urls import is_remote


@dataclass(frozen=True)
class Part:
    """Consecutive rows of one parquet or staging file, or some of them, for one task."""

    path: str  # an input file of parquet, or a staging file (Arrow)
    # consecutive row groups of the input file, of which these are rows; empty for text
    row_groups: tuple[int, ...]
    num_rows: int  # number of rows in the part
    source: str  # the input file that the rows come from
    skip_rows: int = 0  # number of rows, at the start of the row groups, before the part
    # the index, in the input file, of the row groups' first row; `None` for a staging file
    first_row: int | None = None
    # for a staging file: the number of rows of the input file, including bad rows, before its first
    # row, from which its `ROW_NUMBER` counts
    rows_before: int = 0
    drawn: Drawn | None = None  # which of these rows belong to the part; `None`: all


@dataclass(frozen=True)
class Drawn:
    """Rows drawn at random, or the other rows: a row's place among all rows decides.

    So the draw does not depend on how rows are divided into parts, files and tasks.
    """

    first: int  # the place of the part's first row among all rows
    num_rows: int  # the number of rows to draw from
    below: int  # rows whose hash is below this number are drawn
    is_other: bool = False  # whether the part has the other rows

    @property
    def mask(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which rows belong to the part, `[num_rows]`."""
        is_drawn = _hashes(self.first, self.num_rows) < self.below
        mask: np.ndarray[Any, np.dtype[np.bool_]] = is_drawn != self.is_other
        return mask


_HASHES = 1 << 40
_MOST_COUNTED = 1 << 20  # of more rows, the number drawn differs from the share by less than 0.1 %


def _hashes(first: int, num_rows: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    places = np.arange(first, first + num_rows)
    return bucket_of(places, _HASHES)  # type: ignore[no-any-return]


ROW_NUMBER = "row_number"
FILE = "file"
"""`FILE` and `ROW_NUMBER` are output columns with a row's origin: the input file, and the row's
number in it.

The number counts from 0 and includes bad rows.
"""


def kept_names(keep: Sequence[str], features: Iterable[str]) -> dict[str, str]:
    """Return the input columns that are written unchanged, by their names in the output.

    A column with the name of a feature, of the label, of `FILE` or of `ROW_NUMBER` becomes
    `raw_NAME`. Raises an `InputError` if two columns of the output would have the same name.

    >>> kept_names(["order", "user"], ["user", "price"])
    {'order': 'order', 'raw_user': 'user'}
    """
    taken = {LABEL, FILE, ROW_NUMBER, *features}
    names = [f"raw_{column}" if column in taken else column for column in keep]
    twice = sorted({name for name in names if name in taken or names.count(name) > 1})
    if twice:
        raise InputError(
            f"several output columns would be named {', '.join(twice)}",
            hint="Name each column to keep once, and rename such columns in the files.",
        )
    return dict(zip(names, keep, strict=True))


def split_parts(parts: Sequence[Part], num_first: int) -> tuple[list[Part], list[Part]]:
    """Return the parts of the first `num_first` rows, and of the rest; may cut one part in two.

    >>> a, b = split_parts([Part("x", (0,), 10, "x"), Part("y", (0,), 10, "y")], 12)
    >>> [(p.path, p.skip_rows, p.num_rows) for p in a + b]
    [('x', 0, 10), ('y', 0, 2), ('y', 2, 8)]
    """
    first: list[Part] = []
    rest: list[Part] = []
    for part in parts:
        taken = min(max(num_first, 0), part.num_rows)
        num_first -= part.num_rows
        if taken:
            first.append(replace(part, num_rows=taken))
        if taken < part.num_rows:
            skip, left = part.skip_rows + taken, part.num_rows - taken
            rest.append(replace(part, skip_rows=skip, num_rows=left))
    return first, rest


def drawn_parts(parts: Sequence[Part], share: float) -> tuple[list[Part], list[Part]]:
    """Return parts of the rows that are not drawn, and of a `share` of the rows, drawn at random.

    Of up to a million rows, at least one is drawn, and the share is exact; of more rows it is
    approximate. The draw is the same each time.
    """
    rows, below = sum(part.num_rows for part in parts), int(share * _HASHES)
    if 1 < rows <= _MOST_COUNTED:
        count = min(max(1, round(rows * share)), rows - 1)
        below = int(np.partition(_hashes(0, rows), count)[count])
    others: list[Part] = []
    drawn: list[Part] = []
    first = 0
    for part in parts:
        for is_other, found in ((True, others), (False, drawn)):
            of_part = Drawn(first, part.num_rows, below, is_other)
            if count := int(of_part.mask.sum()):
                found.append(replace(part, num_rows=count, drawn=of_part))
        first += part.num_rows
    return others, drawn


def parts_of_row_groups(path: str, rows: Sequence[int], part_rows: int) -> list[Part]:
    """Return the parts of a parquet file, whose row groups have the given numbers of rows.

    A part is one row group, or several with together at most `part_rows` rows. A file without rows
    has no parts.
    """
    parts: list[Part] = []
    groups: list[int] = []
    first_row = num_rows = 0
    for group, group_rows in enumerate(rows):
        if groups and num_rows + group_rows > part_rows:
            parts.append(Part(path, tuple(groups), num_rows, path, first_row=first_row))
            first_row, num_rows, groups = first_row + num_rows, 0, []
        groups.append(group)
        num_rows += group_rows
    if num_rows:
        parts.append(Part(path, tuple(groups), num_rows, path, first_row=first_row))
    return parts


def slices_of(
    part: Part, columns: Sequence[str], most_rows: int
) -> Iterator[tuple[Part, pa.Table]]:
    """Yield consecutive parts of at most `most_rows` rows of a part of parquet, and their rows.

    So row groups of any size can be read in bounded memory. Raises a `DataError` if the columns
    cannot be read.
    """
    if part.num_rows <= most_rows:
        yield part, read_part(part, columns)
        return
    where: dict[str, object] = {"row groups": _span(part.row_groups)}
    with readable_parquet(part.path, where, **_STREAMED) as file:
        batches = file.iter_batches(
            most_rows, list(part.row_groups), list(columns), use_threads=False
        )
        skip = part.skip_rows
        while (batch := next(batches, None)) is not None:
            rows = pa.Table.from_batches([batch]).select(list(columns))
            yield replace(part, skip_rows=skip, num_rows=rows.num_rows), rows
            skip += rows.num_rows


def read_part(part: Part, columns: Sequence[str]) -> pa.Table:
    """Return the given columns of a part's rows; raises a `DataError` if they cannot be read."""
    # Inputs, too, may have the suffix of staging files.
    if part.path.endswith(STAGED_SUFFIX) and part.path != part.source:
        table = _read_staged(part.path, columns)
    else:
        with readable_parquet(part.path, {"row groups": _span(part.row_groups)}) as file:
            table = file.read_row_groups(list(part.row_groups), list(columns), use_threads=False)
    if part.drawn is not None:
        rows = table.slice(part.skip_rows, part.drawn.num_rows)
        return rows.filter(pa.array(part.drawn.mask)).select(list(columns))
    return table.slice(part.skip_rows, part.num_rows).select(list(columns))


STAGED_SUFFIX = ".arrow"


@contextmanager
def write_staged(path: str, schema: pa.Schema) -> Iterator[pa.ipc.RecordBatchFileWriter]:
    """Context manager that yields a writer of a staging file; on success, the file appears.

    A staging file is temporary, and tasks may read it several times. So it is an Arrow file,
    neither encoded nor compressed. Readers map it into memory, or fetch only the columns that they
    need. Its folder must exist, as for `write_parquet`. Raises `OutputError` if it cannot be
    written.
    """
    with (
        atomic_file(path, make_folder=False, sync=False) as partial,
        pa.OSFile(str(partial), "wb") as file,
        pa.ipc.new_file(file, schema) as writer,
    ):
        yield writer


def _read_staged(path: str, columns: Sequence[str]) -> pa.Table:
    try:
        if is_remote(path):
            return _fetch_staged(path, columns)
        with pa.memory_map(path) as file:
            return pa.ipc.open_file(file).read_all().select(list(columns))
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"staged rows cannot be read: {first_line(error)}",
            where={"file": path},
            hint=reading_hint(
                error, "All workers must see the output's folder; prepare the files again."
            ),
        ) from None


def _fetch_staged(path: str, columns: Sequence[str]) -> pa.Table:
    with open_input(path, retry_s=RETRY_S) as handle:
        names = pa.ipc.open_file(handle).schema.names
        handle.seek(0)
        wanted = pa.ipc.IpcReadOptions(included_fields=[names.index(name) for name in columns])
        table = pa.ipc.open_file(handle, options=wanted).read_all()
    return table.select(list(columns))


# Arrow reads INT96 times, of Spark and Impala, as nanoseconds by default: only up to the year 2262.
_SETTINGS: dict[str, Any] = {
    "page_checksum_verification": True,
    "coerce_int96_timestamp_unit": "us",
}
# Without a buffer, Arrow reads the whole column chunks of a row group before the first rows.
_STREAMED = {"buffer_size": 1 << 20}


@contextmanager
def readable_parquet(
    path: str, where: dict[str, object] | None = None, **settings: Any
) -> Iterator[Any]:
    """Context manager that yields an open `pq.ParquetFile`, local or remote.

    Errors of Arrow and of the operating system, and missing columns (`KeyError`), become a
    `DataError` that names the file, with the further entries `where`. This includes all such errors
    in the block, so only read in it. `settings` are further ones of `pq.ParquetFile`.
    """
    place = {"file": path, **(where or {})}
    try:
        with ExitStack() as opened:
            # Arrow reads local files itself, without Python's GIL.
            is_local = os.path.exists(path)
            source = path if is_local else opened.enter_context(open_input(path, retry_s=RETRY_S))
            yield opened.enter_context(pq.ParquetFile(source, **_SETTINGS, **settings))
    except (pa.ArrowException, OSError, UnicodeDecodeError, KeyError) as error:
        raise DataError(
            "the parquet file cannot be read",
            where={**place, "cause": first_line(error)},
            hint=reading_hint(error, "It was truncated or damaged; write it again."),
        ) from None


def rows_of_groups(file: pq.ParquetFile) -> tuple[int, ...]:
    """Return the number of rows of each row group; raises `OSError` if one is below 0."""
    rows = tuple(file.metadata.row_group(g).num_rows for g in range(file.num_row_groups))
    if min(rows, default=0) < 0:
        raise OSError("a row group has fewer than 0 rows")
    return rows


@contextmanager
def located(part: Part) -> Iterator[None]:
    """Context manager that adds the part's input file to a `DataError` raised inside.

    For a part of parquet, also adds the row groups, and converts the error's row (in the part) to
    the row in the file. For a staging file, the row is removed, since its number means nothing to
    the user. An error that names a file already is not changed.
    """
    try:
        yield
    except DataError as error:
        if "file" in error.where:
            raise
        where: dict[str, object] = {"file": part.source}
        row = error.where.pop("row", None)
        if part.row_groups:
            where["row groups"] = _span(part.row_groups)
            if part.first_row is not None and isinstance(row, int):
                where["row (from 0)"] = part.first_row + part.skip_rows + row
        raise DataError(error.message, where={**where, **error.where}, hint=error.hint) from None


def write_parquet(table: pa.Table, path: str, **settings: Any) -> None:
    """Write a parquet file atomically; `settings` are those of `pq.write_table`.

    The file's folder must exist: late tasks must not recreate the folder of an abandoned run.
    Raises `OutputError` if the file cannot be written.
    """
    with atomic_file(path, make_folder=False, sync=False) as partial:
        pq.write_table(table, partial, **settings)


def _span(row_groups: Sequence[int]) -> str:
    first, last = row_groups[0], row_groups[-1]
    return str(first) if first == last else f"{first}-{last}"
