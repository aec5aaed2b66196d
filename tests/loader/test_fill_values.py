"""Decoded columns of every type through the filler: values arrive, unusable ones are named."""

import math
from typing import Any

import numpy as np
import pytest

from distrain.errors import DataError
from distrain.loader.filling import fill_numpy, filler as fill_module
from distrain.loader.filling.filler import Filler
from distrain.loader.filling.schedule import Deal
from distrain.partition import RowGroup
from distrain.partition.wanted_columns import Kind, WantedColumn

SIGNED = [np.int8, np.int16, np.int32, np.int64]
UNSIGNED = [np.uint8, np.uint16, np.uint32, np.uint64]
FLOATS = [np.float16, np.float32, np.float64]
GROUP = RowGroup("clicks.parquet", 3, 50)
ROWS = 50


@pytest.fixture(autouse=True)
def nothing_left_behind() -> None:
    """Nothing here starts threads or opens files, and to look for them takes longer than a case."""


@pytest.fixture(params=["the kernel of this build", "NumPy"], autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "NumPy":
        monkeypatch.setattr(fill_module, "_fill", fill_numpy.fill)


def deal_of(rows: np.ndarray) -> Deal:
    """The rows in this order to one batch."""
    count = np.array([len(rows)], np.int64)
    zero = np.zeros(1, np.int64)
    return Deal(rows.astype(np.int32), zero, zero, count, np.empty(0, np.int32))


def filled(column: WantedColumn, values: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
    rows = np.arange(len(values))[::-1] if rows is None else rows
    block = np.empty((1, len(rows)), np.int32)
    Filler([column]).fill([values], deal_of(rows), [block], GROUP)
    return block[0] if column.kind == "id" else block[0].view(np.float32)


@pytest.mark.parametrize("dtype", [*SIGNED, *UNSIGNED, np.bool_])
def test_whole_numbers_of_any_type_arrive(dtype: Any) -> None:
    top = 1 if dtype is np.bool_ else min(np.iinfo(dtype).max, 2**31 - 1)
    values = np.array([0, 1, top, top - 1, 0], dtype)
    ids = filled(WantedColumn("user", "id"), values)
    assert ids.tolist() == [int(value) for value in values[::-1]]
    assert (
        filled(WantedColumn("age", "value"), values).tolist() == values[::-1].astype("f4").tolist()
    )
    truths = np.array([0, 1, 1], dtype)
    assert filled(WantedColumn("label", "label"), truths).tolist() == [1, 1, 0]
    assert filled(WantedColumn("weight", "weight"), values[:2]).tolist() == [1, 0]


@pytest.mark.parametrize("dtype", FLOATS)
def test_numbers_of_any_type_arrive(dtype: Any) -> None:
    values = np.array([0.1, -2.5, 0, -0.0, 1e-7], dtype)
    expected = values[::-1].astype(np.float32)
    found = filled(WantedColumn("age", "value"), values)
    assert np.array_equal(found.view(np.int32), expected.view(np.int32))
    assert filled(WantedColumn("label", "label"), np.array([1, 0, -0.0], dtype)).tolist() == [
        0,
        0,
        1,
    ]
    assert filled(WantedColumn("weight", "weight"), np.array([-0.0, 2], dtype)).tolist() == [2, 0]


def unusable() -> list[Any]:
    cases: list[tuple[Kind, Any, float, str]] = []
    for dtype in SIGNED:
        cases += [("id", dtype, -1, "id -1 of column 'c' is not in 0..99")]
        cases += [
            ("label", dtype, -1, "label 'c' is -1"),
            ("weight", dtype, -1, "weight 'c' is -1"),
        ]
    for dtype in [*SIGNED, *UNSIGNED]:
        cases += [("id", dtype, 100, "id 100 of column 'c' is not in 0..99")]
        cases += [("label", dtype, 2, "label 'c' is 2, not 0 or 1")]
    for dtype in [np.int64, np.uint64]:
        cases += [("id", dtype, 2**32 + 5, "id 4294967301 "), ("id", dtype, 2**31, "id 2147483648")]
    cases += [("id", np.uint32, 2**32 - 1, "id 4294967295 ")]
    cases += [
        ("id", np.uint64, 2**63, f"id {2**63} "),
        ("id", np.uint64, 2**64 - 1, f"{2**64 - 1}"),
    ]
    for dtype in FLOATS:
        for kind in ("value", "weight", "label"):
            cases += [(kind, dtype, math.nan, "nan"), (kind, dtype, -math.inf, "-inf")]
        cases += [("label", dtype, 0.5, "label 'c' is 0.5"), ("weight", dtype, -0.5, "is -0.5")]
    cases += [("value", np.float64, 1e39, "1e[+]39, which is not a finite float32 number")]
    cases += [
        ("weight", np.float64, 1e39, "not a finite float32"),
        ("weight", np.float64, -1e-300, "-1e-300"),
    ]
    return [pytest.param(*case, id=f"{case[0]}-{case[1].__name__}-{case[2]}") for case in cases]


@pytest.mark.parametrize(("kind", "dtype", "value", "message"), unusable())
def test_an_unusable_value_is_named_with_its_row(
    kind: Kind, dtype: Any, value: float, message: str
) -> None:
    column = WantedColumn("c", kind, 100 if kind == "id" else None)
    values = np.ones(ROWS, dtype)
    values[[23, 31]] = value
    with pytest.raises(DataError, match=message) as caught:
        filled(column, values)
    where = {"file": "clicks.parquet", "row group": 3, "row in the group": 23, "column": "c"}
    assert caught.value.where == where
    assert caught.value.hint
    others = np.setdiff1d(np.arange(ROWS), [23, 31])
    assert filled(column, values, others).tolist() == [1] * 48  # rows of other ranks


def test_a_boolean_id_beyond_its_cardinality() -> None:
    with pytest.raises(DataError, match=r"id True of column 'c' is not in 0\.\.0"):
        filled(WantedColumn("c", "id", 1), np.array([False, True]))


def test_a_large_id_without_cardinality() -> None:
    with pytest.raises(DataError, match=r"id 2147483648 of column 'c' is not in 0\.\.2147483647"):
        filled(WantedColumn("c", "id"), np.array([2**31], np.int64))


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


REGRESSION = WantedColumn("c", "label", target_kind="regression")
CLASSES = WantedColumn("c", "label", 5, target_kind="multiclass")


@pytest.mark.parametrize("dtype", [*SIGNED, *FLOATS])
def test_labels_of_any_kind_arrive(dtype: Any) -> None:
    assert filled(REGRESSION, np.array([-3, 0, 100], dtype)).tolist() == [100, 0, -3]
    assert filled(CLASSES, np.array([4, 0, 2, 1], dtype)).tolist() == [1, 2, 0, 4]


@pytest.mark.parametrize(
    ("column", "dtype", "value", "message"),
    [
        (REGRESSION, np.float32, math.nan, "column 'c' holds nan, which is not a finite number"),
        (REGRESSION, np.float64, 1e39, "which is not a finite float32 number"),
        (CLASSES, np.int64, 5, r"label 'c' is 5, not a whole number in 0\.\.4"),
        (CLASSES, np.int8, -1, r"label 'c' is -1, not a whole number in 0\.\.4"),
        (CLASSES, np.float32, 2.5, r"label 'c' is 2.5, not a whole number"),
        (CLASSES, np.float64, 1 + 1e-12, r"label 'c' is 1.0000.*, not a whole number"),
        (CLASSES, np.float32, math.nan, "label 'c' is nan"),
        (CLASSES, np.uint64, 2**63, "label 'c' is 9223372036854775808"),
        (WantedColumn("c", "task_weight"), np.float32, -0.5, "weight 'c' is -0.5"),
    ],
)
def test_an_unusable_label_is_named_with_its_row(
    column: WantedColumn, dtype: Any, value: float, message: str
) -> None:
    values = np.ones(ROWS, dtype)
    values[[23, 31]] = value
    with pytest.raises(DataError, match=message) as caught:
        filled(column, values)
    assert caught.value.where["row in the group"] == 23
    others = np.setdiff1d(np.arange(ROWS), [23, 31])
    assert filled(column, values, others).tolist() == [1] * 48
