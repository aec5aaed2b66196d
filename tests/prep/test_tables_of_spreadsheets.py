"""Tables as spreadsheets write them: amounts, short years, columns of parts, labels."""

import datetime
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from distributed import Client
from hypothesis import given, settings, strategies as st
from wording import Wording

from distrain.errors import DataError, InputError, SpecError
from distrain.prep import FeatureConfig, PrepRequest, infer_features, prepare
from distrain.prep.features.bad_values import BadValues
from distrain.prep.features.document import FormatSpec
from distrain.prep.features.numerals import integers_of, numbers_of
from distrain.prep.features.times import microseconds, times_of
from distrain.prep.features.values import category_texts_of
from distrain.prep.raw_values import (
    UnusableValue,
    to_integers,
    to_numbers,
    to_texts,
    to_times,
)
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


@pytest.mark.parametrize(
    ("click", "buy", "rows"), [("error", "drop", 3), ("drop", "drop", 2), ("drop", "error", None)]
)
def test_missing_labels_are_dropped_by_the_setting_of_their_own_target(
    client: Client, tmp_path: Path, click: str, buy: str, rows: int | None, wording: Wording
) -> None:
    clicks = [0, 1, 1, None if click == "drop" else 0]
    pq.write_table(pa.table({"c": clicks, "b": [0, None, 1, 1], "x": [1, 2, 3, 4]}), tmp_path / "t")
    document = {
        "target": {"column": "c", "missing": click},
        "more_targets": {"bought": {"column": "b", "missing": buy}},
        "columns": {"x": {"kind": "continuous"}},
    }
    if rows is None:
        wording.refused(DataError, lambda: prepared(client, tmp_path / "t", document), column="b")
        return
    assert prepared(client, tmp_path / "t", document)[1].num_rows == rows


@pytest.mark.parametrize("odd", [0, 2])
def test_the_json_line_that_differs_from_most_lines_is_the_bad_one(
    client: Client, tmp_path: Path, odd: int, wording: Wording
) -> None:
    lines = [{"tags": ["a", "b"], "y": n % 2} for n in range(200)]
    lines[odd]["tags"] = "a"
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    document = {"target": "y", "columns": {"tags": {"kind": "categorical"}}}
    wording.refused(
        DataError, lambda: prepared(client, tmp_path / "t.jsonl", document), line=odd + 1
    )
    result, table = prepared(client, tmp_path / "t.jsonl", document, skip_bad_lines=True)
    assert (table.num_rows, result.bad_lines.count) == (199, 1)


def test_classes_without_values_are_refused_with_how_to_name_them(wording: Wording) -> None:
    target = {"column": "colour", "kind": "multiclass"}
    columns = {"x": {"kind": "continuous"}}
    wording.refused(SpecError, lambda: FeatureConfig.parse({"target": target, "columns": columns}))


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


ODD = [
    "1",
    "+1",
    " 1 ",
    "-0",
    "-0.0",
    "007",
    "1e3",
    "1E-2",
    "0x10",
    "1_000",
    "1.",
    ".5",
    "\u0663",
    "tRue ",
]
ODD += [
    "nan",
    "-inf",
    "+inf",
    "",
    "0,125",
    "0.125",
    "1,234",
    "1.234,5",
    "$1,234.56",
    "-\u20ac 5,5",
    "5\xa0\u20ac",
]
ODD += ["9007199254740993", "9007199254740993.0", "9223372036854775808", "1" * 310 + ".0", "1e999"]


@pytest.mark.parametrize(
    ("of_column", "of_values", "setting"),
    [
        (partial(numbers_of, text=FormatSpec()), to_numbers, {"decimal_point": "."}),
        (
            partial(numbers_of, text=FormatSpec(decimal_point=",")),
            to_numbers,
            {"decimal_point": ","},
        ),
        (integers_of, to_integers, {}),
        (category_texts_of, to_texts, {"is_canonical": True}),
    ],
)
@settings(max_examples=10, deadline=None)
@given(
    some=st.lists(
        st.text("0123456789.,+-eE $\u20ac\xa0x_\u0663tT", min_size=1, max_size=6),
        min_size=20,
        max_size=20,
    )
)
def test_texts_are_read_alike_in_columns_and_one_by_one(
    of_column: Callable[..., pa.Array], of_values: Any, setting: dict[str, Any], some: list[str]
) -> None:
    for text in (*some, *ODD):
        try:
            found: Any = of_column(pa.array([text])).to_pylist()
        except BadValues:
            found = "refused"
        try:
            served: Any = list(of_values([text], frozenset(["text"]), setting, setting))
        except UnusableValue:
            served = "refused"
        assert str(found) == str(served).replace("np.float64(", "").replace(")", ""), repr(text)


MIXED = ["2024-01-01", "2024-01-01T00:00Z"]  # Arrow casts no such column


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    text=st.from_regex(
        r"\A\s?[0-2]\d{3}-[01]\d-[0-3]\d([ T][0-2]\d(:?[0-6]\d(:?[0-6]\d(\.\d{1,7})?)?)?"
        r"(Z|[+-][01]\d(:?[0-6]\d)?)?)?\Z"
    )
)
def test_times_are_read_alike_in_columns_of_one_form_and_of_several(text: str) -> None:
    def read(texts: list[str]) -> Any:
        try:
            return microseconds(times_of(pa.array(texts), None, None)).to_pylist()[0]
        except BadValues as bad:
            return [*bad.places]

    try:
        served: Any = to_times([text], frozenset(["text"]), {"timestamp": None}, {"epoch": None})
        served = int(served.astype(int)[0])
    except UnusableValue:
        served = [0]
    assert read([text]) == read([text, *MIXED]) == served


def test_a_group_of_digits_after_a_zero_is_never_a_thousand() -> None:
    with pytest.raises(BadValues):
        numbers_of(pa.array(["0,125"]))
    assert numbers_of(pa.array(["0.125"]), FormatSpec(decimal_point=",")).to_pylist() == [0.125]


def test_times_with_an_offset_in_the_pattern_are_one_instant_in_prep_and_exports() -> None:
    pattern, text = "%d.%m.%Y %H:%M %z", "01.05.2024 10:00 +0200"
    found = microseconds(times_of(pa.array([text]), None, pattern)).to_pylist()
    served = to_times([text], frozenset(["text"]), {"timestamp": pattern}, {"epoch": None})
    assert served.astype("int64").tolist() == found


@pytest.mark.parametrize(("delimiter", "point"), [(";", ","), ("\t", ".")])
def test_groups_of_three_digits_alone_are_fractions_only_between_semicolons(
    tmp_path: Path, delimiter: str, point: str
) -> None:
    rows = [f"{1 + n % 7},{100 + n}{delimiter}{'no' if n % 3 else 'yes'}" for n in range(99)]
    (tmp_path / "t.csv").write_text("\n".join([f"price{delimiter}bought", *rows]) + "\n")
    inferred = infer_features(list_inputs(str(tmp_path / "t.csv")))
    assert inferred.features.document.format.decimal_point == point


def test_a_placeholder_for_the_target_is_refused_until_it_is_replaced(
    client: Client, tmp_path: Path, wording: Wording
) -> None:
    pd.DataFrame({"size": range(90), "price": [n / 4 for n in range(90)]}).to_csv(
        tmp_path / "t.csv", index=False
    )
    inferred = infer_features(list_inputs(str(tmp_path / "t.csv")))
    wording.refused(
        InputError, lambda: prepared(client, tmp_path / "t.csv", inferred.features), key="target"
    )
    assert not (tmp_path / "d").exists()
    document = yaml.safe_load(inferred.text)
    del document["target"]["placeholder"]
    assert prepared(client, tmp_path / "t.csv", document)[1].num_rows


def test_texts_with_and_without_offsets_are_instants_and_the_bad_one_is_named() -> None:
    texts = ["2024-05-01 10:00", "2024-05-01T12:00:00+02:00", "2024-05-01T10:00Z", None]
    ten, *others, missing = microseconds(times_of(pa.array(texts), None, None)).to_pylist()
    assert (others, missing) == ([ten, ten], None)
    with pytest.raises(BadValues) as bad:
        times_of(pa.array([*texts, "noon"]), None, None)
    assert bad.value.places.tolist() == [4]
