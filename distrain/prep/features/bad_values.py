"""`BadValues`: an exception with the positions of a column's values that cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Places = np.ndarray[Any, np.dtype[np.int64]]
_SHOWN_CHARS = 60
_MOST_GUESSES = 3


class BadValues(Exception):
    """Some values of a column cannot be used.

    Attributes:
        places: The rows of the bad values, ascending.
        values: The column, or the items of its lists.
        items: The positions of the bad values in `values`; equal to `places` unless the column
            holds lists.
        problem: The problem, as the end of the phrase "COLUMN is VALUE, ...".
    """

    def __init__(self, places: Places, values: pa.Array, problem: str, hint: str | None = None):
        super().__init__(problem)
        self.places = places
        self.items = places
        self.values = values
        self.problem = problem
        self.hint = hint

    def of_rows(self, rows: Places) -> BadValues:
        """Set `places` to `rows`, one for each bad value, and return this error.

        Use it if the values were taken from lists or from some of the rows, so that their positions
        are not row numbers.
        """
        self.places = rows
        return self

    def described(self, number: int) -> str:
        """Return the value and the problem of the bad value with the index `number`, as a text.

        Texts are quoted; long values are cut to `_SHOWN_CHARS` characters.
        """
        found = self.values[int(self.items[number])]
        try:
            value = found.as_py()
        except (ValueError, OverflowError):  # a time outside Python's range
            value = found.cast(pa.string()).as_py().strip("<>")
        if value is None:
            return f"missing, {self.problem}"
        text = value if isinstance(value, str) else str(value)
        shown = text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"
        return (
            f"{shown!r}, {self.problem}" if isinstance(value, str) else f"{shown}, {self.problem}"
        )


def guess(text: str, held: Iterable[str]) -> str:
    """Return the end of an error's message: which of the texts `held` is most similar to `text`.

    "" if none is similar.
    """
    held = list(held)
    near = get_close_matches(text, held, n=1, cutoff=0.7)
    near = near or [one for one in held if text.lower() in one.lower()][:_MOST_GUESSES]
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def true_positions(mask: Any) -> Places:
    """Return the positions where a mask is true; null counts as false."""
    if isinstance(mask, pa.Array | pa.ChunkedArray):
        mask = mask.fill_null(False).to_numpy(zero_copy_only=False)
    return np.flatnonzero(mask).astype(np.int64)


def converted(
    values: pa.Array, convert: Callable[[pa.Array], pa.Array], problem: str, hint: str | None = None
) -> pa.Array:
    """Return `convert(values)`; if Arrow rejects values, raise `BadValues` with all of them.

    `problem` and `hint` are texts of the error.
    """
    try:
        return convert(values)
    except pa.ArrowInvalid:
        encoded = values.dictionary_encode()  # each distinct value is tried once
        refused = pa.array(_refused(encoded.dictionary, convert, 0), encoded.indices.type)
        places = true_positions(pc.is_in(encoded.indices, value_set=refused, skip_nulls=True))
    raise BadValues(places, values, problem, hint)


def parsed(
    values: pa.Array,
    parse: Callable[[str], Any],
    dtype: pa.DataType,
    problem: str,
    hint: str | None = None,
) -> pa.Array:
    """Return the results of `parse` for texts, as `dtype`; each distinct text is parsed once.

    Raises `BadValues` with all texts for which `parse` raises a `ValueError`; `problem` and `hint`
    are its texts.
    """
    encoded = values.dictionary_encode()
    results: list[Any] = []
    refused: list[int] = []
    for place, text in enumerate(encoded.dictionary.to_pylist()):
        try:
            results.append(parse(text))
        except ValueError:
            results.append(None)
            refused.append(place)
    if refused:
        bad = pc.is_in(encoded.indices, value_set=pa.array(refused, encoded.indices.type))
        raise BadValues(true_positions(bad), values, problem, hint)
    return pa.array(results, dtype).take(encoded.indices)


def _refused(values: pa.Array, convert: Callable[[pa.Array], pa.Array], first: int) -> list[int]:
    """Return the positions of the values that `convert` rejects, counted from `first`.

    They are found by bisection, which needs few calls if few values are bad.
    """
    try:
        convert(values)
    except pa.ArrowInvalid:
        if len(values) == 1:
            return [first]
        half = len(values) // 2
        return _refused(values[:half], convert, first) + _refused(
            values[half:], convert, first + half
        )
    return []
