"""Cuts files into pieces of row groups, and runs tasks for the pieces on a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from distrain.loader.partition.table import RowGroup
from distrain.prep.workers import as_they_end, result_of

PIECE_ROWS = 1 << 20
"""A piece of a file ends with the row group in which it reaches this number of rows."""


@dataclass(frozen=True)
class FilePiece:
    """Some row groups of one file: the work of one task."""

    file: str
    groups: tuple[RowGroup, ...]

    @property
    def row_groups(self) -> tuple[int, ...]:
        """The indices of the row groups in the file."""
        return tuple(group.index for group in self.groups)

    @property
    def num_rows(self) -> int:
        """The number of rows in the row groups."""
        return sum(group.num_rows for group in self.groups)


def cut_into_pieces(groups: Sequence[RowGroup]) -> list[FilePiece]:
    """Cut each file's row groups, in order, into pieces of at least `PIECE_ROWS` rows.

    The last piece of a file may have fewer rows.

    >>> groups = [RowGroup("a", number, 600_000) for number in range(3)]
    >>> [piece.row_groups for piece in cut_into_pieces(groups)]
    [(0, 1), (2,)]
    >>> [piece.row_groups for piece in cut_into_pieces(groups[:2])]
    [(0, 1)]
    """
    of_file: dict[str, list[RowGroup]] = {}
    for group in groups:
        of_file.setdefault(group.file, []).append(group)
    return [piece for file, held in of_file.items() for piece in _pieces(file, held)]


def _pieces(file: str, groups: Sequence[RowGroup]) -> list[FilePiece]:
    cut: list[list[RowGroup]] = []
    rows = PIECE_ROWS
    for group in groups:
        if rows >= PIECE_ROWS:
            cut.append([])
            rows = 0
        cut[-1].append(group)
        rows += group.num_rows
    return [FilePiece(file, tuple(piece)) for piece in cut]


def results(
    client: Any, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]
) -> Generator[tuple[int, Any], None, None]:
    """Call `function` on the cluster once per task; yield each task's index and result.

    A task is a tuple of arguments. Results are yielded in order of completion. A bounded number of
    tasks is in flight. If `client` is `None`, the tasks run in order in this thread. Errors of
    `function` are raised.

    Raises:
        ClusterError: Workers died, or the cluster abandoned the tasks.
    """
    if client is None:
        yield from ((place, function(*task)) for place, task in enumerate(tasks))
        return

    def submit(_: int, task: tuple[Any, ...]) -> Any:
        return client.submit(function, *task, pure=False)

    with closing(as_they_end(client, submit, enumerate(tasks))) as ended:
        for place, future in ended:
            yield place, result_of(future, "scored", "tasks that score", "--batch-size")
