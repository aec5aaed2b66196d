"""Generates Criteo-shaped text: two nearly unique columns, the others skewed, some values missing.

From row 4M on, earlier rows are repeated with new values in the unique columns, because drawing
takes longer than `prep`.
"""

from pathlib import Path
from typing import Any

import numpy as np

COLUMNS = ("label", *(f"I{n}" for n in range(1, 14)), *(f"C{n}" for n in range(1, 27)))
_ROWS_AT_ONCE = 100_000
_DRAWN_BLOCKS = 40
_UNIQUE = (3, 12)
_CARDINALITIES = (1_000, 500, 0, 200_000, 300, 20, 10_000, 600, 3, 50_000, 5_000, 0, 3_000)
_SPREAD = 2654435761  # odd, so products modulo 2^32 are distinct


def write_text(path: Path, rows: int, seed: int = 1) -> None:
    """Write `rows` lines; a shorter file is a prefix of a longer one with the same seed."""
    rng = np.random.default_rng(seed)
    begins: list[int] = []
    with path.open("w+b") as file:
        for first in range(0, rows, _ROWS_AT_ONCE):
            begins.append(file.tell())
            if len(begins) <= _DRAWN_BLOCKS:
                block = b"".join(_lines(rng, first))
            else:
                begin, end = begins[-1 - _DRAWN_BLOCKS], begins[-_DRAWN_BLOCKS]
                file.seek(begin)
                block = _repeated(rng, file.read(end - begin), first)
                file.seek(begins[-1])
            count = min(_ROWS_AT_ONCE, rows - first)
            if count < _ROWS_AT_ONCE:
                block = b"".join(block.splitlines(keepends=True)[:count])
            file.write(block)


def _repeated(rng: np.random.Generator, block: bytes, first_row: int) -> bytes:
    """Return the same lines with other values in the unique columns; empty values stay empty."""
    text = np.frombuffer(block, np.uint8).copy()
    tabs = np.flatnonzero(text == ord("\t")).reshape(_ROWS_AT_ONCE, len(COLUMNS) - 1)
    for column in _UNIQUE:
        field = COLUMNS.index(f"C{column}")
        begin, end = tabs[:, field - 1] + 1, tabs[:, field]
        filled = end > begin
        words = _hex(_ids(rng, column, _ROWS_AT_ONCE, first_row) * _SPREAD % 2**32)[filled]
        text[begin[filled, None] + np.arange(8)] = words.view(np.uint8).reshape(-1, 8)
    return text.tobytes()


def _lines(rng: np.random.Generator, first_row: int) -> list[bytes]:
    count = _ROWS_AT_ONCE
    columns = [(rng.random(count) < 0.25).astype(np.uint8).astype("S1")]
    for n in range(13):
        numbers = np.floor(rng.lognormal(0.5 + n / 4, 1.6, count)).astype(np.int64)
        columns.append(_with_gaps(rng, numbers.astype("S11"), 0.1 if n % 3 else 0.0))
    for n in range(1, 27):
        ids = _ids(rng, n, count, first_row)
        columns.append(_with_gaps(rng, _hex(ids * _SPREAD % 2**32), 0.1 if n % 4 == 0 else 0.0))
    return [
        b"\t".join(fields) + b"\n" for fields in zip(*map(np.ndarray.tolist, columns), strict=True)
    ]


def _ids(rng: np.random.Generator, column: int, count: int, first_row: int) -> Any:
    if column in _UNIQUE:
        own = np.arange(first_row, first_row + count)
        return np.where(rng.random(count) < 0.9, own + column, rng.integers(0, 1000, count))
    cardinality = _CARDINALITIES[(column - 1) % 13] or 20_000
    return np.minimum(rng.zipf(1.2, count), cardinality) * 64 + column


def _with_gaps(rng: np.random.Generator, text: Any, share: float) -> Any:
    return np.where(rng.random(len(text)) < share, b"", text) if share else text


def _hex(numbers: Any) -> Any:
    """Return eight hexadecimal digits for each number, as `S8`."""
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    shifts = np.arange(28, -4, -4, dtype=np.uint64)
    nibbles = (numbers.astype(np.uint64)[:, None] >> shifts) & np.uint64(15)
    return np.ascontiguousarray(digits[nibbles.astype(np.intp)]).view("S8").reshape(-1)
