"""`distrain prep --infer`: what it makes of columns, and that prep takes what it writes."""

import datetime
import json
import random
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given, settings, strategies as st
from wording import Wording

from distrain.cli.data.prep import command
from distrain.errors import DataError, InputError, OutputError, SpecError
from distrain.jobs.spec.load import parse_yaml
from distrain.prep import FeatureConfig, PrepRequest, infer_features, prepare
from distrain.prep.features.inference.column_facts import facts_of
from distrain.prep.features.inference.infer import Inferred
from distrain.prep.features.inference.suggest import IS_HASHED, MEASURES_TIME
from distrain.prep.features.inference.user_choices import UserChoices
from distrain.storage.inputs import list_inputs

NUM_ROWS = 400
START = datetime.datetime(2024, 1, 1, 8)


def shop_rows(seed: int = 0) -> list[dict[str, Any]]:
    source = random.Random(seed)
    words = [f"word{number}" for number in range(300)]
    return [
        {
            "order": f"o-{number:06d}",
            "row number": number,
            "shop_id": source.randint(0, 90),
            "city": source.choice(["Ulm", "Köln", "Graz", None]),
            "price": Decimal(round(source.lognormvariate(2, 2), 2)).quantize(Decimal("0.01")),
            "weight": None if number % 4 == 1 else source.gauss(10, 1),
            "size": source.choice([1, 2, 3]),
            "at": START + datetime.timedelta(minutes=47 * number),
            "gift": source.random() < 0.2,
            "tags": source.sample(["a", "b", "c", "d"], source.randint(0, 3)),
            "embedding": [source.random(), source.random()],
            "remark": " ".join(source.choices(words, k=8)),
            "currency": "EUR",
            "nothing": None,
            "label": source.choice(["x", "y"]),
            "yes": source.choice(["u", "v", "w"]),
            "a/b: #c": source.randint(0, 5),
            "clicked": int(source.random() < 0.3),
        }
        for number in range(NUM_ROWS)
    ]


def infer(*paths: Path) -> Inferred:
    return infer_features(list_inputs([str(path) for path in paths]))


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shop") / "shop.parquet"
    pq.write_table(pa.Table.from_pylist(shop_rows()), path)
    return path


@pytest.fixture(scope="module")
def shop_csv(shop: Path) -> Path:
    lines = [";".join(shop_rows()[0])]
    for row in shop_rows():
        cells = [
            "NA" if value is None and name == "weight"
            else "" if value is None
            else "|".join(map(str, value)) if isinstance(value, list)
            else value.strftime("%d.%m.%Y %H:%M") if isinstance(value, datetime.datetime)
            else str(value)
            for name, value in row.items()
        ]  # fmt: skip
        lines.append(";".join(cells))
    path = shop.parent / "shop.csv"
    path.write_text("\n".join(lines) + "\n", encoding="latin-1")
    return path


def test_each_column_gets_what_fits_it(shop: Path) -> None:
    inferred = infer(shop)
    document = inferred.features.document
    found = {
        name: column.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        for name, column in document.columns.items()
    }
    weight = found.pop("weight")
    assert 9 < weight.pop("fill") < 11
    assert weight == {"kind": "continuous", "normalize": True}
    assert found == {
        "shop_id": {"kind": "categorical"},
        "city": {"kind": "categorical"},
        "price": {"kind": "continuous", "clip": {"min": 0}, "log": True, "normalize": True},
        "price_bucket": {"from": "price", "kind": "categorical", "buckets": "log_square"},
        "size": {"kind": "categorical"},
        "at_hour": {"from": "at", "kind": "categorical", "as": "hour"},
        "at_weekday": {"from": "at", "kind": "categorical", "as": "weekday"},
        "gift": {"kind": "categorical"},
        "tags": {"kind": "categorical"},
        "yes": {"kind": "categorical"},
        "a_b: #c": {"from": "a/b: #c", "kind": "categorical"},
    }
    assert document.target.column == "clicked"
    assert document.target.comparison is None
    assert {name: one.column for name, one in document.more_targets.items()} == {"label_": "label"}
    assert document.split is not None
    assert document.split.by == "fraction"


def test_columns_left_out_are_named_with_the_reason(shop: Path, wording: Wording) -> None:
    inferred = infer(shop)
    names = {"order", "row number", "embedding", "remark", "currency", "nothing"}
    assert set(inferred.left_out) == names
    wording(inferred.text)


def test_text_is_looked_through(shop_csv: Path) -> None:
    inferred = infer(shop_csv)
    document = inferred.features.document
    assert document.format.model_dump(exclude_defaults=True) == {
        "delimiter": ";",
        "null_values": ("", "NA"),
        "encoding": "latin-1",
        "timestamp": "%d.%m.%Y %H:%M",
    }
    assert document.columns["tags"].separator == "|"
    assert document.columns["at_hour"].as_ == "hour"
    assert document.columns["price"].kind == "continuous"
    assert document.columns["gift"].kind == "categorical"
    assert {"order", "remark", "currency", "nothing"} <= set(inferred.left_out)
    assert document.target.column == "clicked"


def test_values_that_do_not_come_again_are_no_ids(tmp_path: Path) -> None:
    rows = [{"basket": f"b{n // 3}", "item": f"i{n % 9}", "y": n % 2} for n in range(300)]
    inferred = inferred_of(tmp_path, pa.Table.from_pylist(rows))
    assert list(inferred.features.document.columns) == ["item"]
    assert inferred.left_out["basket"].startswith("its values do not recur")


def test_guesses_of_targets(tmp_path: Path) -> None:
    bits = [n % 2 for n in range(60)]
    for wanted, columns in (
        ("bought", {"bought": bits, "other": bits}),
        ("second", {"first": bits, "second": bits}),
        (
            {"column": "rating", "kind": "multiclass", "classes": [1, 2, 3, 4, 5]},
            {"rating": [n % 5 + 1 for n in range(60)]},
        ),
        (
            {"column": "stars", "equals": 5, "otherwise": 1},
            {"stars": [n % 2 * 4 + 1 for n in range(60)]},
        ),
        ("last", {"score": [5] * 60, "rating": [0] * 60, "last": bits}),
        (
            {"column": "amount", "at_least": 44.25, "placeholder": True},
            {"amount": [float(n) for n in range(60)]},
        ),
    ):
        inferred = inferred_of(tmp_path, {"item": [f"i{n % 9}" for n in range(60)], **columns})
        assert parse_yaml(inferred.text)["target"] == wanted


def test_a_column_that_names_parts_is_a_feature_if_others_validate(tmp_path: Path) -> None:
    table = {"split": ["train", "test"] * 30, "item": [f"i{n % 9}" for n in range(60)]}
    table["bought"] = [0, 0, 1] * 20
    table["at"] = [START + datetime.timedelta(hours=number) for number in range(60)]
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    files = list_inputs([str(tmp_path / "t.parquet")])
    by_item = {"by": "hash", "column": "item", "share": 0.2}
    by_split = {"by": "column", "column": "split", "equals": "test"}
    found = infer_features(files, UserChoices(("bought",))).features.document.split
    assert found.model_dump(include={*by_split}) == by_split
    for valid, time, is_feature in (
        (None, None, False),
        (None, "at", False),
        (False, None, False),
        (by_split, None, False),
        (by_item, None, True),
        (0.2, None, True),
    ):
        inferred = infer_features(files, UserChoices(("bought",), valid=valid, time=time))
        assert ("split" in inferred.features.document.columns) == is_feature
        assert ("split" in inferred.left_out) != is_feature
    with pytest.raises(SpecError, match=r"split\.by: required"):
        infer_features(files, UserChoices(("bought",), valid={"last": 0.1}))
    for targets in (("split",), ("bought", "split")):
        split = infer_features(files, UserChoices(targets)).features.document.split
        assert getattr(split, "column", None) != "split"  # all rows of a part have one label


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_equal_values_in_the_sample_are_refused_only_if_all_rows_have_them(
    tmp_path: Path, name: str
) -> None:
    table = {"spent": [0] * 60 + [7] * 60, "w": [0] * 60 + [1] * 60, "y": [0, 1] * 60}
    table["item"] = ["a", "b", "c"] * 40
    inferred_of(tmp_path, table, name)
    files = list_inputs([str(tmp_path / name)])
    document = infer_features(files, UserChoices(("spent",), "regression", weight="w"), 50).features
    assert (document.document.target.kind, document.document.weight) == ("regression", "w")
    inferred_of(tmp_path, {**table, "spent": [0] * 120, "w": [0] * 120}, name)
    for column, asked in (
        ("spent", UserChoices(("spent",), "regression")),
        ("w", UserChoices(("y",), weight="w")),
    ):
        with pytest.raises(DataError) as refused:
            infer_features(files, asked)
        assert refused.value.where["column"] == column


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=8)
KINDS: dict[str, Any] = {
    "whole": lambda source: source.randint(-5, 5),
    "real": lambda source: source.gauss(0, 1e6),
    "text": lambda source: source.choice(["a", "b b", "NA", "yes", "1", "ü"]),
    "truth": lambda source: source.random() < 0.5,
    "date": lambda source: datetime.date.fromordinal(source.randint(720_000, 740_000)),
    "list": lambda source: source.choices(["x", "y"], k=source.randint(0, 3)),
    "id": lambda source: f"{source.random()}",
    "none": lambda source: None,
}


def values_of(kind: str, seed: int, missing: float) -> list[Any]:
    source = random.Random(seed)
    return [None if source.random() < missing else KINDS[kind](source) for _ in range(60)]


columns_of = st.builds(
    values_of, st.sampled_from(sorted(KINDS)), st.integers(0, 99), st.sampled_from([0.0, 0.3])
)


@settings(deadline=None, max_examples=30)
@given(table=st.dictionaries(names, columns_of, min_size=1, max_size=5), as_json=st.booleans())
def test_any_table_gives_a_document_that_is_accepted(
    tmp_path_factory: pytest.TempPathFactory, table: dict[str, list[Any]], as_json: bool
) -> None:
    folder = tmp_path_factory.mktemp("any")
    rows = pa.table({**table, "clicked": [0, 1] * 30, "kind": ["a", "b", "c"] * 20})
    path = folder / ("t.jsonl" if as_json else "t.parquet")
    if as_json:
        path.write_text("".join(json.dumps(r, default=str) + "\n" for r in rows.to_pylist()))
    else:
        pq.write_table(rows, path)
    inferred = infer(path)
    features = FeatureConfig.parse(parse_yaml(inferred.text))
    assert features == inferred.features
    used = {column.source or name for name, column in features.document.columns.items()}
    used |= {target.column for target in features.document.targets.values()}
    assert used | set(inferred.left_out) == set(rows.column_names)
    assert not used & set(inferred.left_out)


def run(*arguments: object) -> Any:
    return CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=True)


def test_the_command_writes_a_file_and_names_the_next_command(shop: Path, tmp_path: Path) -> None:
    out = tmp_path / "features.yaml"
    result = run(shop, "--infer", "--out", out)
    assert result.exit_code == 0, result.output
    last = result.output.splitlines()[-1]
    assert last == f"  distrain prep {shop} --features {out} --out prepared"
    assert "6 columns left out, from the first 400 rows of the file" in result.output
    assert FeatureConfig.load(out) == infer(shop).features
    assert run(shop, "--infer").output == out.read_text()
    assert json.loads(run(shop, "--infer", "--json").output)["left_out"].keys() >= {"order"}
    for taken, *more in ((out,), (tmp_path,), (tmp_path, "--overwrite")):
        refused = run(tmp_path / "no such input", "--infer", "--out", taken, *more).exception
        assert isinstance(refused, OutputError)
        assert refused.where == {"path": taken}
    assert run(shop, "--infer", "--out", out, "--overwrite").exit_code == 0
    assert isinstance(run(shop, "--infer", "--out", shop, "--overwrite").exception, OutputError)
    assert run(shop, "--infer", "--block-mib", 3).exit_code == 2
    assert "Missing option '--out'" in run(shop).output


def test_a_table_of_which_nothing_can_be_learnt_is_told(tmp_path: Path, wording: Wording) -> None:
    rows = {"y": [0, 1] * 50, "id": [f"{n}" for n in range(100)]}
    wording.refused(
        DataError, lambda: inferred_of(tmp_path, rows), id="nearly unique: 100 values in 100 rows"
    )


def inferred_of(
    folder: Path, table: dict[str, Any] | pa.Table, name: str = "t.parquet", **options: Any
) -> Inferred:
    write = pq.write_table if name.endswith(".parquet") else pa_csv.write_csv
    write(pa.table(table), folder / name)
    return infer_features(list_inputs([str(folder / name)]), **options)


@pytest.mark.parametrize(
    ("column", "values", "target"),
    [
        ("survived", ["no", "yes", "no"], {"equals": "yes", "otherwise": "no"}),
        ("churned", ["Churned", "Stayed", "Stayed"], {"equals": "Churned", "otherwise": "Stayed"}),
        ("y", [-1, 1, -1], {"equals": 1, "otherwise": -1}),
        ("y", [True, None, False], {"missing": "drop"}),
        ("opened", ["N", "Y", "N"], {"equals": "Y", "otherwise": "N"}),
        ("grade", ["ok", "bad", "ok"], {"equals": "bad", "otherwise": "ok"}),
        ("label", [0, 1, 2], {"kind": "multiclass", "classes": 3}),
        ("label", [3, 1, 2], {"kind": "multiclass", "classes": (1, 2, 3)}),
        ("label", [0.5, 1, 2], {"kind": "regression"}),
        ("y", ["b", "a", "c"], {"kind": "multiclass", "classes": ("a", "b", "c")}),
    ],
)
def test_a_column_with_the_name_of_an_answer_is_the_target_by_its_values(
    tmp_path: Path, column: str, values: list[Any], target: dict[str, Any], wording: Wording
) -> None:
    sexes = ["male", "female", "female"]
    table = {"sex": sexes * 50, "price": [1.5, 2.5, 9.0] * 50, column: values * 50}
    for name in ("t.parquet", "t.csv"):
        inferred = inferred_of(tmp_path, table, name)
        found = inferred.features.document.target
        assert found.model_dump(exclude_defaults=True) == {"column": column, **target}
        wording(inferred.target_reason)


@pytest.mark.parametrize(
    ("values", "target"),
    [
        ([1.0, 5.0], "target: {column: label, equals: 5, otherwise: 1}"),
        ([1.0, 2.0, 3.0], "target: {column: label, kind: multiclass, classes: [1, 2, 3]}"),
    ],
)
def test_whole_numbers_of_a_float_column_are_written_without_a_decimal_point(
    tmp_path: Path, values: list[float], target: str
) -> None:
    table = {"shop": ["a", "b", "c"] * 40, "label": (values * 60)[:120]}
    assert target in inferred_of(tmp_path, table).text


@pytest.mark.parametrize("values", [[5e299, -5e299], [1.0, 5e299, 2.0]])
def test_a_target_beyond_float32_has_no_classes(
    tmp_path: Path, client: Any, values: list[float], wording: Wording
) -> None:
    table = {"shop": ["a", "b", "c"] * 40, "label": (values * 60)[:120]}
    inferred = inferred_of(tmp_path, table)
    assert inferred.features.document.target.kind == "regression"
    inputs = (str(tmp_path / "t.parquet"),)
    request = PrepRequest(inputs, tmp_path / "out", features=inferred.features)
    wording.refused(DataError, lambda: prepare(request, client))
    for task in ("binary", "multiclass"):
        with pytest.raises(DataError):
            infer_features(list_inputs(inputs), UserChoices(("label",), task=task))


def test_a_column_without_a_name_is_left_out(tmp_path: Path) -> None:
    lines = [f"{n % 7},{n % 5},{n % 2}" for n in range(200)]
    (tmp_path / "t.csv").write_text("\n".join([",x,label", *lines]) + "\n")
    inferred = infer(tmp_path / "t.csv")
    assert "" in inferred.left_out
    assert list(inferred.features.document.columns) == ["x"]


def test_numbers_of_a_categorical_type_are_categories(tmp_path: Path) -> None:
    numbers = pa.array([n % 50 for n in range(200)])
    table = {"coded": numbers.dictionary_encode(), "x": numbers, "label": [0, 1] * 100}
    columns = inferred_of(tmp_path, table).features.document.columns
    assert (columns["coded"].kind, columns["x"].kind) == ("categorical", "continuous")


def test_columns_that_cannot_have_their_role_are_refused_with_their_type(
    tmp_path: Path, wording: Wording
) -> None:
    table = {"x": [n % 50 for n in range(200)], "t": ["p", "q", "r", "s"] * 50, "y": [0, 1] * 100}
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    files = list_inputs([str(tmp_path / "t.parquet")])
    for name, role in (("x", "time"), ("t", "time"), ("t", "weight")):
        wording.refused(
            DataError,
            partial(infer_features, files, UserChoices(("y",), **{role: name})),
            column=name,
        )
    wording.refused(InputError, lambda: UserChoices(("y", "y")), column="y, y")
    (tmp_path / "t.csv").write_text("x,y\n")
    assert wording.refused(DataError, lambda: infer(tmp_path / "t.csv")).hint


def test_further_targets_a_weight_and_windows_are_suggested_with_reasons(tmp_path: Path) -> None:
    minutes = [START + datetime.timedelta(minutes=30 * number) for number in range(150)]
    table = {
        "Clicked ": [0, 1, 1] * 50,
        "bought": [0, 0, 1] * 50,
        "Sample weight": [1.0, 2.0, 0.5] * 50,
        "weight": [1.0, 2.0, 0.5] * 50,
        "at": minutes,
        "shop": ["a", "b", "c"] * 50,
        "Store ID": [n * n % 31 for n in range(150)],
    }
    inferred = inferred_of(tmp_path, table)
    document = inferred.features.document
    assert (document.target.column, list(document.more_targets)) == ("Clicked ", ["bought"])
    assert document.weight == "Sample weight"
    assert document.windows is None  # a line that somebody takes the sign of a comment from
    assert "# windows: {by: at, size: 1d}" in inferred.text
    assert list(document.columns) == ["weight", "at_hour", "at_weekday", "shop", "Store ID"]
    assert document.columns["Store ID"].kind == "categorical"
    assert set(inferred.reasons) == {"more_targets", "weight", "windows"}
    assert "4 days by at" in inferred.reasons["windows"]


def test_rows_without_a_further_target_are_kept_for_the_first(tmp_path: Path) -> None:
    table = {
        "clicked": [0, 1, 1] * 50,
        "bought": [0, None, 1] * 50,
        "bought_known": ["a", "b", "c"] * 50,
    }
    document = inferred_of(tmp_path, table).features.document
    assert document.more_targets["bought"].missing == "unknown"
    assert document.columns["bought_known_"].source == "bought_known"


def test_categories_are_not_said_to_tell_nothing_of_classes(tmp_path: Path) -> None:
    table = {"label": ["a", "b", "c"] * 200, "shop": [f"s{n * 7 % 150}" for n in range(600)]}
    text = inferred_of(tmp_path, table).text
    assert "shop_rows" in text
    assert "not tried" in text
    assert "say nothing" not in text


def test_whole_numbers_that_are_equal_as_floats_are_counted_apart() -> None:
    facts = facts_of("user", pa.array([2**63 + n % 70 for n in range(700)], pa.uint64()))
    assert (facts.distinct, facts.num_values) == (70, 700)


def ratings(num_users: int = 60, each: int = 20) -> dict[str, list[Any]]:
    """As MovieLens: sorted by the user, times in seconds."""
    source = random.Random(1)
    users = [user for user in range(num_users) for _ in range(each)]
    return {
        "userId": users,
        "movieId": [source.randint(1, 80) for _ in users],
        "rating": [source.randint(1, 10) / 2 for _ in users],
        "timestamp": [source.randint(1_400_000_000, 1_500_000_000) for _ in users],
    }


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_seconds_become_times_and_the_ids_that_a_file_is_sorted_by_are_kept(
    client: Any, tmp_path: Path, name: str
) -> None:
    table = ratings()
    inferred = inferred_of(tmp_path, table, name)
    document = inferred.features.document
    assert {"userId", "movieId", "timestamp_hour", "timestamp_weekday"} <= set(document.columns)
    assert document.columns["timestamp_hour"].epoch == "s"
    assert document.target.column == "rating"
    assert document.split is not None
    assert document.split.by == "time"
    result = prepare(
        PrepRequest((str(tmp_path / name),), tmp_path / "out", features=inferred.features), client
    )
    assert result.valid is not None
    later = sorted(table["timestamp"])[-result.valid.num_rows :]
    assert document.split.start == later[0]
    assert 115 <= result.valid.num_rows <= 125


def test_the_split_of_rows_that_are_sorted_is_not_their_last_tenth(tmp_path: Path) -> None:
    of_users = {name: values for name, values in ratings().items() if name != "timestamp"}
    numbers = random.Random(2).sample(range(5000), len(of_users["userId"]))
    by_label = {"shop": [f"s{n % 40}" for n in range(200)], "clicked": [0] * 150 + [1] * 50}
    of_29_shops = [f"s{n % 29}" for n in range(200)]
    few_shops = {**by_label, "shop": of_29_shops}
    of_few = {"shop": sorted(of_29_shops), "clicked": [0, 1] * 100}
    by_year = {**by_label, "clicked": [0, 1] * 100, "year": [2020] * 100 + [2021] * 100}
    alone = {"gift": [True, False] * 100, "clicked": [0] * 150 + [1] * 50}
    for table, wanted in (
        (of_users, ("hash", "userId")),
        ({**of_users, "row": numbers}, ("hash", "userId")),
        ({**of_users, "target": numbers}, ("hash", "userId")),
        (by_label, ("hash", "shop")),
        ({**by_label, "row": numbers[:200]}, ("hash", "row")),
        (few_shops, ("fraction", None)),
        (of_few, ("fraction", None)),
        (alone, ("fraction", None)),
        (by_year, ("fraction", None)),
    ):
        split = inferred_of(tmp_path, table).features.document.split
        assert (split.by, getattr(split, "column", None)) == wanted


@pytest.mark.parametrize("has_others", [True, False])
def test_ids_that_are_hashed_for_validation_are_left_out_if_there_are_other_features(
    tmp_path: Path, has_others: bool
) -> None:
    users = [f"u{n // 5}" for n in range(400)]
    table = {"user": users, "bought": [n % 2 for n in range(400)]}
    table |= {"shop": [f"s{n * 7 % 9}" for n in range(400)]} if has_others else {}
    inferred = inferred_of(tmp_path, table)
    assert inferred.features.document.split.column == "user"
    assert ("user" in inferred.features.document.columns) != has_others
    assert (inferred.left_out == {"user": IS_HASHED}) == has_others


def test_broken_lines_of_the_sample_are_counted_and_prep_is_told_to_skip_them(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t.csv"
    rows = ["c,x,y", *(f"{'ab'[n % 2]},{n % 50},{n % 2}" for n in range(400))]
    for broken, num_first, options in (
        ((78, 301), 1, "--bad-lines skip"),
        (range(3, 400, 3), 50, "--max-bad"),
        ((), 0, "--out prepared"),
    ):
        lines = [line if number not in broken else "a" for number, line in enumerate(rows, start=1)]
        path.write_text("\n".join(lines) + "\n")
        result = run(path, "--infer", "--json")
        (answer, *_) = result.stdout.splitlines()
        assert json.loads(answer)["bad_lines"]["count"] == len(broken)
        assert options in run(path, "--infer", "--out", tmp_path / "f.yaml", "--overwrite").output
        few = infer_features(list_inputs([str(path)]), most_rows=100)
        assert few.bad_lines.count == num_first


def test_a_later_file_of_json_lines_may_lack_columns(tmp_path: Path) -> None:
    rows = [{"y": n % 2, "x": n / 2, "tags": [n % 7]} for n in range(60)]
    for name, lacking in (("a", set()), ("b", {"x", "tags"})):
        lines = [json.dumps({k: v for k, v in row.items() if k not in lacking}) for row in rows]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    columns = infer(tmp_path / "a.jsonl", tmp_path / "b.jsonl").features.document.columns
    assert {name: column.kind for name, column in columns.items()} == {
        "x": "continuous",
        "tags": "categorical",
    }
    assert columns["x"].fill is not None


def test_a_torn_line_is_named_by_its_number_in_the_file(tmp_path: Path, wording: Wording) -> None:
    rows = [f"{'ab'[n % 2]},{n % 2}" for n in range(1100)]
    (tmp_path / "t.csv").write_text("\n".join(["c,y", *rows, '"a,1', *rows]) + "\n")
    wording.refused(DataError, lambda: infer(tmp_path / "t.csv"), line=1102)


def test_counts_and_target_means_are_of_columns_that_tell_of_unseen_rows(tmp_path: Path) -> None:
    source = random.Random(3)
    rows = []
    for _ in range(12_000):
        page, noise = source.randint(0, 150), source.randint(0, 150)
        spent = None if source.random() < 0.2 else int(source.lognormvariate(2, 3))
        visits = source.randint(0, 50)
        clicked = int(source.random() < (0.2 if page % 2 else 0.4) + (0.1 if visits % 2 else 0))
        rows.append(
            {"clicked": clicked, "spent": spent, "visits": visits, "height": source.gauss(9, 1)}
            | {"page": f"p{page}", "noise": f"n{noise}"}
        )
    inferred = inferred_of(tmp_path, pa.Table.from_pylist(rows))
    columns = inferred.features.document.columns
    beside = {"spent_bucket", "page_rows", "page_mean", "visits_bucket"}
    beside |= {"visits_rows", "visits_mean"}
    assert set(columns) == {"spent", "visits", "height", "page", "noise", *beside}
    assert columns["page_mean"].source == "page"
    text = inferred.text
    for name in ("noise_rows", "noise_mean"):  # comments, which are features without their sign
        text = text.replace(f"  # {name}:", f"  {name}:")
    taken = FeatureConfig.parse(parse_yaml(text)).document.columns
    assert set(taken) == {*columns, "noise_rows", "noise_mean"}
    # Values of numbers have no statistics in a regression, or if there are few rows.
    files, fewer = list_inputs([str(tmp_path / "t.parquet")]), {"visits_rows", "visits_mean"}
    regression = infer_features(files, UserChoices(("clicked",), "regression")).features.document
    few = infer_features(files, most_rows=4_000).features.document
    assert set(regression.columns) == set(few.columns) == {*columns} - fewer - {"visits_bucket"}


@pytest.mark.parametrize(
    ("step", "has_statistics"), [(0.01, False), (0.25, True), (1.0, True), (1e-9, False)]
)
def test_measured_numbers_have_statistics_if_their_values_repeat(
    tmp_path: Path, step: float, has_statistics: bool
) -> None:
    source = np.random.default_rng(4)
    size = source.normal(50, 10, 12_000)
    clicked = source.random(12_000) < np.where(size > 50, 0.6, 0.2)
    found = inferred_of(tmp_path, {"clicked": clicked, "size": (size / step).round() * step})
    columns = found.features.document.columns
    assert ({"size_rows", "size_mean"} <= columns.keys()) == has_statistics


def test_pairs_that_predict_beyond_their_columns_are_crossed(tmp_path: Path) -> None:
    source = np.random.default_rng(6)
    city, hour, size, noise = source.integers(0, [[12], [24], [5], [40]], (4, 12_000))
    # The parity of city and hour matters, size alone matters, and the noise does not.
    clicked = source.random(12_000) < 0.2 + 0.2 * ((city + hour) % 2) + 0.08 * size
    columns = {"clicked": clicked, "hour": hour, "size": size}
    columns |= {"city": city.astype(str), "noise": noise.astype(str)}
    found = inferred_of(tmp_path, columns).features.document.columns
    crossed = {name: column.cross for name, column in found.items() if column.cross}
    assert crossed == {"hour_city_mean": ("hour", "city")}
    few = inferred_of(tmp_path, columns, most_rows=4_000).features.document
    assert not any(column.cross for column in few.columns.values())


def test_features_of_later_rows_are_those_that_predict_rows_after_a_time(tmp_path: Path) -> None:
    source = np.random.default_rng(8)
    date, shop = source.integers(0, [[360], [150]], (2, 24_000))
    # Each date has its own rate, which says nothing of later dates; that of a shop stays.
    clicked = source.random(24_000) < source.random(360)[date] * 0.5 + 0.3 * (shop % 2)
    columns = {"clicked": clicked, "month": date // 30, "day": date % 30, "shop": shop.astype(str)}
    at = np.datetime64("2024-01-01", "s") + date * 86_400 + source.integers(0, 86_400, 24_000)

    def crossed(**more: object) -> tuple[set[tuple[str, ...]], dict[str, str], bool]:
        found = inferred_of(tmp_path, {**columns, **more})
        made = found.features.document.columns
        return (
            {one.cross for one in made.values() if one.cross},
            found.left_out,
            "shop_mean" in made,
        )

    assert crossed() == ({("month", "day")}, {}, True)
    assert crossed(at=at) == (set(), {"month": MEASURES_TIME}, True)


@pytest.mark.parametrize(
    ("hours", "parts"),
    [(10, ["weekday"]), (7 * 24, ["hour", "weekday"]), (200 * 24, ["hour", "weekday"])],
)
def test_parts_of_times_are_features_if_the_latest_rows_have_those_of_earlier_ones(
    tmp_path: Path, hours: int, parts: list[str]
) -> None:
    at = np.datetime64("2024-01-01", "s") + hours * np.arange(3_600)
    assert parts_made_of(at, tmp_path) == (parts, False)


def test_dates_whose_latest_weekday_is_new_are_left_out(tmp_path: Path) -> None:
    monday = np.datetime64("2024-01-01", "D")
    day = monday + np.array([7 * (row // 40) + 2 * (row % 2) for row in range(400)])
    assert parts_made_of(day, tmp_path) == (["weekday"], False)
    day[360:] += 1
    assert parts_made_of(day, tmp_path) == ([], True)


@pytest.mark.parametrize(("days", "parts"), [(200, ["weekday"]), (1_000, ["weekday", "month"])])
def test_months_that_recur_are_features(tmp_path: Path, days: int, parts: list[str]) -> None:
    day = np.datetime64("2022-01-01", "D") + days * np.arange(4_000) // 4_000
    assert parts_made_of(day, tmp_path) == (parts, False)


def parts_made_of(at: Any, folder: Path) -> tuple[list[str | None], bool]:
    """Return the features of a column of times, and whether the column is left out."""
    rows = np.arange(len(at))
    columns = {"clicked": rows % 2, "price": np.sin(rows), "at": at}
    found = inferred_of(folder, columns)
    made = [one.as_ for one in found.features.document.columns.values() if one.source == "at"]
    return made, "at" in found.left_out


@pytest.mark.parametrize(("least", "is_log"), [(-3, True), (-500, False)])
def test_a_skewed_number_has_a_logarithm_though_small_negative_values_are_codes(
    tmp_path: Path, least: int, is_log: bool
) -> None:
    source = random.Random(4)
    amounts = [int(source.lognormvariate(4, 2)) for _ in range(500)] + [least] * 50
    bought = [number % 2 for number in range(len(amounts))]
    found = inferred_of(tmp_path, {"amount": amounts, "bought": bought})
    columns = found.features.document.columns
    assert bool(columns["amount"].log) == is_log
    assert ("amount_bucket" in columns) == is_log


def test_a_target_of_classes_has_no_means(tmp_path: Path) -> None:
    source = random.Random(4)
    pages = [source.randint(0, 150) for _ in range(3000)]
    rows = [{"outcome": "abc"[page % 3], "page": f"p{page}"} for page in pages]
    found = inferred_of(tmp_path, pa.Table.from_pylist(rows))
    assert list(found.features.document.columns) == ["page"]


def test_values_of_whole_numbers_that_predict_classes_become_ids(tmp_path: Path) -> None:
    source = np.random.default_rng(7)
    minute, noise = source.integers(0, 60, (2, 12_000))
    chance, size = source.random(12_000), source.normal(9, 1, 12_000)
    line = np.where(chance < 0.5, minute % 3, source.integers(0, 3, 12_000))
    outcome = np.array(["a", "b", "c"])[line]
    table = {"outcome": outcome, "minute": minute, "noise": noise, "size": size}
    found = inferred_of(tmp_path, table).features.document.columns
    assert set(found) == {"minute", "minute_value", "noise", "size"}
    assert (found["minute_value"].source, found["minute_value"].kind) == ("minute", "categorical")
    few = inferred_of(tmp_path, table, most_rows=4_000)
    assert set(few.features.document.columns) == {"minute", "noise", "size"}
    table["minute"] = np.uint64(2**63) + minute.astype(np.uint64)
    wide = inferred_of(tmp_path, table).features.document.columns["minute"]
    assert (wide.kind, wide.as_) == ("categorical", "text"), "all are equal as floats"


def test_pairs_that_predict_classes_beyond_their_columns_become_ids(tmp_path: Path) -> None:
    source = np.random.default_rng(9)
    city, hour, noise = source.integers(0, [[12], [24], [40]], (3, 12_000))
    # The sum of city and hour matters, and neither alone.
    line = np.where(source.random(12_000) < 0.5, (city + hour) % 3, source.integers(0, 3, 12_000))
    columns = {"outcome": np.array(["a", "b", "c"])[line], "hour": hour.astype(str)}
    columns |= {"city": city.astype(str), "noise": noise.astype(str)}
    found = inferred_of(tmp_path, columns).features.document.columns
    crossed = {name: (one.kind, one.cross) for name, one in found.items() if one.cross}
    assert crossed == {"hour_city_value": ("categorical", ("hour", "city"))}


def test_lines_of_criteos_logs_need_no_header(tmp_path: Path) -> None:
    source = random.Random(5)
    lines = []
    for _ in range(2000):
        numbers = ["" if source.random() < 0.3 else str(source.randint(-1, 9)) for _ in range(13)]
        words = [f"{source.randint(0, 400):08x}" for _ in range(26)]
        lines.append("\t".join([str(source.randint(0, 1)), *numbers, *words]))
    (tmp_path / "day_0").write_text("\n".join(lines) + "\n")
    document = infer(tmp_path / "day_0").features.document
    assert (document.format.kind, document.target.column) == ("criteo", "label")
    kinds = {name: column.kind for name, column in document.columns.items()}
    assert [kinds[f"C{n}"] for n in range(1, 27)] == ["categorical"] * 26


def test_infinite_numbers_do_not_hide_the_differences_of_the_others(tmp_path: Path) -> None:
    usual = [number / 8 for number in range(-40, 60)]
    numbers = [*usual * 3, float("inf"), float("-inf"), 1e300]
    bought = [number % 2 for number in range(len(numbers))]
    found = inferred_of(tmp_path, {"x": numbers, "bought": bought})
    clip = found.features.document.columns["x"].clip
    assert clip is not None
    assert (clip.min, clip.max) == (min(usual), max(usual))


def test_a_column_that_is_named_as_weights_is_a_feature_if_there_are_none(tmp_path: Path) -> None:
    rows = {"sample_weight": [n / 7 for n in range(90)], "bought": [n % 2 for n in range(90)]}
    table = {**rows, "x": [n % 11 / 2 for n in range(90)]}
    guessed, none = (
        inferred_of(
            tmp_path, table, choices=UserChoices(("bought",), weight=weight)
        ).features.document
        for weight in (None, False)
    )
    assert (guessed.weight, none.weight) == ("sample_weight", None)
    assert set(none.columns) - set(guessed.columns) >= {"sample_weight"}
