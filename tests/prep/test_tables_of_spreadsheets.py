"""Tables as spreadsheets write them: amounts, short years, columns of parts, labels."""

import datetime
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client

from distrain.errors import DataError, SpecError
from distrain.predict.serving.raw_values import to_numbers
from distrain.prep import FeatureConfig, PrepRequest, infer_features, prepare
from distrain.prep.features.bad_values import BadValues
from distrain.prep.features.document import FormatSpec
from distrain.prep.features.numerals import numbers_of
from distrain.prep.features.times import times_of
from distrain.storage.inputs import list_inputs


def prepared(client: Client, file: Path, document: dict[str, Any] | FeatureConfig, **more: Any):
    features = document if isinstance(document, FeatureConfig) else FeatureConfig.parse(document)
    out = file.parent / "d"
    result = prepare(PrepRequest((str(file),), out, features=features, **more), client)
    return result, pq.read_table(out / "train")


@pytest.mark.parametrize(
    ("point", "texts"),
    [
        (".", {"$1,234.56": 1234.56, "-$5": -5, "1,234,567": 1234567, "7.5 €": 7.5, " 3 ": 3}),
        (",", {"1.234,56": 1234.56, "-€ 5,5": -5.5, "12,5": 12.5, "1.234": 1234, "2.5": 2.5}),
    ],
)
def test_amounts_of_money_are_numbers_in_prep_and_in_exports(
    point: Any, texts: dict[str, float]
) -> None:
    found = numbers_of(pa.array([*texts]), FormatSpec(decimal_point=point)).to_pylist()
    served = to_numbers([*texts], frozenset(["text"]), {"decimal_point": point}, {})
    assert found == served.tolist() == [*texts.values()]


def test_decimal_commas_are_inferred_where_fields_are_parted_by_semicolons(
    client: Client, tmp_path: Path
) -> None:
    rows = [f"{n % 97},{n % 10};{'no' if n % 3 else 'yes'}" for n in range(200)]
    (tmp_path / "t.csv").write_text("\n".join(["price;bought", *rows]) + "\n")
    inferred = infer_features(list_inputs(str(tmp_path / "t.csv")))
    assert inferred.features.document.format.decimal_point == ","
    assert inferred.features.document.columns["price"].kind == "continuous"
    assert prepared(client, tmp_path / "t.csv", inferred.features)[1].num_rows == 180


def test_years_of_two_digits_are_of_this_century_and_never_the_year_24(tmp_path: Path) -> None:
    with pytest.raises(BadValues):
        times_of(pa.array(["31.01.24"]), None, "%d.%m.%Y")
    found = times_of(pa.array(["31.01.24"]), None, "%d.%m.%y").to_pylist()
    assert found == [datetime.datetime(2024, 1, 31)]
    days = [f"{1 + n % 28:02}.{1 + n % 12:02}.24,{n % 2},{n}" for n in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["day,y,n", *days]) + "\n")
    inferred = infer_features(list_inputs(str(tmp_path / "t.csv")))
    assert inferred.features.document.format.timestamp == "%d.%m.%y"


def test_a_column_of_parts_splits_the_rows_and_is_no_feature(tmp_path: Path) -> None:
    parts = [f"{n % 7},{'test' if n % 5 == 0 else 'train'},{n % 2}" for n in range(100)]
    (tmp_path / "t.csv").write_text("\n".join(["size,split,bought", *parts]) + "\n")
    inferred = infer_features(list_inputs(str(tmp_path / "t.csv")))
    split = inferred.features.document.split
    assert (split.column, split.equals) == ("split", "test")  # type: ignore[union-attr]
    assert "split" in inferred.left_out
    assert "split" not in inferred.features.document.columns


@pytest.mark.parametrize(
    ("click", "buy", "rows"), [("error", "drop", 3), ("drop", "drop", 2), ("drop", "error", None)]
)
def test_missing_labels_are_dropped_by_the_setting_of_their_own_target(
    client: Client, tmp_path: Path, click: str, buy: str, rows: int | None
) -> None:
    clicks = [0, 1, 1, None if click == "drop" else 0]
    pq.write_table(pa.table({"c": clicks, "b": [0, None, 1, 1], "x": [1, 2, 3, 4]}), tmp_path / "t")
    document = {
        "target": {"column": "c", "missing": click},
        "more_targets": {"bought": {"column": "b", "missing": buy}},
        "columns": {"x": {"kind": "continuous"}},
    }
    if rows is None:
        with pytest.raises(DataError) as refused:
            prepared(client, tmp_path / "t", document)
        assert refused.value.where["column"] == "b"
        return
    assert prepared(client, tmp_path / "t", document)[1].num_rows == rows


@pytest.mark.parametrize("odd", [0, 2])
def test_the_json_line_that_differs_from_most_lines_is_the_bad_one(
    client: Client, tmp_path: Path, odd: int
) -> None:
    lines = [{"tags": ["a", "b"], "y": n % 2} for n in range(200)]
    lines[odd]["tags"] = "a"
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    document = {"target": "y", "columns": {"tags": {"kind": "categorical"}}}
    with pytest.raises(DataError) as refused:
        prepared(client, tmp_path / "t.jsonl", document)
    assert refused.value.where["line"] == odd + 1
    result, table = prepared(client, tmp_path / "t.jsonl", document, skip_bad_lines=True)
    assert (table.num_rows, result.bad_lines.count) == (199, 1)


def test_classes_without_values_are_refused_with_how_to_name_them() -> None:
    target = {"column": "colour", "kind": "multiclass"}
    columns = {"x": {"kind": "continuous"}}
    with pytest.raises(SpecError, match=r"classes: \[red"):
        FeatureConfig.parse({"target": target, "columns": columns})


def test_labels_and_weights_that_float32_cannot_tell_apart_are_reported(
    client: Client, tmp_path: Path
) -> None:
    seconds = [1_700_000_000 + n for n in range(40)]
    table = pa.table({"y": seconds, "w": seconds, "x": [1, 2] * 20})
    pq.write_table(table, tmp_path / "t.parquet")
    target = {"column": "y", "kind": "regression"}
    document = {"target": target, "weight": "w", "columns": {"x": {"kind": "continuous"}}}
    result, _ = prepared(client, tmp_path / "t.parquet", document)
    assert {*result.train.coarse} == {"label", "w"}
