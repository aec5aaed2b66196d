"""Any table, by a features document: what is read of it, and what is refused."""

import csv
import datetime
import gzip
import io
import json
import math
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st
from pydantic import VERSION
from wording import Wording

from distrain.errors import DataError, InputError, SpecError
from distrain.jobs.spec.models.kinds import TwoTowerSpec
from distrain.models.build import blueprint_of
from distrain.prep import (
    Categorify,
    ColumnGroup,
    FeatureConfig,
    PrepRequest,
    PrepResult,
    Workflow,
    prepare,
)
from distrain.prep.features import text_head
from distrain.prep.features.document import FormatSpec
from distrain.prep.features.staging import StagingTask, stage_rows
from distrain.prep.features.table_file import look_at
from distrain.prep.parts import Part, read_part
from distrain.prep.raw_lines import TextLayout
from distrain.schema import Schema

NUM_ROWS = 90
BLOCK_BYTES = 900  # some 16 lines
START = datetime.datetime(2024, 3, 1, 6, 30)
PUBLISHED = Path(__file__).parents[2] / "docs" / "features.schema.json"

COLUMNS = {
    "shop": {"kind": "categorical", "freq_threshold": 2},
    "price": {
        "kind": "continuous",
        "fill": 0,
        "clip": {"min": 0},
        "log": True,
        "normalize": True,
    },
    "hour": {"kind": "categorical", "from": "at", "as": "hour"},
    "weekday": {"kind": "continuous", "from": "at", "as": "weekday"},
    "is_new": {"kind": "continuous"},
    "words": {"kind": "categorical", "list_slice": -2},
}
TEXT_COLUMNS = {**COLUMNS, "words": {**COLUMNS["words"], "separator": "|"}}


def document(**changes: Any) -> dict[str, Any]:
    made = {"target": {"column": "stars", "at_least": 4}, "columns": COLUMNS}
    return {**made, **changes}


def config(**changes: Any) -> FeatureConfig:
    return FeatureConfig.parse(document(**changes))


def row(number: int) -> dict[str, Any]:
    return {
        "shop": [f"s{number % 7}", f"only-{number}", None, 'quoted "x", y'][number % 4],
        "price": None if number % 5 == 2 else Decimal(number * 37 % 400 - 60) / 4,
        "at": START + datetime.timedelta(hours=5 * number),
        "is_new": number % 3 == 0,
        "words": None if number % 11 == 1 else [f"w{number % k}" for k in range(2, 2 + number % 4)],
        "stars": number * 7 % 5 + 1,
    }


ROWS = [row(number) for number in range(NUM_ROWS)]


def write_parquet(path: Path, rows: list[dict[str, Any]] = ROWS) -> Path:
    schema = pa.Table.from_pylist(rows).schema
    place = schema.get_field_index("shop")
    shops = pa.field("shop", pa.dictionary(pa.int32(), pa.string()))
    table = pa.Table.from_pylist(rows).cast(schema.set(place, shops))
    pq.write_table(table, path, row_group_size=8)
    return path


def csv_text(rows: list[dict[str, Any]] = ROWS, delimiter: str = ",") -> str:
    def cell(value: Any) -> Any:
        if isinstance(value, bool):
            return str(value).lower()
        return "|".join(value) if isinstance(value, list) else value

    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerows([rows[0], *([cell(value) for value in r.values()] for r in rows)])
    return text.getvalue()


def json_text(rows: list[dict[str, Any]] = ROWS) -> str:
    def plain(value: Any) -> Any:
        return float(value) if isinstance(value, Decimal) else str(value)

    return "".join(json.dumps(r, default=plain) + "\n" for r in rows)


def written(folder: Path) -> pa.Table:
    return pa.concat_tables(pq.read_table(f) for f in sorted(folder.glob("*"))).combine_chunks()


@pytest.fixture
def prep(client: Any, tmp_path: Path) -> Callable[..., PrepResult]:
    def run(path: Path, features: FeatureConfig | None, **options: Any) -> PrepResult:
        options = {"out": tmp_path / "out", "block_bytes": BLOCK_BYTES, **options}
        return prepare(PrepRequest((str(path),), features=features, **options), client)

    return run


# The values.


def naive_ids(values: list[Any], threshold: int = 0) -> dict[Any, int]:
    counts = Counter(value for value in values if value is not None)
    kept = [v for v in counts if counts[v] >= threshold]
    ordered = sorted(kept, key=lambda v: (-counts[v], v))
    return {None: 1} | {value: 3 + place for place, value in enumerate(ordered)}


def naive_rows(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """What Python makes of the rows."""
    shops = naive_ids([r["shop"] for r in rows], threshold=2)
    hours = naive_ids([r["at"].hour for r in rows])
    words = [(r["words"] or [])[-2:] for r in rows]
    word_ids = naive_ids([word for some in words for word in some])
    logs = [math.log1p(max(float(r["price"] or 0), 0)) for r in rows]
    mean = sum(logs) / len(logs)
    deviation = math.sqrt(sum((x - mean) ** 2 for x in logs) / len(logs))
    return {
        "label": [float(r["stars"] >= 4) for r in rows],
        "shop": [shops.get(r["shop"], 2) for r in rows],
        "hour": [hours[r["at"].hour] for r in rows],
        "words": [[word_ids[word] for word in some] for some in words],
        "price": [(x - mean) / deviation for x in logs],
        "weekday": [float(r["at"].weekday()) for r in rows],
        "is_new": [float(r["is_new"]) for r in rows],
    }


def assert_equal_to_naive(found: pa.Table, rows: list[dict[str, Any]]) -> None:
    wanted = naive_rows(rows)
    assert set(found.column_names) == set(wanted)
    for name, values in wanted.items():
        if name == "price":
            np.testing.assert_allclose(found[name].to_numpy(), values, rtol=1e-5, atol=1e-6)
        else:
            assert found[name].to_pylist() == values, name


@pytest.mark.slow
def test_parquet_csv_and_json_lines_give_the_rows_of_a_naive_program(
    prep: Callable[..., PrepResult], tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text(csv_text())
    (tmp_path / "rows.tsv.gz").write_bytes(gzip.compress(csv_text(delimiter="\t").encode()))
    (tmp_path / "rows.jsonl").write_text(json_text())
    text = config(columns=TEXT_COLUMNS)
    for path, features in (
        (write_parquet(tmp_path / "rows.parquet"), config()),
        (tmp_path / "rows.csv", text),
        (tmp_path / "rows.tsv.gz", text),
        (tmp_path / "rows.jsonl", config()),
    ):
        out = tmp_path / path.suffix
        result = prep(path, features, out=out)
        assert result.train.num_files > 3, path
        assert_equal_to_naive(written(out / "train"), ROWS)
    schema = Schema.load(out / "schema.pbtxt")
    assert schema["words"].value_count == (0, 2)
    assert set(schema.categorical.names) == {"shop", "hour", "words"}
    assert set(schema.continuous.names) == {"price", "weekday", "is_new"}
    assert "stars" not in schema.names


def test_targets(prep: Callable[..., PrepResult], tmp_path: Path) -> None:
    rows = {
        "bit": [1, 0, 1],
        "truth": [True, False, True],
        "stars": [5, 1, 2],
        "paid": ["yes", "no", "later"],
        "x": ["a", "a", "b"],
    }
    rules: dict[str, tuple[Any, list[int]]] = {
        "bit": ("bit", [1, 0, 1]),
        "truth": ("truth", [1, 0, 1]),
        "above": ({"column": "stars", "above": 2}, [1, 0, 0]),
        "below": ({"column": "stars", "below": 2}, [0, 1, 0]),
        "at_most": ({"column": "stars", "at_most": 2}, [0, 1, 1]),
        "equals": ({"column": "paid", "equals": "yes"}, [1, 0, 0]),
        "one_of": ({"column": "paid", "one_of": ["no", "yes"]}, [1, 1, 0]),
        "equals_truth": ({"column": "truth", "equals": False}, [0, 1, 0]),
        "one_of_numbers": ({"column": "stars", "one_of": [5, 1]}, [1, 1, 0]),
    }
    more = {name: rule for name, (rule, _) in rules.items() if name != "at_most"}
    columns = {"x_": {"kind": "categorical", "from": "x"}}
    features = config(target=rules["at_most"][0], more_targets=more, columns=columns)
    pq.write_table(pa.table(rows), tmp_path / "t.parquet")
    pa_csv.write_csv(pa.table(rows), tmp_path / "t.csv")
    for name in ("t.parquet", "t.csv"):
        out = prep(tmp_path / name, features, out=tmp_path / f"out-{name}").out
        found = written(out / "train")
        for target, (_, labels) in rules.items():
            column = "label" if target == "at_most" else target
            assert found[column].to_pylist() == labels, (name, target)


def test_values_say_what_is_made_of_them(prep: Callable[..., PrepResult], tmp_path: Path) -> None:
    utc = pa.timestamp("ms", "UTC")
    noon = datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC)
    table = pa.table(
        {
            "y": [0, 1],
            "number": pa.array([17850.0, None]),
            "text": ["1.5", " -2"],
            "day": pa.array([datetime.date(1970, 1, 2), datetime.date(1970, 1, 1)]),
            "zoned": pa.array([noon, noon], utc),
            "counted": [86400, 0],
            "amount": [Decimal("1.50"), Decimal("2.00")],
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    columns = {
        "number": {"kind": "categorical"},
        "as_text": {"kind": "categorical", "from": "number", "as": "text"},
        "text": {"kind": "continuous", "as": "number"},
        "day": {"kind": "continuous", "as": "seconds"},
        "zoned": {"kind": "continuous", "as": "hour"},
        "counted": {"kind": "continuous", "as": "day", "epoch": "s"},
        "amount": {"kind": "continuous"},
        "amount_id": {"kind": "categorical", "from": "amount"},
    }
    out = prep(tmp_path / "t.parquet", config(target="y", columns=columns)).out
    found = written(out / "train").to_pydict()
    assert found["number"] == found["as_text"] == [3, 1]
    assert found["text"] == [1.5, -2.0]
    assert found["day"] == [86400.0, 0.0]
    assert found["zoned"] == [12.0, 12.0]
    assert found["counted"] == [2.0, 1.0]
    assert found["amount"] == [1.5, 2.0]
    kept = {c: pq.read_table(out / "workflow" / "categories" / f"unique.{c}.parquet")[c] for c in
            ("number", "as_text", "amount_id")}  # fmt: skip
    assert {c: values.to_pylist() for c, values in kept.items()} == {
        "number": ["17850"],
        "as_text": ["17850"],
        "amount_id": ["1.5", "2"],
    }


def test_dialects(prep: Callable[..., PrepResult], tmp_path: Path) -> None:
    lines = ["'a;b';1,5;31.12.2024 23:10;1", "né;NULL;01.01.2025 00:00;0", "né;-2;NULL;1"]
    (tmp_path / "t.txt").write_bytes("".join(line + "\r\n" for line in lines).encode("latin-1"))
    features = config(
        target="y",
        format={
            "delimiter": ";",
            "quote": "'",
            "header": False,
            "names": ["name", "x", "at", "y"],
            "null_values": ["NULL"],
            "decimal_point": ",",
            "encoding": "latin-1",
            "timestamp": "%d.%m.%Y %H:%M",
        },
        columns={
            "name": {"kind": "categorical"},
            "x": {"kind": "continuous", "fill": 7},
            "at": {"kind": "categorical", "as": "year"},
        },
    )
    out = prep(tmp_path / "t.txt", features).out
    found = written(out / "train").to_pydict()
    assert found == {"label": [1, 0, 1], "name": [4, 3, 3], "x": [1.5, 7, -2], "at": [3, 4, 1]}
    names = pq.read_table(out / "workflow" / "categories" / "unique.name.parquet")["name"]
    assert names.to_pylist() == ["né", "a;b"]


def test_json_lines_that_change_their_types_give_one_column(
    prep: Callable[..., PrepResult], tmp_path: Path
) -> None:
    rows: list[Any] = [{"y": 1, "v": 1, "l": ["a", 2]}, {"y": 0, "v": "x"}, {"v": 1.5, "y": True}]
    text = "".join(json.dumps(r) + "\n\n" for r in rows * 40)
    (tmp_path / "t.jsonl").write_text(text)
    columns = {"v": {"kind": "categorical"}, "l": {"kind": "categorical"}}
    out = prep(tmp_path / "t.jsonl", config(target="y", columns=columns)).out
    found = written(out / "train").to_pydict()
    assert found["label"] == [1, 0, 1] * 40
    assert found["v"] == [3, 5, 4] * 40
    assert found["l"] == [[4, 3], [], []] * 40


# Splits.


def staged(path: Path, features: FeatureConfig, folder: Path) -> tuple[pa.Table, pa.Table]:
    """The rows for training and for validation, as one task stages them."""
    file = look_at(str(path), path.stat().st_size, features.document.format)
    part = Part(str(path), tuple(range(len(file.row_groups))), sum(file.row_groups), str(path))
    stem = str(folder / "staged")
    found = stage_rows(
        StagingTask(file, part, features, frozenset(), False, 1 << 20, stem)
    )  # fmt: skip
    names = ["label", *features.document.columns]
    tables = []
    for parts in (found.parts, found.valid_parts):
        rows = [read_part(p, names) for p in parts]
        tables.append(pa.concat_tables(rows) if rows else None)
    return tables[0], tables[1]


cells = st.one_of(st.none(), st.sampled_from(["a", "b", "c", "dd", "e e", "ü"]))


@settings(deadline=None, max_examples=20)
@given(
    users=st.lists(cells, min_size=1, max_size=40),
    share=st.floats(0.05, 0.95),
    kind=st.sampled_from(["hash", "column", "time"]),
)
def test_splits_are_disjoint_and_complete(
    tmp_path_factory: pytest.TempPathFactory, users: list[Any], share: float, kind: str
) -> None:
    folder = tmp_path_factory.mktemp("split")
    hours = [len(users) * 7 % (place + 3) for place in range(len(users))]
    times = [START + datetime.timedelta(hours=hour) for hour in hours]
    rows = {"y": [0] * len(users), "user": users, "at": times, "row": list(range(len(users)))}
    pq.write_table(pa.table(rows, schema=pa.schema(
        [("y", pa.int8()), ("user", pa.string()), ("at", pa.timestamp("ns")), ("row", pa.int64())]
    )), folder / "t.parquet")  # fmt: skip
    split = {
        "hash": {"by": "hash", "column": "user", "share": share},
        "column": {"by": "column", "column": "user", "equals": "b"},
        "time": {"by": "time", "column": "at", "from": "2024-03-01T09:30:00"},
    }[kind]
    columns = {"row": {"kind": "continuous"}, "user": {"kind": "categorical"}}
    train, valid = staged(
        folder / "t.parquet", config(target="y", split=split, columns=columns), folder
    )
    sides = [[] if side is None else side["row"].to_pylist() for side in (train, valid)]
    assert sorted(sides[0] + sides[1]) == list(range(len(users)))
    assert all(side == sorted(side) for side in sides)
    if kind == "time":
        assert sides[1] == [row for row, hour in enumerate(hours) if hour >= 3]
    elif kind == "column":
        assert sides[1] == [row for row, user in enumerate(users) if user == "b"]
    else:  # all rows of a user are on one side, those without one are for training
        held = [{users[int(row)] for row in side} for side in sides]
        assert not held[0] & held[1]
        assert None not in held[1]


def test_a_hash_split_takes_its_share_and_is_the_same_in_every_format(
    prep: Callable[..., PrepResult], tmp_path: Path
) -> None:
    rows = {"y": [0, 1] * 1000, "user": list(range(2000))}
    pq.write_table(pa.table(rows), tmp_path / "t.parquet", row_group_size=500)
    pa_csv.write_csv(pa.table(rows), tmp_path / "t.csv")
    columns = {"id": {"kind": "continuous", "from": "user"}}
    split = {"by": "hash", "column": "user", "share": 0.2}
    features = config(target="y", split=split, columns=columns)
    found = []
    for name in ("t.parquet", "t.csv"):
        result = prep(tmp_path / name, features, out=tmp_path / f"out-{name}", block_bytes=20_000)
        assert 330 < result.valid.num_rows < 470
        found.append(written(result.out / "valid")["id"].to_pylist())
    assert found[0] == found[1]


def test_a_split_by_hash_of_few_values_is_refused(
    prep: Callable[..., PrepResult], tmp_path: Path
) -> None:
    split = {"by": "hash", "column": "user", "share": 0.5}
    features = config(target="y", split=split, columns={"y2": {"kind": "continuous", "from": "n"}})
    for name, num_values in (("many", 30), ("few", 29)):
        users = [None, *(number % num_values for number in range(120))]
        rows = {"y": [0, 1] * 60 + [0], "user": users, "n": range(121)}
        pq.write_table(pa.table(rows), tmp_path / f"{name}.parquet", row_group_size=10)
        pa_csv.write_csv(pa.table(rows), tmp_path / f"{name}.csv")
    for ending in ("parquet", "csv"):
        prep(tmp_path / f"many.{ending}", features, out=tmp_path / ending, block_bytes=300)
        with pytest.raises(DataError) as refused:
            prep(tmp_path / f"few.{ending}", features, out=tmp_path / "few", block_bytes=300)
        assert refused.value.where == {"column": "user", "different values": 29}


def test_a_fitted_workflow_splits_few_values_by_hash(
    prep: Callable[..., PrepResult], tmp_path: Path
) -> None:
    split = {"by": "hash", "column": "user", "share": 0.5}
    features = config(target="y", split=split, columns={"y2": {"kind": "continuous", "from": "n"}})
    for name, num_values in (("first", 120), ("later", 10)):
        users = [number % num_values for number in range(120)]
        rows = {"y": [0, 1] * 60, "user": users, "n": range(120)}
        pq.write_table(pa.table(rows), tmp_path / f"{name}.parquet")
    first = prep(tmp_path / "first.parquet", features, out=tmp_path / "first")
    workflow = first.out / "workflow"
    later = prep(
        tmp_path / "later.parquet", features, out=tmp_path / "later", saved_workflow=workflow
    )
    assert later.valid is not None
    assert later.train.num_rows + later.valid.num_rows == 120


def test_the_error_of_an_empty_file_is_not_one_of_its_split(
    prep: Callable[..., PrepResult], tmp_path: Path
) -> None:
    empty = {"y": pa.array([], "int64"), "user": pa.array([], "int64"), "n": pa.array([], "int64")}
    pq.write_table(pa.table(empty), tmp_path / "t.parquet")
    columns = {"y2": {"kind": "continuous", "from": "n"}}
    refusals = []
    for split in (None, {"by": "hash", "column": "user", "share": 0.5}):
        features = config(target="y", columns=columns, **({"split": split} if split else {}))
        with pytest.raises(DataError) as refused:
            prep(tmp_path / "t.parquet", features, out=tmp_path / "out")
        refusals.append(refused.value.where)
    assert refusals[0] == refusals[1]


@pytest.mark.slow
def test_what_is_fitted_never_sees_validation_rows(
    prep: Callable[..., PrepResult], tmp_path: Path
) -> None:
    path = write_parquet(tmp_path / "t.parquet")
    cut = START + datetime.timedelta(hours=5 * 60)
    naive_labels = naive_rows(ROWS)["label"]
    for last, split in (
        (30, {"by": "time", "column": "at", "from": cut.isoformat()}),
        (20, {"by": "rows", "last": 20}),
        (round(NUM_ROWS * 0.25), {"by": "fraction", "last": 0.25}),
    ):
        result = prep(path, config(split=split), out=tmp_path / f"out{last}")
        assert written(result.out / "valid")["label"].to_pylist() == naive_labels[-last:]
        assert_equal_to_naive(written(result.out / "train"), ROWS[:-last])


def test_a_split_that_gives_one_side_nothing_is_refused(
    prep: Callable[..., PrepResult], tmp_path: Path, wording: Wording
) -> None:
    path = write_parquet(tmp_path / "t.parquet")
    pq.write_table(pq.read_table(path).append_column("kind", [["s"] * NUM_ROWS]), path)
    split = {"by": "column", "column": "kind", "equals": "absent"}
    wording.refused(
        DataError,
        lambda: prep(path, config(split=split)),
        lambda: prep(path, config(split={**split, "equals": "s"})),
    )
    wording.refused(InputError, partial(prep, path, config(split=split), valid_rows=3))


# Mistakes.


def test_all_mistakes_of_a_document_are_reported_at_once(wording: Wording) -> None:
    parsed: dict[str, Any] = {
        "version": 2,
        "target": {"column": "stars", "at_least": 4, "below": 2},
        "split": {"by": "time", "colum": "at", "from": "yesterday"},
        "format": {"delimiter": ",,", "header": False},
        "columns": {
            "shop": {"kind": "categorical", "freq_treshold": 2},
            "price": {"kind": "continous"},
            "label": {"kind": "categorical"},
            "stars": {"kind": "continuous", "fill": -3, "log": True},
            "a/b": {"kind": "categorical", "as": "number"},
        },
        "colums": {},
    }
    error = wording.refused(SpecError, lambda: FeatureConfig.parse(parsed))
    paths = [line.partition(": ")[0] for line in error.message.split("\n")]
    assert {
        "version", "target", "split.column", "split.colum", "split.from", "format.delimiter",
        "columns.shop.freq_treshold", "columns.price.kind", "columns.label", "columns.stars",
        "columns.a/b", "columns.'a/b'", "colums",
    } == set(paths)  # fmt: skip
    assert len(paths) == 14


CATEGORY = {"kind": "categorical"}
ITEM = {**CATEGORY, "domain": "item"}
CROSS = {**CATEGORY, "cross": ["a", "b"]}
NUMBER = {"kind": "continuous"}
MISTAKES: list[tuple[str, dict[str, Any]]] = [
    ("columns.answer", {"columns": {"answer": {**NUMBER, "from": "stars"}}}),
    ("columns.seen", {"columns": {"item": ITEM, "seen": {**ITEM, "max_size": 3}}}),
    *(("columns.c", {"columns": {"c": {**CATEGORY, "tags": [tag]}}})
      for tag in ("target", "categorical", "User Id")),
    *(("columns.c", {"columns": {"c": {**CATEGORY, "buckets": buckets}}})
      for buckets in ([3, 1], [], {"quantiles": 1}, {"quantiles": 10**9})),
    ("columns.c", {"columns": {"c": {**CATEGORY, "buckets": "log_square", "as": "text"}}}),
    *(("columns.c", {"columns": {"c": {**CROSS, **cross}}})
      for cross in ({"cross": ["a"]}, {"cross": []}, {"cross": ["a", "stars"]}, {"from": "a"})),
    ("columns.c", {"columns": {"c": {**CROSS, **NUMBER}}}),
    *(("columns.c", {"columns": {"c": {**NUMBER, **keys}}})
      for keys in (
          {"hash_buckets": 4}, {"count": True, "fill": 0}, {"missing_flag": True, "log": True},
          {"target_mean": {"smoothing": 0}}, {"fill": -1, "log": True},
      )),
    ("columns.c", {"target": {"column": "stars", "kind": "multiclass", "classes": 2},
                   "columns": {"c": {**NUMBER, "from": "a", "target_mean": {}}}}),
    ("target", {"target": {"column": "a", "kind": "multiclass"}}),
    ("target", {"target": {"column": "a", "kind": "regression", "below": 3}}),
    ("target", {"target": {"column": "a", "kind": "multiclass", "classes": ["x", "x"]}}),
    ("'shop'", {"weight": "shop"}),
    ("columns.shop", {"more_targets": {"b": {"column": "shop"}}}),
    ("windows", {"windows": {"by": "at", "epoch": "s"}}),
    *(("history", {"history": {"by": "user", "order": "at", "keep": 3, "of": ["shop"], **keys}})
      for keys in ({"of": ["itm"]}, {"of": ["shop", "shop"]}, {"keep": 0})),
    ("joins.0.key", {"joins": [
        {"file": "a.csv", "key": "town", "columns": ["x", "y"]},
        {"file": "b.csv", "key": "k", "columns": {"town": "t", "x": "z"}},
    ]}),
]  # fmt: skip


def test_a_document_that_asks_for_the_impossible_is_refused(wording: Wording) -> None:
    for path, changes in MISTAKES:
        error = wording.refused(SpecError, partial(FeatureConfig.parse, document(**changes)))
        assert any(line.startswith(path) for line in error.message.split("\n")), (path, changes)


@pytest.mark.parametrize("place", ["file", "memory"])
@pytest.mark.parametrize("name", ["features.yaml", "features.json"])
def test_a_document_that_does_not_parse_is_refused_by_its_name(place, name, tmp_path) -> None:
    url = str(tmp_path / name) if place == "file" else f"memory://{tmp_path.name}/{name}"
    with fsspec.open(url, "w") as file:
        file.write("columns: {a: [1")
    with pytest.raises(SpecError) as caught:
        FeatureConfig.load(url)
    assert caught.value.where["file"] == url


def test_keys_with_a_condition_are_accepted_where_it_holds() -> None:
    answer = {"answer": {**NUMBER, "from": "stars"}}
    target = {"column": "stars", "above": 2, "is_feature": True}
    assert config(target=target, columns=answer).workflow().columns == ("answer",)
    domain = {"item": ITEM, "seen": {**ITEM, "list_slice": -5}}
    assert config(columns=domain).workflow().domains == dict.fromkeys(domain, "item")


@pytest.mark.skipif(VERSION.startswith("2.9."), reason="pydantic 2.9 writes schemas otherwise")
def test_the_json_schema_is_published() -> None:
    assert json.loads(PUBLISHED.read_text()) == FeatureConfig.json_schema(), (
        "write it again, as CONTRIBUTING.md says"
    )


def test_all_columns_that_cannot_be_used_are_named(
    prep: Callable[..., PrepResult], tmp_path: Path, wording: Wording
) -> None:
    columns = {
        "shp": {"kind": "categorical"},
        "at": {"kind": "continuous"},
        "shop": {"kind": "continuous"},
        "words": {"kind": "categorical"},
        "price": {"kind": "categorical", "list_slice": 3},
        "is_new": {"kind": "categorical", "as": "hour"},
        "nested": {"kind": "categorical"},
    }
    path = tmp_path / "t.parquet"
    pq.write_table(pa.Table.from_pylist([{**r, "nested": {"a": 1}} for r in ROWS]), path)
    where = wording.refused(
        DataError, lambda: prep(path, config(columns=columns)), file=str(path)
    ).where
    assert set(where) == {
        "file",
        *(f"column {name}" for name in columns if name not in ("words", "shop")),
    }
    (tmp_path / "t.csv").write_text(csv_text())
    other = config(columns=TEXT_COLUMNS, format={"delimiter": ";"})
    assert wording.refused(DataError, lambda: prep(tmp_path / "t.csv", other)).hint
    texts = config(columns={"shop": {"kind": "continuous"}})
    whole = partial(prep, tmp_path / "t.csv", texts, block_bytes=1 << 20)
    assert wording.refused(DataError, whole, line=2).hint


@pytest.mark.parametrize(
    ("column", "value"), [("stars", None), ("price", Decimal("-1.25")), ("is_new", None)]
)
def test_a_bad_value_of_parquet_is_located(
    prep: Callable[..., PrepResult], tmp_path: Path, column: str, value: Any, wording: Wording
) -> None:
    columns = {**COLUMNS, "price": {"kind": "continuous", "fill": 0, "log": True}}
    rows = [{**r, "price": abs(r["price"] or 0)} for r in ROWS]
    rows[53][column] = value
    path = write_parquet(tmp_path / "t.parquet", rows)
    error = wording.refused(
        DataError, partial(prep, path, config(columns=columns), block_bytes=256 * 24)
    )
    groups = {"file": str(path), "row groups": "6-8"}
    assert error.where == {**groups, "row (from 0)": 53, "column": column}


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("s1,12x,2024-03-01 07:30,true,a|b,5", "bad price"),
        ("s1,1,01.03.2024,true,a,5", "bad at"),
        ("s1,1,2024-03-01,perhaps,a,5", "bad is_new"),
        ("s1,1,2024-03-01,true,a,", "no label"),
        ("s1,1,2024-03-01,true", "wrong number of fields"),
    ],
)
def test_a_bad_line_is_located_or_left_out(
    prep: Callable[..., PrepResult], tmp_path: Path, line: str, kind: str, wording: Wording
) -> None:
    path, lines = tmp_path / "t.csv", csv_text().splitlines(keepends=True)
    lines[70:70] = ["\n", line + "\n"]  # the 72nd line
    path.write_text("".join(lines))
    features = config(columns=TEXT_COLUMNS)
    wording.refused(DataError, lambda: prep(path, features), file=str(path), line=72, content=line)
    result = prep(path, features, skip_bad_lines=True, max_bad=0.02)
    assert result.bad_lines.by_kind == {kind: 1}
    assert result.bad_lines.examples[0].line == 72
    assert_equal_to_naive(written(result.out / "train"), ROWS)


def test_bytes_that_are_no_text_and_values_over_several_lines_are_located(
    prep: Callable[..., PrepResult], tmp_path: Path, wording: Wording
) -> None:
    features, path = config(columns=TEXT_COLUMNS), tmp_path / "t.csv"
    text = csv_text().encode()
    path.write_bytes(text.replace(b"only-41", b"only-\xff"))
    assert wording.refused(DataError, lambda: prep(path, features), line=43).hint
    path.write_bytes(text.replace(b"only-41", b'"only\n41"'))
    for probed in (1000, 10):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(text_head, "_PROBED_LINES", probed)
            whole = partial(prep, path, features, block_bytes=1 << 20)
            wording.refused(DataError, whole, line=43)


# Text that tasks could not cut at line ends.


def test_encodings_whose_line_ends_are_no_bytes_are_refused_at_once(
    tmp_path: Path, wording: Wording
) -> None:
    path = tmp_path / "rows.csv"
    for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"):
        path.write_bytes(csv_text(ROWS[:20]).encode(encoding))
        wording.refused(DataError, lambda: look_at(str(path), path.stat().st_size, FormatSpec()))


def test_a_value_over_several_lines_is_refused_before_rows_are_read(
    tmp_path: Path, wording: Wording
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('a,b\n1,x\n2,"one\ntwo\nthree"\n3,"5"" pipe"\n')
    size = path.stat().st_size
    wording.refused(DataError, lambda: look_at(str(path), size, FormatSpec()), line=3)
    assert look_at(str(path), size, FormatSpec(quote=None)).types
    path.write_text('a,b\n1,5" pipe\n2,x"y\n')  # quotes inside of a value are text
    assert look_at(str(path), path.stat().st_size, FormatSpec()).types


def test_names_that_no_file_can_have_are_refused_before_a_row_is_read(wording: Wording) -> None:
    name = "x" * 201
    one = {"kind": "categorical", "domain": name}
    for columns in ({"p": one, "q": one}, {name: one}):
        wording.refused(SpecError, partial(config, columns=columns))
    wording.refused(InputError, lambda: Workflow((ColumnGroup((name,), (Categorify(),)),)))


def test_tags_of_a_document_reach_the_schema_and_models_of_two_sides(
    prep: Callable[..., PrepResult], tmp_path: Path
) -> None:
    columns = {
        "shop": {"kind": "categorical", "tags": ["user_id"]},
        "is_new": {"kind": "continuous", "tags": ["item"]},
        "hour": {"kind": "categorical", "from": "at", "as": "hour", "tags": ["item_id"]},
    }
    path = write_parquet(tmp_path / "rows.parquet")
    out = prep(path, config(columns=columns)).out
    again = prep(path, None, saved_workflow=out / "workflow", out=tmp_path / "again").out
    schema = Schema.load(again / "schema.pbtxt")
    assert schema["shop"].tags == ("categorical", "user_id")
    assert blueprint_of(schema, TwoTowerSpec(kind="two_tower")).inputs is not None


def test_parquet_that_is_read_as_it_is_may_repeat_other_columns(
    tmp_path: Path, wording: Wording
) -> None:
    path = str(tmp_path / "clicks.parquet")
    columns = [pa.array([0, 1])] * 3
    pq.write_table(pa.Table.from_arrays(columns, names=["label", "x", "x"]), path)
    wording.refused(DataError, lambda: look_at(path, 1, FormatSpec()))
    features = FeatureConfig.built_in(Workflow(()), TextLayout(), False, ())
    look_at(path, 1, features.document.format).check(features)
