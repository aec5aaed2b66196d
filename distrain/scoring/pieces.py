"""Files cut into pieces of some row groups each, for one task each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distrain.partition import RowGroup

PIECE_ROWS = 1 << 20
"""Rows of a file after which the next piece begins, with the next row group."""


@dataclass(frozen=True)
class Piece:
    """Row groups of one file.

    Attributes:
        number: Its place among the pieces of its file.
        row_groups: Their numbers in the file; `None` is all.
    """

    file: str
    number: int
    row_groups: tuple[int, ...] | None
    num_rows: int


def cut_into_pieces(groups: Sequence[RowGroup]) -> list[Piece]:
    """Some files' row groups as pieces of about `PIECE_ROWS` rows, in their order.

    >>> groups = [RowGroup("a", number, 600_000) for number in range(3)]
    >>> [piece.row_groups for piece in cut_into_pieces(groups)]
    [(0, 1), (2,)]
    >>> cut_into_pieces([RowGroup("a", 0, 10), RowGroup("a", 1, 10)])
    [Piece(file='a', number=0, row_groups=None, num_rows=20)]
    """
    of_file: dict[str, list[RowGroup]] = {}
    for group in groups:
        of_file.setdefault(group.file, []).append(group)
    return [piece for file, held in of_file.items() for piece in _pieces(file, held)]


def _pieces(file: str, groups: Sequence[RowGroup]) -> list[Piece]:
    cut: list[list[RowGroup]] = []
    rows = PIECE_ROWS
    for group in groups:
        if rows >= PIECE_ROWS:
            cut.append([])
            rows = 0
        cut[-1].append(group)
        rows += group.num_rows
    return [
        Piece(
            file,
            number,
            tuple(group.index for group in piece) if len(cut) > 1 else None,
            sum(group.num_rows for group in piece),
        )
        for number, piece in enumerate(cut)
    ]
