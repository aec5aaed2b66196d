"""Decoded columns of every type through the filler: values arrive, unusable ones are named."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from distrain.errors import DataError
from distrain.loader.filling import fill_numpy, filler as fill_module
from distrain.loader.filling.filler import Filler
from distrain.loader.filling.schedule import RowAssignment
from distrain.loader.partition.table import RowGroup
from distrain.loader.partition.wanted_columns import WantedColumn

SIGNED = [np.int8, np.int16, np.int32, np.int64]
UNSIGNED = [np.uint8, np.uint16, np.uint32, np.uint64]
FLOATS = [np.float16, np.float32, np.float64]
GROUP = RowGroup("clicks.parquet", 3, 50)
ROWS = 50
REGRESSION = WantedColumn("c", "label", target_kind="regression")
CLASSES = WantedColumn("c", "label", 5, target_kind="multiclass")


@pytest.fixture(params=["the kernel of this build", "NumPy"], autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "NumPy":
        monkeypatch.setattr(fill_module, "_fill", fill_numpy.fill)


def deal_of(rows: np.ndarray) -> RowAssignment:
    """The rows in this order to one batch."""
    count = np.array([len(rows)], np.int64)
    zero = np.zeros(1, np.int64)
    return RowAssignment(rows.astype(np.int32), zero, zero, count, np.empty(0, np.int32))


def filled(column: WantedColumn, values: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
    rows = np.arange(len(values))[::-1] if rows is None else rows
    block = np.empty((1, len(rows)), np.int32)
    Filler([column]).fill([values], deal_of(rows), [block], GROUP)
    return block[0] if column.kind == "id" else block[0].view(np.float32)


def unusable() -> Iterator[tuple[WantedColumn, Any, float]]:
    """Columns, types of their values, and values that training refuses."""
    ids, value = WantedColumn("c", "id", 100), WantedColumn("c", "value")
    label, weight = WantedColumn("c", "label"), WantedColumn("c", "weight")
    for dtype in [*SIGNED, *UNSIGNED]:
        yield from ((ids, dtype, 100), (label, dtype, 2), (CLASSES, dtype, 5))
    for dtype in SIGNED:
        yield from ((column, dtype, -1) for column in (ids, label, weight, CLASSES))
    for dtype in [np.int64, np.uint64]:
        yield from ((ids, dtype, number) for number in (2**31, 2**32 + 5))
    for number in (2**63, 2**64 - 1):
        yield from ((ids, np.uint64, number), (CLASSES, np.uint64, number))
    yield WantedColumn("c", "id"), np.int64, 2**31
    yield WantedColumn("c", "id", 1), np.bool_, True
    for dtype in FLOATS:
        for number in (math.nan, -math.inf):
            yield from ((c, dtype, number) for c in (value, label, weight, REGRESSION, CLASSES))
        yield from ((label, dtype, 0.5), (weight, dtype, -0.5), (CLASSES, dtype, 2.5))
        yield WantedColumn("c", "task_weight"), dtype, -0.5
    yield from ((column, np.float64, 1e39) for column in (value, weight, REGRESSION))
    yield from ((weight, np.float64, -1e-300), (CLASSES, np.float64, 1 + 1e-12))


def test_an_unusable_value_is_named_with_its_row() -> None:
    for column, dtype, value in unusable():
        good = 0 if dtype is np.bool_ else 1
        values = np.full(ROWS, good, dtype)
        values[[23, 31]] = value
        with pytest.raises(DataError, match="'c'") as caught:
            filled(column, values)
        where = {"file": "clicks.parquet", "row group": 3, "row in the group": 23, "column": "c"}
        assert caught.value.where == where, (column, dtype, value)
        assert caught.value.hint
        others = np.setdiff1d(np.arange(ROWS), [23, 31])
        assert filled(column, values, others).tolist() == [good] * 48  # rows of other ranks


def test_of_several_bad_columns_the_first_is_named() -> None:
    columns = [
        WantedColumn("user", "id", 5),
        WantedColumn("item", "id", 5),
        WantedColumn("age", "value"),
    ]
    cells = [np.ones(3, np.int64), np.array([1, 9, 1]), np.array([math.nan, 1, 1])]
    with pytest.raises(DataError, match="'item'"):
        Filler(columns).fill(cells, deal_of(np.arange(3)), [np.empty((3, 3), np.int32)], GROUP)


def test_without_flat_columns_there_is_nothing_to_fill() -> None:
    memory = np.full((1, 3), 7, np.int32)
    Filler([]).fill([], deal_of(np.arange(3)), [memory[:0]], GROUP)
    assert memory.tolist() == [[7, 7, 7]]
