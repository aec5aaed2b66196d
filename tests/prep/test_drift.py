"""Statistics of written rows, and what a saved workflow passes on."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from wording import Wording

from distrain.cli.data.prepared import print_prepared
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

WORKFLOW = Workflow(
    (
        ColumnGroup(("price", "age"), (FillMissing(0), Normalize())),
        ColumnGroup(("shop",), (Categorify(freq_threshold=3, num_buckets=4),)),
        ColumnGroup(("items",), (Categorify(freq_threshold=2),)),
    )
)


def table(price: float, shops: list[str | None]) -> pa.Table:
    rows = len(shops)
    return pa.table(
        {
            "label": pa.array([0, 1] * (rows // 2), pa.int64()),
            "price": price + np.arange(rows) % 5,
            "age": np.arange(rows),
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


def test_the_report_has_the_shares_of_values_that_are_missing_or_have_no_id(
    fitted: PrepResult,
) -> None:
    assert fitted.train.num_files == 5
    # Of 18 shops two are rare; of 4 * 6 items that are not missing none is.
    ones = {"shop": round(2 / 18, 6), "items": 0.0}
    assert fitted.train.unknown_share == ones
    report = json.loads((fitted.out / "prep.json").read_text())
    assert report["unknown_share"] == {"train": ones}
    shares = {"price": 0.0, "age": 0.0, "shop": 0.1, "items": 0.3}
    assert report["missing_share"] == {"train": shares}


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
