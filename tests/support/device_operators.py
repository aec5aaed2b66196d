"""Operators and columns drawn by hypothesis, and what Arrow and a device must agree on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from distrain.errors import DataError
from distrain.prep import Categorify, Clip, ColumnGroup, FillMissing, ListSlice, LogOp, Normalize
from distrain.prep.operators.numbers import Moments
from distrain.prep.vocabulary import Vocabulary

COLUMN = "C1"


def _vocabulary(values: pa.Array, num_oov: int) -> dict[str, Vocabulary]:
    return {COLUMN: Vocabulary(values, pa.array([1] * len(values), pa.int64()), num_oov)}


NUMBERS = pa.array([3, 0, -2, 7], pa.int64())
WORDS = pa.array(["b", "", "äö", "abc"])
_NORMALIZE = Normalize({COLUMN: Moments(9, 0.3, 17.0)})
_ON_NUMBERS: list[tuple[Any, ...]] = [
    (FillMissing(2),),
    (FillMissing(0.5),),
    (Clip(min=-1),),
    (Clip(max=2.5),),
    (Clip(min=-1, max=3),),
    (LogOp(),),
    (_NORMALIZE,),
    (FillMissing(0), Clip(min=0), LogOp(), _NORMALIZE),
    *((Categorify(vocabularies=_vocabulary(NUMBERS, oov)),) for oov in (1, 3)),
    (FillMissing(3), Categorify(vocabularies=_vocabulary(NUMBERS, 2))),
]
_ON_WORDS: list[tuple[Any, ...]] = [
    *((Categorify(vocabularies=_vocabulary(WORDS, oov)),) for oov in (1, 3)),
    (FillMissing(0), Categorify(vocabularies=_vocabulary(WORDS, 2))),
]
_INTEGERS = {pa.int8(): 7, pa.int32(): 31, pa.int64(): 40, pa.uint32(): 31, pa.uint64(): 40}


@st.composite
def columns(draw: st.DrawFn) -> tuple[tuple[Any, ...], pa.Array]:
    """Operators, and values or lists that they may be given."""
    of = draw(st.sampled_from(["integers", "floats", "words"]))
    if of == "words":
        operators, kind = draw(st.sampled_from(_ON_WORDS)), pa.string()
        value: st.SearchStrategy[Any] = st.sampled_from(["b", "", "äö", "abc", "x", "yy", "ab"])
    elif of == "floats":
        # A category is the text of a number, which is not what a vocabulary of integers holds.
        without_ids = [chain for chain in _ON_NUMBERS if not isinstance(chain[-1], Categorify)]
        operators = draw(st.sampled_from(without_ids))
        kind, width = draw(st.sampled_from([(pa.float32(), 32), (pa.float64(), 64)]))
        value = st.floats(width=width) | st.floats(0, 9, width=16)
    else:
        operators = draw(st.sampled_from(_ON_NUMBERS))
        kind = draw(st.sampled_from(sorted(_INTEGERS, key=str)))
        bound = 2 ** _INTEGERS[kind] - 1
        lowest = 0 if pa.types.is_unsigned_integer(kind) else -bound
        value = st.integers(lowest, bound) | st.integers(max(lowest, -4), 9)
    value = st.none() | value
    if draw(st.booleans()):
        return operators, pa.array(draw(st.lists(value, max_size=30)), kind)
    lists = draw(st.lists(st.none() | st.lists(value, max_size=4), max_size=12))
    cut = (ListSlice(draw(st.sampled_from([1, 3, -2]))),)
    places = [(*cut, *operators), operators, (*operators[:-1], *cut, operators[-1])]
    order = draw(st.sampled_from(places))
    return order, pa.array(lists, pa.list_(kind))


def assert_as_arrow(operators: tuple[Any, ...], values: pa.Array, run: Any) -> None:
    """Values, types and errors of `run` are Arrow's; logarithms but for their last digits."""
    group = ColumnGroup((COLUMN,), operators)
    expected = _outcome(partial(group.transform, COLUMN, values))
    found = _outcome(partial(group.transform, COLUMN, values, run=run))
    if isinstance(expected, DataError):
        assert isinstance(found, DataError)
        assert (str(found), found.where) == (str(expected), expected.where)
        return
    assert isinstance(found, pa.Array)
    assert found.type == expected.type
    if pa.types.is_list(found.type):
        assert found.offsets.equals(expected.offsets)
        found, expected = found.flatten(), expected.flatten()
    assert found.is_valid().equals(expected.is_valid())
    if not pa.types.is_floating(found.type):
        assert found.equals(expected)
        return
    near = 1e-13 if any(isinstance(operator, LogOp) for operator in operators) else 0.0
    there, here = (part.drop_null().to_numpy(zero_copy_only=False) for part in (found, expected))
    np.testing.assert_allclose(there, here, rtol=near, atol=near, equal_nan=True)


def _outcome(transform: Callable[[], pa.Array]) -> pa.Array | DataError:
    try:
        return transform()
    except DataError as error:
        return error
