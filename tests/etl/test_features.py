"""Any table, by a features document: what is read of it, and what is refused."""

import datetime
import gzip
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given, settings, strategies as st
from pydantic import VERSION

import distrain.cluster
from distrain.cli.data.prep import command
from distrain.errors import DataError, InputError, SpecError
from distrain.etl import (
    Categorify,
    ColumnGroup,
    FeatureConfig,
    PrepRequest,
    PrepResult,
    TextLayout,
    Workflow,
    prepare,
)
from distrain.etl.features import text_head
from distrain.etl.features.document import FormatSpec
from distrain.etl.features.staging import StagingTask, stage_rows
from distrain.etl.features.table_file import look_at
from distrain.etl.parts import Part, read_part
from distrain.models import blueprint_of
from distrain.schema import Schema
from distrain.spec import NcfSpec, TwoTowerSpec, shown

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
    def cell(value: Any) -> str:
        if value is None:
            return ""
        if isinstance(value, bool):
            return str(value).lower()
        text = "|".join(value) if isinstance(value, list) else str(value)
        if delimiter in text or '"' in text:
            return '"' + text.replace('"', '""') + '"'
        return text

    lines = [delimiter.join(rows[0]), *(delimiter.join(map(cell, r.values())) for r in rows)]
    return "".join(line + "\n" for line in lines)


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


@pytest.mark.parametrize(
    ("target", "label"),
    [
        ("bit", [1, 0, 1]),
        ("truth", [1, 0, 1]),
        ({"column": "stars", "above": 2}, [1, 0, 0]),
        ({"column": "stars", "below": 2}, [0, 1, 0]),
        ({"column": "stars", "at_most": 2}, [0, 1, 1]),
        ({"column": "paid", "equals": "yes"}, [1, 0, 0]),
        ({"column": "paid", "one_of": ["no", "yes"]}, [1, 1, 0]),
        ({"column": "truth", "equals": False}, [0, 1, 0]),
        ({"column": "stars", "one_of": [5, 1]}, [1, 1, 0]),
    ],
)
def test_targets(
    prep: Callable[..., PrepResult], tmp_path: Path, target: Any, label: list[int]
) -> None:
    rows = {
        "bit": [1, 0, 1],
        "truth": [True, False, True],
        "stars": [5, 1, 2],
        "paid": ["yes", "no", "later"],
        "x": ["a", "a", "b"],
    }
    pq.write_table(pa.table(rows), tmp_path / "t.parquet")
    pa_csv.write_csv(pa.table(rows), tmp_path / "t.csv")
    features = config(target=target, columns={"x": {"kind": "categorical"}})
    for name in ("t.parquet", "t.csv"):
        out = prep(tmp_path / name, features, out=tmp_path / f"out-{name}").out
        assert written(out / "train")["label"].to_pylist() == label


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
    rows = {"y": [0, 1] * 2000, "user": list(range(4000))}
    pq.write_table(pa.table(rows), tmp_path / "t.parquet", row_group_size=500)
    pa_csv.write_csv(pa.table(rows), tmp_path / "t.csv")
    columns = {"id": {"kind": "continuous", "from": "user"}}
    split = {"by": "hash", "column": "user", "share": 0.2}
    features = config(target="y", split=split, columns=columns)
    found = []
    for name in ("t.parquet", "t.csv"):
        result = prep(tmp_path / name, features, out=tmp_path / f"out-{name}", block_bytes=20_000)
        assert result.valid is not None
        assert 700 < result.valid.num_rows < 900
        found.append(written(result.out / "valid")["id"].to_pylist())
    assert found[0] == found[1]


def test_what_is_fitted_never_sees_validation_rows(
    prep: Callable[..., PrepResult], tmp_path: Path
) -> None:
    cut = START + datetime.timedelta(hours=5 * 60)
    split = {"by": "time", "column": "at", "from": cut.isoformat()}
    result = prep(write_parquet(tmp_path / "t.parquet"), config(split=split))
    assert result.valid is not None
    assert (result.train.num_rows, result.valid.num_rows) == (60, 30)
    assert_equal_to_naive(written(result.out / "train"), ROWS[:60])


@pytest.mark.parametrize("split", [{"by": "rows", "last": 20}, {"by": "fraction", "last": 0.25}])
def test_the_last_rows(
    prep: Callable[..., PrepResult], tmp_path: Path, split: dict[str, Any]
) -> None:
    result = prep(write_parquet(tmp_path / "t.parquet"), config(split=split))
    last = 20 if split["by"] == "rows" else round(NUM_ROWS * 0.25)
    assert result.valid is not None
    assert result.valid.num_rows == last
    assert_equal_to_naive(written(result.out / "train"), ROWS[:-last])


def test_a_split_that_gives_one_side_nothing_is_told(
    prep: Callable[..., PrepResult], tmp_path: Path
) -> None:
    path = write_parquet(tmp_path / "t.parquet")
    pq.write_table(pq.read_table(path).append_column("kind", [["s"] * NUM_ROWS]), path)
    for equals, side in (("absent", "validation"), ("s", "training")):
        split = {"by": "column", "column": "kind", "equals": equals}
        with pytest.raises(DataError, match=f"no {side} rows: split by column"):
            prep(path, config(split=split))
    with pytest.raises(InputError, match="the features document has a split"):
        prep(path, config(split=split), valid_rows=3)


# Mistakes.


def test_all_mistakes_of_a_document_are_told_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        FeatureConfig.parse(
            {
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
        )
    told = caught.value.message.split("\n")
    for wanted in (
        "version: input should be 1, not 2",
        "target: at_least and below are two comparisons; give one",
        "split.column: required, but missing",
        "split.colum: unknown key; did you mean 'column'?",
        "split.from: a time (2024-05-01, 2024-05-01T12:00:00) or a number is needed",
        "format.delimiter: string should have at most 1 character",
        "columns.shop.freq_treshold: unknown key; did you mean 'freq_threshold'?",
        "columns.price.kind: 'continous' is no kind; did you mean 'continuous'? (allowed: "
        "categorical, continuous)",
        "columns.label: the target is written as 'label'",
        "columns.stars: log(1 + x) of fill -3 does not exist",
        "columns.stars: 'stars' is the target, and a model would see the answer",
        "columns.a/b: as: number makes no categories",
        "columns.'a/b': a file is named after it",
        "colums: unknown key; did you mean 'columns'?",
    ):
        assert any(line.startswith(wanted) for line in told), (wanted, told)
    assert len(told) == 14, told


def test_the_target_is_a_feature_only_where_that_is_said() -> None:
    columns = {"answer": {"kind": "continuous", "from": "stars"}}
    with pytest.raises(SpecError, match=r"columns\.answer: 'stars' is the target"):
        config(columns=columns)
    named = config(target={"column": "stars", "above": 2, "is_feature": True}, columns=columns)
    assert named.workflow().columns == ("answer",)


def test_columns_of_a_domain_share_a_vocabulary_or_are_refused() -> None:
    item = {"kind": "categorical", "domain": "item"}
    columns = {"item": item, "seen": {**item, "list_slice": -5}}
    assert config(columns=columns).workflow().domains == dict.fromkeys(columns, "item")
    with pytest.raises(SpecError, match=r"columns\.seen: freq_threshold, max_size, num_buckets"):
        config(columns={**columns, "seen": {**item, "max_size": 3}})


@pytest.mark.skipif(VERSION.startswith("2.9."), reason="pydantic 2.9 writes schemas otherwise")
def test_the_json_schema_is_published() -> None:
    assert json.loads(PUBLISHED.read_text()) == FeatureConfig.json_schema(), (
        "write it anew, as docs/any-table.md says"
    )


def test_a_saved_document_says_the_same(tmp_path: Path) -> None:
    split = {"by": "time", "column": "at", "from": datetime.date(2024, 1, 1)}
    features = config(split=split, format={"null_values": ["", "NA"]})
    features.save(tmp_path / "features.yaml")
    assert FeatureConfig.load(tmp_path / "features.yaml") == features


def test_all_columns_that_cannot_be_used_are_named(
    prep: Callable[..., PrepResult], tmp_path: Path
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
    table = pa.Table.from_pylist([{**r, "nested": {"a": 1}} for r in ROWS])
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(DataError, match="5 of 8 columns cannot be used") as caught:
        prep(tmp_path / "t.parquet", config(columns=columns))
    where = caught.value.where
    assert where.pop("file") == str(tmp_path / "t.parquet")
    assert where["column shp"] == "missing; did you mean 'shop'?"
    assert str(where["column at"]).startswith("timestamp[us]; say in `as` what is made of it")
    assert str(where["column price"]).endswith("not lists, which list_slice cuts")
    assert where["column is_new"] == "bool, not times; epoch says what they count"
    assert "neither numbers, texts nor times" in str(where["column nested"])


def test_a_delimiter_that_the_text_lacks_and_texts_taken_as_numbers_are_explained(
    prep: Callable[..., PrepResult], tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text(csv_text())
    with pytest.raises(DataError) as caught:
        prep(tmp_path / "t.csv", config(columns=TEXT_COLUMNS, format={"delimiter": ";"}))
    assert "one field with the delimiter ';'" in str(caught.value.hint)
    columns = {"shop": {"kind": "continuous"}}
    with pytest.raises(DataError, match="not a number") as caught:
        prep(tmp_path / "t.csv", config(columns=columns))
    assert "kind: categorical" in str(caught.value.hint)


def changed(number: int, **values: Any) -> list[dict[str, Any]]:
    return [{**r, **values} if n == number else r for n, r in enumerate(ROWS)]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"stars": None}, "stars is missing, but each row needs a label"),
        ({"price": Decimal("-1.25")}, "price is -1.25, of which log(1 + x) does not exist"),
        ({"is_new": None}, "is_new is missing, and nothing stands for it"),
    ],
)
def test_a_bad_value_of_parquet_is_located(
    prep: Callable[..., PrepResult], tmp_path: Path, values: dict[str, Any], said: str
) -> None:
    columns = {**COLUMNS, "price": {"kind": "continuous", "fill": 0, "log": True}}
    rows = [{**r, "price": abs(r["price"] or 0)} for r in changed(53, **values)]
    if "price" in values:
        rows[53]["price"] = values["price"]
    path = write_parquet(tmp_path / "t.parquet", rows)
    with pytest.raises(DataError) as caught:
        prep(path, config(columns=columns), block_bytes=256 * 24)
    assert caught.value.message == said
    assert caught.value.where == {
        "file": str(path),
        "row groups": "6-8",
        "row (from 0)": 53,
        "column": said.split()[0],
    }


@pytest.mark.parametrize(
    ("line", "problem", "kind"),
    [
        ("s1,12x,2024-03-01 07:30,true,a|b,5", "price is '12x', not a number", "bad price"),
        ("s1,1,01.03.2024,true,a,5", "at is '01.03.2024', not a time as in ISO 8601", "bad at"),
        ("s1,1,2024-03-01,perhaps,a,5", "is_new is 'perhaps', not a number", "bad is_new"),
        ("s1,1,2024-03-01,true,a,", "stars is missing, but each row needs a label", "no label"),
        ("s1,1,2024-03-01,true", "4 fields, not 6", "wrong number of fields"),
    ],
)
def test_a_bad_line_is_located_or_left_out(
    prep: Callable[..., PrepResult], tmp_path: Path, line: str, problem: str, kind: str
) -> None:
    lines = csv_text().splitlines(keepends=True)
    lines[70:70] = ["\n", line + "\n"]  # the 72nd line
    (tmp_path / "t.csv").write_text("".join(lines))
    features = config(columns=TEXT_COLUMNS)
    with pytest.raises(DataError) as caught:
        prep(tmp_path / "t.csv", features)
    assert caught.value.message == problem
    assert caught.value.where == {"file": str(tmp_path / "t.csv"), "line": 72, "content": line}
    result = prep(tmp_path / "t.csv", features, skip_bad_lines=True, max_bad=0.02)
    assert result.bad_lines.by_kind == {kind: 1}
    assert result.bad_lines.examples[0].line == 72
    assert_equal_to_naive(written(result.out / "train"), ROWS)


def test_bytes_that_are_no_text_and_values_over_several_lines_are_told(
    prep: Callable[..., PrepResult], tmp_path: Path
) -> None:
    features = config(columns=TEXT_COLUMNS)
    text = csv_text().encode()
    (tmp_path / "t.csv").write_bytes(text.replace(b"only-41", b"only-\xff"))
    with pytest.raises(DataError, match="not UTF-8") as caught:
        prep(tmp_path / "t.csv", features)
    assert caught.value.where["line"] == 43
    assert caught.value.hint is not None
    assert "latin-1" in caught.value.hint
    (tmp_path / "t.csv").write_bytes(text.replace(b"only-41", b'"only\n41"'))
    for probed, said in ((1000, "a quoted value goes on"), (10, "lines that are no rows")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(text_head, "_PROBED_LINES", probed)
            with pytest.raises(DataError, match=said) as caught:
                prep(tmp_path / "t.csv", features, block_bytes=1 << 20)
        assert caught.value.where["line"] == 43


# The command.


@pytest.fixture
def in_process(client: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    asked: list[Any] = []

    @contextmanager
    def open_cluster(request: Any) -> Iterator[Any]:
        asked.append(request)
        yield client

    monkeypatch.setattr(distrain.cluster, "open_cluster", open_cluster)
    return asked


def run(*arguments: object) -> Any:
    return CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=True)


def test_the_command_prepares_a_table_and_later_rows_the_same_way(
    in_process: list[Any], tmp_path: Path
) -> None:
    path = write_parquet(tmp_path / "t.parquet")
    config(split={"by": "rows", "last": 9}).save(tmp_path / "features.yaml")
    out = tmp_path / "out"
    result = run(path, "--config", tmp_path / "features.yaml", "--out", out)
    assert result.exit_code == 0, result.output
    assert "training rows       81 in 1 files" in result.output
    assert "validation rows     9 in 1 files" in result.output
    later = run(path, "--workflow", out / "workflow", "--out", tmp_path / "later")
    assert later.exit_code == 0, later.output
    first = written(out / "train")
    assert written(tmp_path / "later" / "train")[:81].equals(first)


def test_mistakes_are_found_before_a_cluster_starts(in_process: list[Any], tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "t.parquet")
    (tmp_path / "features.yaml").write_text("target: starz\ncolumns: {shp: {kind: categorical}}\n")
    options = ("--config", tmp_path / "features.yaml", "--out", tmp_path / "out")
    result = run(path, *options)
    assert isinstance(result.exception, DataError)
    assert result.exception.where["column starz"] == "missing; did you mean 'stars'?"
    assert result.exception.where["column shp"] == "missing; did you mean 'shop'?"
    assert run(path, *options, "--delimiter", ",").exit_code == 2
    (tmp_path / "features.yaml").write_text("target: {")
    assert isinstance(run(path, *options).exception, SpecError)
    assert isinstance(run(path, "--config", path / "x", "--out", "o").exception, SpecError)
    assert in_process == []


# Text that tasks could not cut at line ends.


@pytest.mark.parametrize(
    ("encoding", "name"),
    [("utf-16", "UTF-16"), ("utf-16-le", "UTF-16"), ("utf-16-be", "UTF-16"), ("utf-32", "UTF-32"),
     ("utf-32-le", "UTF-32")],
)  # fmt: skip
def test_encodings_whose_line_ends_are_no_bytes_are_told_at_once(
    tmp_path: Path, encoding: str, name: str
) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(csv_text(ROWS[:20]).encode(encoding))
    with pytest.raises(DataError, match=f"the text is {name}") as caught:
        look_at(str(path), path.stat().st_size, config().document.format)
    assert f"iconv -f {name} -t UTF-8" in str(caught.value)


def test_a_byte_order_mark_and_latin_1_are_read(prep: Any, tmp_path: Path) -> None:
    features = config(columns=TEXT_COLUMNS)
    wanted_path, marked_path = tmp_path / "plain.csv", tmp_path / "marked.csv"
    wanted_path.write_text(csv_text())
    marked_path.write_bytes(b"\xef\xbb\xbf" + csv_text().encode())
    wanted = prep(wanted_path, features, out=tmp_path / "wanted")
    found = prep(marked_path, features, out=tmp_path / "found")
    assert written(found.out / "train").equals(written(wanted.out / "train"))
    rows = [{**r, "shop": f"Café {r['shop']}"} for r in ROWS]
    wanted_path.write_text(csv_text(rows))
    marked_path.write_bytes(csv_text(rows).encode("latin-1"))
    wanted = prep(wanted_path, features, out=tmp_path / "wanted-2")
    latin = config(columns=TEXT_COLUMNS, format={"encoding": "latin-1"})
    found = prep(marked_path, latin, out=tmp_path / "found-2")
    assert written(found.out / "train").equals(written(wanted.out / "train"))


def test_a_value_over_several_lines_is_told_before_rows_are_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('a,b\n1,x\n2,"one\ntwo\nthree"\n3,"5"" pipe"\n')
    with pytest.raises(DataError, match="a quoted value goes on over 3 lines") as caught:
        look_at(str(path), path.stat().st_size, config().document.format)
    assert caught.value.where["line"] == 3
    unquoted = config(format={"quote": None}).document.format
    assert look_at(str(path), path.stat().st_size, unquoted).types
    path.write_text('a,b\n1,5" pipe\n2,x"y\n')  # quotes inside of a value are text
    assert look_at(str(path), path.stat().st_size, config().document.format).types


@pytest.mark.parametrize(
    ("name", "problem"),
    [("item/sku", "cannot hold '/'"), ("a\0b", r"cannot hold '\x00'"), ("x" * 201, "201"),
     ("商" * 90, "270")],
)  # fmt: skip
def test_names_that_no_file_can_have_are_refused_before_a_row_is_read(
    name: str, problem: str
) -> None:
    one = {"kind": "categorical", "domain": name}
    for columns, where in (({"p": one, "q": one}, "columns.p.domain"), ({name: one}, shown(name))):
        with pytest.raises(SpecError) as caught:
            config(columns=columns)
        assert problem in str(caught.value)
        assert where in str(caught.value)
    with pytest.raises(InputError) as refused:
        Workflow((ColumnGroup((name,), (Categorify(),)),))
    assert problem in str(refused.value)


def test_tags_of_a_document_reach_the_schema_and_models_of_two_sides(
    prep: Callable[..., PrepResult], tmp_path: Path
) -> None:
    columns = {
        "shop": {"kind": "categorical", "tags": ["user_id"]},
        "is_new": {"kind": "continuous", "tags": ["item"]},
        "words": {"kind": "categorical"},
        "hour": {"kind": "categorical", "from": "at", "as": "hour", "tags": ["item_id"]},
    }
    path = write_parquet(tmp_path / "rows.parquet")
    out = prep(path, config(columns=columns)).out
    again = prep(path, None, saved_workflow=out / "workflow", out=tmp_path / "again").out
    for folder in (out, again):
        schema = Schema.load(folder / "schema.pbtxt")
        assert schema["shop"].tags == ("categorical", "user_id")
        assert blueprint_of(schema, TwoTowerSpec(kind="two_tower")).inputs is not None
        assert blueprint_of(schema, NcfSpec(kind="ncf")).inputs is not None
    for tag in ("target", "categorical", "User Id"):
        with pytest.raises(SpecError, match="is no tag of a feature"):
            config(columns={"shop": {"kind": "categorical", "tags": [tag]}})


@pytest.mark.parametrize("header", [True, False])
def test_a_saved_document_of_criteo_s_lines_says_whether_they_have_a_header(
    tmp_path: Path, header: bool
) -> None:
    text = {"kind": "criteo", "header": header}
    columns = {"C1": {"kind": "categorical"}}
    features = FeatureConfig.parse({"target": "label", "format": text, "columns": columns})
    features.save(tmp_path / "features.yaml")
    assert FeatureConfig.load(tmp_path / "features.yaml") == features


def test_parquet_that_is_taken_as_it_is_may_repeat_other_columns(tmp_path: Path) -> None:
    path = str(tmp_path / "clicks.parquet")
    columns = [pa.array([0, 1])] * 3
    pq.write_table(pa.Table.from_arrays(columns, names=["label", "x", "x"]), path)
    with pytest.raises(DataError, match="several columns are named 'x'"):
        look_at(path, 1, FormatSpec())
    features = FeatureConfig.built_in(Workflow(()), TextLayout(), False, ())
    look_at(path, 1, features.document.format).check(features)
