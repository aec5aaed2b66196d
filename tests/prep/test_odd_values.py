"""`distrain prep --infer` reports values that are probably mistakes, and how they are read."""

import json
import random
import re
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from distributed import Client
from wording import Wording

from distrain.cli.data.prep import command
from distrain.errors import DataError
from distrain.jobs.spec.load import parse_yaml
from distrain.prep import FeatureConfig, PrepRequest, infer_features, prepare
from distrain.prep.features.inference.infer import Inferred
from distrain.prep.features.inference.odd_values import OddValues
from distrain.prep.features.inference.suggest import percentage
from distrain.prep.features.inference.user_choices import UserChoices
from distrain.storage.inputs import list_inputs

NUM_ROWS = 2000


def columns_with(odd: Mapping[str, Mapping[int, str]]) -> dict[str, list[str]]:
    """Return columns of texts, in which the rows `odd[column]` have other values."""
    source = random.Random(0)
    columns = {
        "price": [f"{source.gauss(0, 1):.3f}" for _ in range(NUM_ROWS)],
        "day": [f"2024-0{1 + row // 700}-{1 + row % 28:02d}" for row in range(NUM_ROWS)],
        "size": [source.choice("123") for _ in range(NUM_ROWS)],
        "shop_id": [str(source.randrange(90)) for _ in range(NUM_ROWS)],
        "late": [source.choice(["no", "no", "yes"]) for _ in range(NUM_ROWS)],
        "bought": [source.choice("01") for _ in range(NUM_ROWS)],
    }
    for name, values in odd.items():
        for row, value in values.items():
            columns[name][row] = value
    return columns


def inferred_of(
    path: Path, odd: Mapping[str, Mapping[int, str]], target: str = "late"
) -> tuple[Inferred, list[OddValues]]:
    pa_csv.write_csv(pa.table(columns_with(odd)), path, pa_csv.WriteOptions(quoting_style="none"))
    inferred = infer_features(list_inputs([str(path)]), UserChoices((target,)))
    return inferred, list(inferred.odd)


def kinds_of(inferred: Inferred) -> dict[str, str]:
    return {name: one.kind for name, one in inferred.features.document.columns.items()}


def test_tables_without_mistakes_have_no_odd_values(tmp_path: Path) -> None:
    _, odd = inferred_of(tmp_path / "t.csv", {})
    assert odd == []


@pytest.mark.parametrize("row", [0, 777, NUM_ROWS - 1])
@pytest.mark.parametrize(
    ("column", "value", "read_as"),
    [("price", "12.3.4", "continuous"), ("price", "inf", "continuous"), ("day", "soon", "time")],
)
def test_a_column_with_one_bad_value_keeps_its_kind_and_prep_stops_at_the_value(
    tmp_path: Path,
    client: Client,
    column: str,
    value: str,
    read_as: str,
    row: int,
    wording: Wording,
) -> None:
    path = tmp_path / "t.csv"
    inferred, (odd,) = inferred_of(path, {column: {row: value}})
    good, _ = inferred_of(tmp_path / "good.csv", {})
    assert kinds_of(inferred) == kinds_of(good)
    where = {"file": str(path), "line": row + 2}
    assert (odd.column, odd.count, odd.first, odd.where) == (column, 1, value, where)
    assert (odd.read_as, odd.is_rejected) == (read_as, True)
    request = PrepRequest((str(path),), str(tmp_path / "out"), features=inferred.features)
    wording.refused(DataError, lambda: prepare(request, client), line=row + 2)


@pytest.mark.parametrize(
    ("column", "rows", "reported"),
    [
        ("price", 19, True),  # 99.05 % numbers: continuous
        ("price", 21, True),  # 98.95 %: categorical
        ("price", 210, False),  # 89.5 %: texts, of which many are numbers
        ("size", 1, True),
        ("shop_id", 1, True),
        ("shop_id", 40, False),  # ids often have letters
    ],
)
def test_what_a_column_is_read_as_depends_on_the_share_of_numbers(
    tmp_path: Path, column: str, rows: int, reported: bool
) -> None:
    bad = {row: f"x{row % 3}" for row in range(100, 100 + rows)}
    inferred, odd = inferred_of(tmp_path / "t.csv", {column: bad})
    kind = "continuous" if (column, rows) == ("price", 19) else "categorical"
    assert kinds_of(inferred)[column] == kind
    told = [(one.column, one.count, one.read_as, one.is_rejected) for one in odd]
    assert told == ([(column, rows, kind, kind == "continuous")] if reported else [])


@pytest.mark.parametrize(
    ("distinct", "kind"), [(1, "categorical"), (10, "categorical"), (11, "continuous")]
)
def test_texts_beside_few_different_numbers_are_categories(
    tmp_path: Path, distinct: int, kind: str
) -> None:
    numbers = {row: f"{row % distinct}.5" for row in range(NUM_ROWS)}
    others = dict.fromkeys(range(0, NUM_ROWS, 200), "yes")
    inferred, odd = inferred_of(tmp_path / "t.csv", {"price": numbers | others})
    assert kinds_of(inferred)["price"] == kind
    told = [(one.column, one.count, one.read_as, one.is_rejected) for one in odd]
    assert told == [("price", 10, kind, kind == "continuous")]


def test_a_text_beside_one_number_is_a_class_of_a_target(tmp_path: Path) -> None:
    flag = dict.fromkeys(range(NUM_ROWS), "0") | dict.fromkeys(range(0, NUM_ROWS, 200), "yes")
    inferred, odd = inferred_of(tmp_path / "t.csv", {"bought": flag}, "bought")
    assert inferred.features.document.target.kind == "binary"
    assert [(one.count, one.is_rejected) for one in odd] == [(10, False)]


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_the_first_odd_value_is_found_in_a_later_file(tmp_path: Path, form: str) -> None:
    for name, values in (("a", {}), ("b", {"price": {5: "x", 9: "y"}})):
        table = pa.table(columns_with(values))
        path = tmp_path / f"{name}.{form}"
        if form == "parquet":
            pq.write_table(table, path, row_group_size=3)
        else:
            path.write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()))
    inferred = infer_features(list_inputs([str(tmp_path)]), UserChoices(("late",)))
    (odd,) = inferred.odd
    unit, number = ("row (from 0)", 5) if form == "parquet" else ("line", 6)
    assert (odd.count, odd.first) == (2, "x")
    assert odd.where == {"file": str(path), unit: number}


@pytest.mark.parametrize(
    ("target", "value", "kind", "is_rejected"),
    [
        ("late", "maybe", "multiclass", False),
        ("bought", "maybe", "multiclass", False),
        ("size", "other", "multiclass", False),
        ("price", "12.3.4", "regression", True),
    ],
)
def test_an_odd_value_of_the_target_is_reported_with_its_place(
    tmp_path: Path, target: str, value: str, kind: str, is_rejected: bool
) -> None:
    path = tmp_path / "t.csv"
    inferred, (odd,) = inferred_of(path, {target: {900: value}}, target)
    assert inferred.features.document.target.kind == kind
    assert (odd.column, odd.count, odd.first) == (target, 1, value)
    assert odd.where == {"file": str(path), "line": 902}
    assert (odd.read_as, odd.is_rejected) == (kind, is_rejected)


def test_a_rare_number_of_64_bits_is_found(tmp_path: Path) -> None:
    numbers = pa.array([2**64 - 1 if row == 3 else 0 for row in range(NUM_ROWS)], pa.uint64())
    table = pa.table(columns_with({})).append_column("target", numbers)
    pq.write_table(table, tmp_path / "t.parquet")
    (odd,) = infer_features(
        list_inputs([str(tmp_path / "t.parquet")]), UserChoices(("target",))
    ).odd
    assert (odd.first, odd.where["row (from 0)"]) == (str(2**64 - 1), 3)


def test_a_list_with_an_item_that_is_not_a_number_is_used_as_lists_of_texts(tmp_path: Path) -> None:
    lists = {row: f"{row % 7}.5|{row % 11}.5" for row in range(NUM_ROWS)}
    only_numbers, _ = inferred_of(tmp_path / "a.csv", {"price": lists})
    with_text, _ = inferred_of(tmp_path / "b.csv", {"price": {**lists, 5: "x|2.5"}})
    assert "price" in only_numbers.left_out
    assert with_text.features.document.columns["price"].separator == "|"


@pytest.mark.parametrize(("rows", "reported"), [(9, True), (10, False)])
def test_a_class_is_rare_below_ten_rows(tmp_path: Path, rows: int, reported: bool) -> None:
    rare = dict.fromkeys(range(100, 100 + rows), "maybe")
    _, odd = inferred_of(tmp_path / "t.csv", {"late": rare})
    assert [one.count for one in odd] == ([rows] if reported else [])


def test_rare_classes_of_many_are_reported_together(tmp_path: Path) -> None:
    names = {row: f"n{row % 40}" for row in range(NUM_ROWS)}
    _, odd = inferred_of(tmp_path / "a.csv", {"shop_id": names}, "shop_id")
    assert odd == []
    rare = names | {7: "x", 8: "x", 9: "y"}
    _, (one,) = inferred_of(tmp_path / "b.csv", {"shop_id": rare}, "shop_id")
    assert (one.count, one.first, one.where["line"], one.read_as) == (3, "x", 9, "multiclass")
    assert "2 of 42 classes" in one.warning_text


def test_a_share_is_100_percent_only_of_all_rows_and_has_no_exponent() -> None:
    for rows in (2_000, 10**6, 10**9):
        assert percentage(rows, rows) == "100 %"
        for part in (1, rows - 1):
            assert not re.search(r"\b100 %|e-", percentage(part, rows))


def test_the_command_skips_bad_lines_of_odd_values(tmp_path: Path) -> None:
    path = form_of(tmp_path, "csv", {"day": {7: "soon"}})
    words = [str(path), "--infer", "--target", "late", "--out", str(tmp_path / "f.yaml")]
    result = CliRunner().invoke(command, [*words, "--bad-lines", "skip"])
    assert result.exit_code == 0
    assert FeatureConfig.load(tmp_path / "f.yaml").document.split.by == "time"
    assert result.output.rstrip().endswith("--bad-lines skip")


def form_of(folder: Path, form: str, odd: Mapping[str, Mapping[int, str]]) -> Path:
    """Write the columns with these odd values as a file of this form, and return its path."""
    path = folder / f"t.{form}"
    table = pa.table(columns_with(odd))
    if form == "csv":
        pa_csv.write_csv(table, path, pa_csv.WriteOptions(quoting_style="none"))
    elif form == "parquet":
        pq.write_table(table, path)
    else:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()))
    return path


SKEWED = {row: f"{1.01 ** (row % 997):.3f}" for row in range(NUM_ROWS)}
ALL: set[str] = {"null_values", "categorical", "skip"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "column", "values", "target", "remedies"),
    [
        ("csv", "price", {7: "x"}, "late", ALL),
        ("csv", "price", {**SKEWED, 7: "x"}, "late", ALL),
        ("csv", "price", {7: "inf"}, "late", ALL | {"clip"}),
        ("csv", "price", {**SKEWED, 7: "inf"}, "late", ALL | {"clip"}),
        ("csv", "price", {7: "inf", 8: "x"}, "late", ALL),
        ("csv", "price", {7: "x"}, "price", {"null_values", "skip"}),
        ("csv", "day", {7: "soon"}, "late", {"null_values", "skip"}),
        ("jsonl", "price", {7: "x"}, "late", {"categorical", "skip"}),
        ("jsonl", "price", {7: "inf"}, "late", {"categorical", "clip", "skip"}),
        ("jsonl", "day", {7: "soon"}, "late", {"skip"}),
        ("parquet", "price", {7: "x"}, "late", {"categorical"}),
        ("parquet", "price", {7: "inf"}, "late", {"categorical", "clip"}),
        ("parquet", "day", {7: "soon"}, "late", set()),
    ],
)  # fmt: skip
def test_every_remedy_that_a_warning_names_works(
    tmp_path: Path,
    client: Client,
    form: str,
    column: str,
    values: dict[int, str],
    target: str,
    remedies: set[str],
) -> None:
    path = form_of(tmp_path, form, {column: values})
    inferred = infer_features(list_inputs([str(path)]), UserChoices((target,)))
    (odd,) = inferred.odd
    assert (odd.is_rejected, set(odd.remedies)) == (True, remedies)
    for remedy in remedies:
        document = parse_yaml(inferred.text, keep_words=True)
        features = document["columns"]
        if remedy == "null_values":
            bad = sorted({value for value in values.values() if value in ("x", "inf", "soon")})
            document["format"]["null_values"] = ["", *bad]
        elif remedy == "categorical":
            kept = {k: v for k, v in features.items() if column not in (k, v.get("from"))}
            document["columns"] = {**kept, column: {"kind": "categorical"}}
        elif remedy == "clip":
            features[column]["clip"] = {"min": 0, "max": 9}
        request = PrepRequest(
            (str(path),),
            str(tmp_path / remedy),
            features=FeatureConfig.parse(document),
            skip_bad_lines=remedy == "skip",
            max_bad=0.01,
        )
        assert prepare(request, client).train.num_rows > 0


def test_skipped_lines_do_not_count(tmp_path: Path, client: Client, wording: Wording) -> None:
    odd = {"day": {7: "soon"}, "price": {9: "x"}}
    path = form_of(tmp_path, "csv", odd)
    files = list_inputs([str(path)])
    wording.refused(
        DataError, lambda: infer_features(files, UserChoices(("late",), time="day")), missing=1
    )
    assert infer_features(files, UserChoices(("late",))).features.document.split.by == "fraction"
    for asked in (UserChoices(("late",)), UserChoices(("late",), time="day")):
        inferred = infer_features(files, asked, skip_bad_lines=True)
        assert inferred.features.document.split.by == "time"
        assert "windows" in inferred.reasons
        assert inferred.features.document.columns["price"].fill is None
        told = {one.column: (one.is_rejected, one.is_dropped, one.remedies) for one in inferred.odd}
        assert told == dict.fromkeys(odd, (False, True, ()))
    request = PrepRequest(
        (str(path),),
        str(tmp_path / "out"),
        features=inferred.features,
        skip_bad_lines=True,
        max_bad=0.01,
    )
    result = prepare(request, client)
    assert (result.bad_lines.count, result.valid.num_rows > 0) == (2, True)
