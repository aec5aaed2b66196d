"""Values without an id, and columns that are no longer what the workflow was fitted on."""

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from wording import Wording

from distrain.cli.data.prepared import print_prepared
from distrain.errors import InputError
from distrain.prep import (
    Categorify,
    ColumnGroup,
    FillMissing,
    Normalize,
    PrepRequest,
    PrepResult,
    Workflow,
    prepare,
)
from distrain.prep.updates.column_drift import DriftBounds

WORKFLOW = Workflow(
    (
        ColumnGroup(("price", "age"), (FillMissing(0), Normalize())),
        ColumnGroup(("shop",), (Categorify(freq_threshold=3, num_buckets=4),)),
        ColumnGroup(("items",), (Categorify(freq_threshold=2),)),
    )
)


def table(price: float, shops: list[str | None], missing_ages: int = 0) -> pa.Table:
    rows = len(shops)
    ages = [None] * missing_ages + list(range(rows - missing_ages))
    return pa.table(
        {
            "label": pa.array([0, 1] * (rows // 2), pa.int64()),
            "price": price + np.arange(rows) % 5,
            "age": pa.array(ages, pa.int64()),
            "shop": pa.array(shops, pa.string()),
            "items": pa.array([[1, 1, 2], None, [1, None]] * (rows // 3) + [[]] * (rows % 3)),
        }
    )


DAY_1 = ["a"] * 10 + ["b"] * 6 + [None, None, "x", "y"]
DAY_2 = ["a"] * 5 + ["new"] * 10 + [None] * 5


@pytest.fixture
def prep(client: Any, tmp_path: Path) -> Callable[..., PrepResult]:
    def run(name: str, rows: pa.Table, **options: Any) -> PrepResult:
        pq.write_table(rows, tmp_path / f"{name}.parquet", row_group_size=4)
        inputs = (str(tmp_path / f"{name}.parquet"),)
        # A part per row group.
        request = PrepRequest(inputs, tmp_path / name, block_bytes=256 * 4, **options)
        return prepare(request, client)

    return run


@pytest.fixture
def fitted(prep: Callable[..., PrepResult]) -> PrepResult:
    return prep("fitted", table(10, DAY_1), workflow=WORKFLOW)


def test_the_shares_of_values_without_an_id_are_told_and_kept(fitted: PrepResult) -> None:
    assert fitted.train.num_files == 5
    # Of 18 shops two are rare; of 4 * 6 items that are not missing none is.
    ones = {"shop": round(2 / 18, 6), "items": 0.0}
    assert fitted.train.unknown_share == ones
    assert fitted.train.mean_shift == {
        "price": pytest.approx(0, abs=1e-6),
        "age": pytest.approx(0, abs=1e-6),
    }
    report = json.loads((fitted.out / "prep.json").read_text())
    assert report["unknown_share"] == {"train": ones}
    assert report["drifted"] == []
    document = json.loads((fitted.out / "workflow" / "workflow.json").read_text())
    assert document["fitted_on"] == {
        "inputs": list(fitted.inputs),
        "rows": 20,
        "missing_share": {"price": 0.0, "age": 0.0, "shop": 0.1, "items": 0.3},
        "unknown_share": ones,
    }


def test_what_is_beyond_its_bound_is_told(
    prep: Callable[..., PrepResult], fitted: PrepResult
) -> None:
    saved = fitted.out / "workflow"
    same = prep("same", table(10, DAY_1), saved_workflow=saved)
    assert same.drifted == ()
    rows = table(13, DAY_2, missing_ages=8)
    other = prep("other", rows, saved_workflow=saved, valid_rows=2)
    told = {(one.split, one.column, one.what): one for one in other.drifted}
    # Of validation only the mean of 2 rows is known to be off, and the last shops are missing.
    assert set(told) == {
        ("train", "price", "mean"),
        ("train", "age", "mean"),
        ("train", "age", "missing_share"),
        ("train", "shop", "unknown_share"),
        ("valid", "price", "mean"),
        ("valid", "shop", "missing_share"),
    }
    price = told["train", "price", "mean"]
    prices = rows["price"].to_numpy()[:18]
    std = np.std(10 + np.arange(20) % 5)
    assert (price.fitted, price.found) == (12, pytest.approx(prices.mean(), abs=1e-5))
    assert price.by == pytest.approx((prices.mean() - 12) / std, abs=1e-5)
    shop = told["train", "shop", "unknown_share"]
    assert (shop.fitted, shop.found) == (round(2 / 18, 6), round(10 / 15, 6))
    assert shop.by == pytest.approx(shop.found - shop.fitted)
    report = json.loads((other.out / "prep.json").read_text())
    assert report["drifted"] == [asdict(one) for one in other.drifted]
    wide = DriftBounds(mean=5, share=1)
    assert prep("wide", rows, saved_workflow=saved, drift=wide).drifted == ()


def test_large_numbers_that_float32_hardly_tells_apart_are_warned_of(
    prep: Callable[..., PrepResult], capsys: pytest.CaptureFixture[str], wording: Wording
) -> None:
    rows = 12
    minutes = 60 * np.arange(rows)
    columns = {
        "label": np.arange(rows) % 2,
        "second": 1_714_557_600 + minutes,
        "before": -1_714_557_600 - minutes,
        "normal": 1_714_557_600 + minutes,
        "amount": 10_000_000 * np.arange(rows),
        "year": 2000 + minutes / 60,
    }
    names = ("second", "before", "amount", "year")
    workflow = Workflow((ColumnGroup(names, ()), ColumnGroup(("normal",), (Normalize(),))))
    result = prep("seconds", pa.table(columns), workflow=workflow)
    nearest = np.float32(columns["second"]).astype(float)
    assert len(set(nearest)) < rows
    assert result.train.coarse == {
        "second": (nearest.min(), nearest.max()),
        "before": (-nearest.max(), -nearest.min()),
    }
    print_prepared(result)
    wording(capsys.readouterr().err)


def test_a_saved_workflow_is_passed_on_with_all_that_it_says(
    prep: Callable[..., PrepResult], fitted: PrepResult
) -> None:
    file = fitted.out / "workflow" / "workflow.json"
    document = {**json.loads(file.read_text()), "of_a_later_version": [1, {"a": None}]}
    file.write_text(json.dumps(document))
    other = prep("other", table(10, DAY_2), saved_workflow=fitted.out / "workflow")
    assert json.loads((other.out / "workflow" / "workflow.json").read_text()) == document


def test_bounds_below_zero_are_refused(wording: Wording) -> None:
    wording.refused(
        InputError, partial(DriftBounds, share=-1), partial(DriftBounds, mean=float("nan"))
    )
