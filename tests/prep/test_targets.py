"""Targets of every kind, weights and windows of a features document: what rows become."""

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from wording import Wording

from distrain.errors import DataError, SpecError
from distrain.prep import FeatureConfig, PrepRequest, PrepResult, prepare
from distrain.prep.features.bad_values import BadValues
from distrain.prep.features.document import FormatSpec
from distrain.prep.features.rows import known_labels_of, window_numbers, window_values
from distrain.prep.features.targets import TableWindows, TargetSpec
from distrain.schema import Schema, Tags

ROWS = 240
RNG = np.random.default_rng(3)
DAYS = RNG.permutation(np.repeat([3, 1, 2], ROWS // 3))
START = datetime.datetime(2026, 3, 1)
TABLE: dict[str, Any] = {
    "watched": RNG.gamma(2.0, 3.0, ROWS),
    "genre": RNG.choice(["a", "b", "c"], ROWS),
    "stars": RNG.integers(0, 5, ROWS),
    "bought": RNG.integers(0, 2, ROWS),
    "counts": RNG.integers(0, 4, ROWS),
    "at": [START + datetime.timedelta(days=int(d), minutes=n) for n, d in enumerate(DAYS)],
    "shop": RNG.choice(["x", "y"], ROWS),
}
DOCUMENT: dict[str, Any] = {
    "target": {"column": "watched", "kind": "regression"},
    "more_targets": {
        "genre": {"column": "genre", "kind": "multiclass", "classes": ["c", "a", "b"]},
        "rated": {"column": "stars", "kind": "multiclass", "classes": 5},
        "bought": "bought",
    },
    "weight": "counts",
    "windows": {"by": "at", "size": "1d"},
    "columns": {"shop": {"kind": "categorical"}},
}


def prepared(client: Any, folder: Path, document: Any, table: Any, **options: Any) -> PrepResult:
    pq.write_table(pa.table(table), folder / "rows.parquet")
    features = FeatureConfig.parse(document)
    inputs = (str(folder / "rows.parquet"),)
    return prepare(PrepRequest(inputs, folder / "out", features=features, **options), client)


def test_labels_weights_and_windows_are_those_of_the_rows(client: Any, tmp_path: Path) -> None:
    result = prepared(client, tmp_path, DOCUMENT, TABLE, row_group_rows=50)
    file = pq.ParquetFile(tmp_path / "out/train/part-00000.parquet")
    order = np.argsort(DAYS, kind="stable")  # day by day, and in a day as they came
    found = file.read()
    oracle = {
        "label": TABLE["watched"].astype(np.float32),
        "genre": np.array([{"c": 0, "a": 1, "b": 2}[g] for g in TABLE["genre"]], np.float32),
        "rated": TABLE["stars"].astype(np.float32),
        "bought": TABLE["bought"].astype(np.float32),
        "counts": TABLE["counts"].astype(np.float32),
        "at": np.array(TABLE["at"], "datetime64[us]"),
    }
    for name, values in oracle.items():
        np.testing.assert_array_equal(found[name].to_numpy(), values[order], name)
    # No row group has rows of two days, and none has more rows than were asked for.
    sizes = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
    assert sizes == [50, 30] * 3
    schema = Schema.load(tmp_path / "out")
    assert schema["label"].has_tag(Tags.REGRESSION)
    assert (schema["genre"].cardinality, schema["rated"].cardinality) == (3, 5)
    assert schema.select_by_tag(Tags.TARGET).names == ("label", "genre", "rated", "bought")
    assert schema.select_by_tag(Tags.WEIGHT).names == ("counts",)
    assert schema["at"].properties["window_size"] == "1d"
    assert result.train.num_ones is None


@pytest.mark.parametrize(
    ("values", "size", "numbers"),
    [
        ([1, 10, 2], None, [0, 2, 1]),
        (["1", "10", "2"], None, [0, 2, 1]),
        (["2026-11-02", "2026-10-31", "2026-11-02"], None, [1, 0, 1]),
        ([1.0, 0.95], 0.1, [9, 9]),  # as jobs divide
        ([datetime.datetime(9999, 12, 31), datetime.datetime(1970, 1, 2)], "1d", [2932896, 1]),
    ],
)
def test_windows_are_in_the_order_of_times_and_numbers(
    values: Any, size: Any, numbers: list[int]
) -> None:
    windows = TableWindows(by="at", size=size)
    found = window_values(pa.array(values), windows, FormatSpec())
    assert window_numbers(found, windows).tolist() == numbers
    assert not pa.types.is_string(found.type)  # which jobs take for no order


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("watched", float("inf")),
        ("genre", "d"),
        ("stars", 5),
        ("counts", -1),
        ("at", None),
    ],
)
def test_a_value_that_is_no_label_weight_or_time_is_refused(
    client: Any, tmp_path: Path, column: str, value: Any, wording: Wording
) -> None:
    table = {**TABLE, column: [*list(TABLE[column])[:-1], value]}
    wording.refused(DataError, lambda: prepared(client, tmp_path, DOCUMENT, table))


@pytest.mark.parametrize("carrier", ["parquet", "csv"])
def test_rows_with_an_unknown_label_stay_and_say_so(
    client: Any, tmp_path: Path, carrier: str
) -> None:
    rng = np.random.default_rng(8)
    known = rng.random(ROWS) < 0.4
    rated = [
        float(n) if has else None for n, has in zip(rng.integers(1, 6, ROWS), known, strict=True)
    ]
    table = pa.table({"clicked": rng.integers(0, 2, ROWS), "rated": rated, "shop": TABLE["shop"]})
    file = tmp_path / f"rows.{carrier}"
    (pq.write_table if carrier == "parquet" else csv.write_csv)(table, file)
    document = {
        "target": "clicked",
        "more_targets": {"liked": {"column": "rated", "at_least": 4, "missing": "unknown"}},
        "columns": {"shop": {"kind": "categorical"}},
    }
    out = tmp_path / "out"
    prepare(PrepRequest((str(file),), out, features=FeatureConfig.parse(document)), client)
    found = pq.read_table(out / "train")
    assert found["liked_known"].to_pylist() == known.tolist()
    assert found["liked"].to_pylist() == [float((value or 0) >= 4) for value in rated]
    schema = Schema.load(out)
    assert schema["liked"].known == "liked_known"
    assert schema.select_by_tag(Tags.TASK_WEIGHT).names == ("liked_known",)


def test_a_bad_label_among_unknown_ones_is_named_with_its_row() -> None:
    target = TargetSpec(column="y", missing="unknown")
    with pytest.raises(BadValues) as refused:
        known_labels_of(pa.array([None, "1", None, "nan", "7", "0"]), target, FormatSpec())
    assert refused.value.places.tolist() == [4]
    assert refused.value.described(0).startswith("'7'")


def test_the_first_target_has_no_unknown_labels(wording: Wording) -> None:
    document = {**DOCUMENT, "target": {"column": "watched", "missing": "unknown"}}
    wording.refused(SpecError, lambda: FeatureConfig.parse(document))
