"""What values become on their way to training rows, whatever type and file they come in."""

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal as D
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from wording import Wording

from distrain.errors import DataError
from distrain.predict.side_columns import common_type, side_columns
from distrain.prep import (
    Categorify,
    ColumnGroup,
    FeatureConfig,
    Normalize,
    PrepRequest,
    PrepResult,
    Workflow,
    prepare,
)
from distrain.prep.features.inference.infer import infer_features
from distrain.prep.operators.numbers import Moments
from distrain.prep.operators.spelling import texts_of
from distrain.storage.inputs import list_inputs

Y = [0, 1, 1, 0]


@pytest.fixture
def prep(tmp_path: Path, client: Any) -> Callable[..., PrepResult]:
    """Prepare tables, each a parquet file, or files as they are."""

    def run(*tables: Any, out: str = "out", **settings: Any) -> PrepResult:
        files = []
        for number, table in enumerate(tables):
            files.append(table if isinstance(table, Path) else tmp_path / f"{out}-{number}.parquet")
            if isinstance(table, pa.Table):
                pq.write_table(table, files[-1])
        document = {
            name: settings.pop(name) for name in ("columns", "split", "joins") if name in settings
        }
        if document:
            target = settings.pop("target", "y")
            settings["features"] = FeatureConfig.parse({"target": target, **document})
        request = PrepRequest(tuple(files), tmp_path / out, overwrite=True, **settings)
        return prepare(request, client)

    return run


def written(folder: Path, split: str = "train") -> dict[str, list[Any]]:
    return pa.concat_tables(map(pq.read_table, sorted((folder / split).iterdir()))).to_pydict()


def kept(folder: Path, column: str) -> list[Any]:
    return kept_in(folder / "workflow", column)


def kept_in(workflow: Path, column: str) -> list[Any]:
    return pq.read_table(workflow / "categories" / f"unique.{column}.parquet")[column].to_pylist()


CATEGORY = {"kind": "categorical"}
TEXT = {"kind": "categorical", "as": "text"}


@pytest.mark.parametrize(
    ("forms", "text"),
    [
        (
            [
                pa.array([D("1.50")], pa.decimal128(7, 2)),
                pa.array([D("1.5")], pa.decimal256(50, 5)),
                pa.array([D("1.5")], pa.decimal128(2, 1)),
                pa.array([1.5]),
                pa.array([1.5], pa.float32()),
            ],
            "1.5",
        ),
        (
            [
                pa.array([D(5000)], pa.decimal128(7, -3)),
                pa.array([D(5000)], pa.decimal128(38, 2)),
                pa.array([5000], pa.int16()),
                pa.array([5000], pa.uint64()),
                pa.array([5000.0]),
            ],
            "5000",
        ),
        ([pa.array([1e16]), pa.array([10**16])], "10000000000000000"),
        ([pa.array([1e-7]), pa.array([D("1E-7")], pa.decimal128(9, 8))], "0.0000001"),
        ([pa.array([-0.0]), pa.array([0]), pa.array([D(0)], pa.decimal128(9, 8))], "0"),
        (
            [pa.array([1500], pa.timestamp("ms")), pa.array([1_500_000_000], pa.timestamp("ns"))],
            "1970-01-01 00:00:01.5",
        ),
        (
            [
                pa.array([0], pa.timestamp("s", "UTC")),
                pa.array([0], pa.timestamp("us", "Europe/Berlin")),
            ],
            "1970-01-01 00:00:00Z",
        ),
        ([pa.array([1], pa.date32()), pa.array([86_400_000], pa.date64())], "1970-01-02"),
        ([pa.array([5000], pa.time32("ms")), pa.array([5_000_000], pa.time64("us"))], "00:00:05"),
        ([pa.array([b"x"]), pa.array(["x"]), pa.array(["x"], pa.large_string())], "x"),
    ],
)
def test_a_value_has_one_spelling_whatever_its_type(forms: list[pa.Array], text: str) -> None:
    assert [texts_of(form).to_pylist() for form in forms] == [[text]] * len(forms)


def test_equal_values_of_all_files_get_one_id_join_one_row_and_stay_on_one_side(
    prep: Callable[..., PrepResult], tmp_path: Path
) -> None:
    (tmp_path / "shops.csv").write_text("shop,town\n5,Bonn\n7,Kiel\n")
    when = [dt.datetime(2024, 5, 1, 10), dt.datetime(2024, 5, 2, 11)]

    def table(scale: int, unit: str) -> pa.Table:
        numbers = [D(n) for n in (5, 7)] + [D(n) for n in range(10, 40)]
        return pa.table(
            {
                "shop": pa.array(numbers, pa.decimal128(12, scale)),
                "at": pa.array(when * 16, pa.timestamp(unit)),
                "y": [0, 1] * 16,
            }
        )

    out = prep(
        *(table(scale, unit) for scale, unit in ((0, "ms"), (2, "us"), (5, "ns"))),
        joins=[{"file": str(tmp_path / "shops.csv"), "key": "shop", "columns": ["town"]}],
        split={"by": "hash", "column": "shop", "share": 0.5},
        columns={
            "shop": CATEGORY,
            "number": {"from": "shop", "kind": "continuous"},
            "at": TEXT,
            "town": CATEGORY,
        },
    ).out
    train, valid = written(out), written(out, "valid")
    assert not set(train["number"]) & set(valid["number"])
    assert len(set(train["shop"])) == len(set(train["number"]))
    assert sorted(kept(out, "at")) == ["2024-05-01 10:00:00", "2024-05-02 11:00:00"]
    towns = [
        town
        for side in (train, valid)
        for n, town in zip(side["number"], side["town"], strict=True)
        if n in (5, 7)
    ]
    assert len(towns) == 6
    assert 1 not in towns


@pytest.mark.parametrize("spelling", [None, 2])
def test_a_workflow_of_another_spelling_is_refused(
    tmp_path: Path, spelling: int | None, wording: Wording
) -> None:
    table = pa.table({"price": ["1.50", "2"]})
    Workflow((ColumnGroup(("price",), (Categorify(),)),)).fit([table]).save(tmp_path)
    document = json.loads((tmp_path / "workflow.json").read_text())
    (settings,) = document["groups"][0]["operators"]
    assert settings.pop("spelling") == 3
    settings |= {} if spelling is None else {"spelling": spelling}
    (tmp_path / "workflow.json").write_text(json.dumps(document))
    wording.refused(DataError, partial(Workflow.load, tmp_path))


def int96_file(path: Path, times: list[dt.datetime], **more: Any) -> Path:
    """A file as Spark writes it: nanoseconds of the day, and the Julian day.

    Arrow's own writer counts nanoseconds since 1970, and so it writes other times, which are then
    replaced.
    """
    marks = [dt.datetime(1970 + n, 1, 1) for n in range(len(times))]
    table = pa.table({"at": pa.array(marks, pa.timestamp("us")), **more})
    pq.write_table(
        table,
        path,
        use_deprecated_int96_timestamps=True,
        compression="none",
        write_statistics=False,
    )
    content = path.read_bytes()
    for mark, time in zip(marks, times, strict=True):
        assert _int96(mark) in content
        content = content.replace(_int96(mark), _int96(time))
    path.write_bytes(content)
    return path


def _int96(time: dt.datetime) -> bytes:
    nanoseconds = ((time.hour * 60 + time.minute) * 60 + time.second) * 10**9
    day = time.toordinal() + 1_721_425
    return nanoseconds.to_bytes(8, "little") + day.to_bytes(4, "little")


def careless(*values: bytes) -> pa.Array:
    """Bytes that a file calls texts."""
    found = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(found), found.buffers())


FAR = [
    dt.datetime(2024, 5, 1, 10),
    dt.datetime(2024, 5, 2),
    dt.datetime(9999, 12, 31, 23),
    dt.datetime(1, 1, 1, 2),
]


def test_times_of_the_years_1_to_9999_are_themselves_however_they_are_stored(
    prep: Callable[..., PrepResult], tmp_path: Path
) -> None:
    columns = {part: {"from": "at", "kind": "continuous", "as": part} for part in ("year", "hour")}
    for file in (
        pa.table({"at": pa.array(FAR, pa.timestamp("us")), "y": [0, 1, 0, 1]}),
        int96_file(tmp_path / "int96.parquet", FAR, y=[0, 1, 0, 1]),
    ):
        split = {"by": "time", "column": "at", "from": "2024-05-02"}
        out = prep(file, columns={**columns, "at": TEXT}, split=split).out
        assert written(out)["year"] == [2024, 1]
        assert written(out)["hour"] == [10, 2]
        assert written(out, "valid")["year"] == [2024, 9999]
        assert sorted(kept(out, "at")) == ["0001-01-01 02:00:00", "2024-05-01 10:00:00"]


def test_far_times_are_kept_beside_scores_as_they_are(tmp_path: Path) -> None:
    file = str(int96_file(tmp_path / "int96.parquet", FAR))
    (batch,) = side_columns(file, ["at"], 10)
    assert batch["at"].to_pylist() == FAR
    assert common_type([file], "at") == pa.timestamp("us")


@pytest.mark.parametrize(
    ("values", "column"),
    [
        (
            [1714557600000000],
            {"as": "year", "epoch": "s"},
        ),
        (
            [1714557600000],
            {"as": "seconds", "epoch": "s"},
        ),
        ([2**62], {"as": "year", "epoch": "ms"}),
        (pa.array([2**62], pa.timestamp("us")), {"as": "month"}),
        (pa.array([2**31 - 1], pa.date32()), {"as": "day"}),
        (
            pa.array([2**62], pa.timestamp("us")),
            {"as": "text", "kind": "categorical"},
        ),
        ([2.0**63], {"as": "integer", "kind": "categorical"}),
        (pa.array([2**63], pa.uint64()), {"kind": "categorical"}),
        ([1e300], {}),
        ([1e300], {"normalize": True}),
        ([-1e39], {"clip": {"max": 5}}),
        ([b"a\xff"], {"kind": "categorical"}),
        (careless(b"\xff"), {"kind": "categorical"}),
    ],
)
def test_what_a_cast_would_change_is_an_error_with_file_and_row(
    prep: Callable[..., PrepResult],
    values: Any,
    column: dict[str, Any],
    wording: Wording,
) -> None:
    good = pa.array([None] * 3, values.type) if isinstance(values, pa.Array) else [None] * 3
    x = pa.concat_arrays([good, values]) if isinstance(values, pa.Array) else good + values
    spec = {"kind": "continuous", **column}
    if spec["kind"] == "continuous":
        spec["fill"] = 0
    caught = wording.refused(
        DataError, partial(prep, pa.table({"x": x, "y": Y}), columns={"x": spec})
    )
    assert str(caught.where["file"]).endswith("out-0.parquet")
    assert caught.where["row (from 0)"] == 3


@pytest.mark.parametrize(
    "line",
    [
        b'{"x": "\xff", "y": 1}',
        b'{"x": "\\ud800", "y": 1}',
        b'{"x": ' + b"[" * 99_999 + b"]" * 99_999 + b"}",
    ],
)
def test_json_that_is_no_text_is_a_bad_line(
    prep: Callable[..., PrepResult], tmp_path: Path, line: bytes, wording: Wording
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"x": "\\ud83d\\ude00", "y": 0}\n' + line + b'\n{"x": "a", "y": 1}\n')
    wording.refused(DataError, partial(prep, path, columns={"x": CATEGORY}), line=2)
    out = prep(path, columns={"x": CATEGORY}, skip_bad_lines=True, max_bad=0.5).out
    assert kept(out, "x") == ["a", "\U0001f600"]


@pytest.mark.parametrize(
    ("values", "document"),
    [
        (pa.array(Y, pa.duration("s")), {"target": "k"}),
        (
            pa.array(Y, pa.time32("s")),
            {"split": {"by": "hash", "column": "k", "share": 0.5}},
        ),
        (
            pa.array(Y, pa.duration("s")),
            {"joins": [{"file": "side.parquet", "key": "k", "columns": ["z"]}]},
        ),
        (
            pa.array(Y, pa.timestamp("s")),
            {"split": {"by": "column", "column": "k", "equals": 1}},
        ),
    ],
)
def test_a_type_that_cannot_be_used_is_told_before_rows_are_read(
    prep: Callable[..., PrepResult],
    tmp_path: Path,
    values: pa.Array,
    document: dict[str, Any],
    wording: Wording,
) -> None:
    pq.write_table(pa.table({"k": [7], "z": ["a"]}), tmp_path / "side.parquet")
    for join in document.get("joins", ()):
        join["file"] = str(tmp_path / "side.parquet")
    rows = pa.table({"x": ["a"] * 4, "k": values, "y": Y})
    wording.refused(DataError, partial(prep, rows, **{"columns": {"x": CATEGORY}, **document}))


def test_numbers_beyond_float32_are_bounded_by_clip_and_log(
    prep: Callable[..., PrepResult],
    wording: Wording,
) -> None:
    table = pa.table({"x": [1e300, 0.0, 1.0, 2.0], "y": Y})
    columns = {
        "clipped": {"from": "x", "kind": "continuous", "clip": {"max": 9}},
        "logs": {"from": "x", "kind": "continuous", "log": True},
    }
    found = written(prep(table, columns=columns).out)
    assert found["clipped"][0] == 9
    assert found["logs"][0] == pytest.approx(np.log1p(1e300), rel=1e-6)
    wording.refused(DataError, lambda: Normalize().finish(Moments.of(np.array([1e300, 0.0]))))


NULLS = pa.table(
    {
        "x": pa.nulls(4),
        "tags": pa.array([[], None, [None], []], pa.list_(pa.null())),
        "n": pa.nulls(4),
        "y": Y,
    }
)
VALUES = {
    "integers": ([5, 7, 5, 5], [[1], [2, 1], [], None]),
    "texts": (["a", "b", "a", "a"], [["u"], ["v", "u"], [], None]),
    "decimals": ([D(5), D(7), D(5), D(5)], [["u"], ["v", "u"], [], None]),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", VALUES)
def test_a_file_of_nulls_is_of_any_type_in_any_place(
    prep: Callable[..., PrepResult], kind: str
) -> None:
    x, tags = VALUES[kind]
    full = pa.table({"x": x, "tags": tags, "n": [1.0, 2.0, 3.0, 4.0], "y": Y})
    columns = {"x": CATEGORY, "tags": CATEGORY, "n": {"kind": "continuous", "fill": 0}}
    of_full, of_nulls = ([3, 4, 3, 3], [[3], [4, 3], [], []]), ([1] * 4, [[], [], [1], []])
    for order in ((NULLS, full), (full, NULLS)):
        out = prep(*order, columns=columns).out
        found = written(out)
        expected = [of_nulls if table is NULLS else of_full for table in order]
        assert found["x"] == expected[0][0] + expected[1][0]
        assert found["tags"] == expected[0][1] + expected[1][1]
    for day in (NULLS, full):
        for update in (False, True):
            later = prep(day, out="later", saved_workflow=out / "workflow", update=update).out
            assert written(later)["x"] == (of_nulls if day is NULLS else of_full)[0]
    # What was fitted on nulls alone knows no value, and learns those of any type.
    empty = prep(NULLS, out="empty", columns=columns).out
    later = prep(full, out="later", saved_workflow=empty / "workflow").out
    assert written(later)["x"] == [2] * 4
    later = prep(full, out="later", saved_workflow=empty / "workflow", update=True).out
    assert written(later)["x"] == [3, 4, 3, 3]
    assert kept(later, "x") == kept(out, "x")


def test_what_is_inferred_can_be_prepared(prep: Callable[..., PrepResult], tmp_path: Path) -> None:
    wide = [2**64 - 1, 2**63, 5, None] * 20
    table = pa.table(
        {
            "user_id": pa.array(wide, pa.uint64()),
            "shop": pa.array([b"a", b"b", b"a", None] * 20),
            "key": pa.array([1e19, 2e19, 1e19, None] * 20),
            "size": [1e300, 2.5, 3.5, -1e300] * 20,
            "far": pa.array([2**62] * 80, pa.timestamp("us")),
            "raw": pa.array([b"\xff\xfe", b"\xff"] * 40),
            "ids": pa.array([[2**63, 1], [2]] * 40, pa.list_(pa.uint64())),
            "long_id": [f"{10**17 + n % 5 * 100}" for n in range(80)],
            "zone": pa.array(range(80), pa.timestamp("us", "Nowhere/Land")),
            "when": pa.array([[n] for n in range(80)], pa.list_(pa.timestamp("us"))),
            "parts": [[{"a": n}] for n in range(80)],
            "y": Y * 20,
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    inferred = infer_features(list_inputs(str(tmp_path / "t.parquet")))
    assert set(inferred.left_out) == {"far", "raw", "when", "parts"}
    features = FeatureConfig(inferred.features.without_split().document)
    found = written(prep(tmp_path / "t.parquet", features=features).out)
    assert len(set(found["user_id"])) == 4
    assert len(set(found["key"])) == 3
