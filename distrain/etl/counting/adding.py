"""Counts added up piece by piece, and the vocabularies made of what is kept of them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import cast

from distrain.etl.counting.memory import MemoryPlan
from distrain.etl.counting.ordering import Run, write_in_order, write_run
from distrain.etl.counting.spilling import Counted, read_counts
from distrain.etl.fit_unit import FitUnit
from distrain.etl.operators import NUM_BUCKETS, Categorify, Counts, added_up, in_column, joined
from distrain.etl.workers import TaskRunner


def pieces_of(size_bytes: int, piece_bytes: int, most: int = NUM_BUCKETS) -> list[range]:
    """The buckets of each piece of a column, of `most` pieces.

    >>> pieces_of(1000, 2000)
    [range(0, 4096)]
    >>> pieces_of(3000, 1000)[:2]
    [range(0, 1024), range(1024, 2048)]
    """
    num_pieces = 1
    while num_pieces * piece_bytes < size_bytes and num_pieces < most:
        num_pieces *= 2
    step = NUM_BUCKETS // num_pieces
    return [range(first, first + step) for first in range(0, NUM_BUCKETS, step)]


def add_up(operator: Categorify, files: Sequence[str], buckets: range) -> Counts:
    """All counts of the values of some buckets, without those that no vocabulary takes."""
    found = joined([read_counts(path, buckets) for path in files])
    return operator.prune(found if len(files) == 1 else added_up(found))


def _add_up_to_run(operator: Categorify, files: Sequence[str], buckets: range, stem: str) -> Run:
    return write_run(add_up(operator, files, buckets), f"{stem}-{uuid.uuid4().hex[:8]}.arrow")


def write_vocabularies(
    counted: Sequence[tuple[FitUnit, str, Sequence[Counted]]],
    runner: TaskRunner,
    categories: str,
    staging: str,
    memory: MemoryPlan,
) -> list[int]:
    """Add up what each task has counted and write the vocabularies; returns their cardinalities.

    Args:
        counted: A unit, the name of a column or domain of it, and its counts.
        staging: A folder for files that are of no use afterwards.
    """
    pieces = []
    for place, (unit, _, found) in enumerate(counted):
        files = [path for one in found for path in one.files]
        cut = pieces_of(sum(one.size_bytes for one in found), memory.piece_bytes)
        stem = f"{staging}/added-{place:04d}"
        pieces.append([(unit.operator, files, buckets, stem) for buckets in cut])
    added = iter(runner.run("add-up", _add_up_to_run, [one for of in pieces for one in of]))
    finishes = [
        (
            unit.operator,
            name,
            sum(one.nulls for one in found),
            tuple(next(added) for _ in of_name),
            categories,
            memory.piece_bytes,
        )
        for (unit, name, found), of_name in zip(counted, pieces, strict=True)
    ]
    return cast(list[int], runner.run("finish", _finish, finishes))


def _finish(
    operator: Categorify,
    name: str,
    nulls: int,
    runs: tuple[Run, ...],
    categories: str,
    piece_bytes: int,
) -> int:
    with in_column(name):
        return write_in_order(operator, name, nulls, runs, categories, piece_bytes)
