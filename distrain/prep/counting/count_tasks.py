"""Adds up the counts of columns piece by piece; one task for each column writes the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from distrain.prep.counting.spilled import Spilled, pieces_of
from distrain.prep.operators.operator import FittedByColumn
from distrain.prep.workers import TaskRunner


@dataclass(frozen=True)
class CountedColumn:
    """The counts of a column, or of columns that share a vocabulary, from all tasks, in files."""

    name: str
    operator: FittedByColumn  # without its fitted state
    spilled: tuple[Spilled, ...]

    @property
    def files(self) -> list[str]:
        return [path for one in self.spilled for path in one.files]

    @property
    def size_bytes(self) -> int:
        return sum(one.size_bytes for one in self.spilled)

    @property
    def nulls(self) -> int:
        return sum(one.nulls for one in self.spilled)


@dataclass(frozen=True)
class Work:
    """The arguments of the tasks that add up the counts of one column; see `add_up`.

    Attributes:
        size_bytes: Memory of the counts to add up.
        piece: The first arguments of `of_piece`. `add_up` appends the piece's range of buckets and
            the prefix of its files.
        whole: The first arguments of `of_whole`. `add_up` appends the results of the pieces.
    """

    size_bytes: int
    piece: tuple[Any, ...]
    whole: tuple[Any, ...]


def add_up(
    runner: TaskRunner,
    of_piece: Callable[..., Any],
    of_whole: Callable[..., Any],
    work: Sequence[Work],
    stem: str,
    piece_bytes: int,
) -> list[Any]:
    """Call `of_piece` for each piece of each column, then `of_whole` for each column, on workers.

    `of_whole` gets the results of the column's pieces. Returns the results of `of_whole`, in the
    order of `work`. A piece has about `piece_bytes` of counts or less, but more if the column would
    otherwise have more than `NUM_BUCKETS` pieces. `stem` is the prefix of the pieces' files.
    """
    buckets = [pieces_of(one.size_bytes, piece_bytes) for one in work]
    pieces = [
        (*one.piece, some, f"{stem}-{place:04d}-{number:03d}")
        for place, (one, pieces) in enumerate(zip(work, buckets, strict=True))
        for number, some in enumerate(pieces)
    ]
    sizes = [
        one.size_bytes // len(pieces)
        for one, pieces in zip(work, buckets, strict=True)
        for _ in pieces
    ]
    results = iter(runner.run("add-up", of_piece, pieces, sizes_bytes=sizes))
    wholes = [
        (*one.whole, tuple(next(results) for _ in pieces))
        for one, pieces in zip(work, buckets, strict=True)
    ]
    sizes = [one.size_bytes for one in work]
    return runner.run("finish", of_whole, wholes, sizes_bytes=sizes)
