"""Columns that rows have from elsewhere than their file: side tables, names of folders."""

import gzip
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from wording import Wording

import distrain.prep.features.joins as joins_module
from distrain.errors import DataError
from distrain.loader.partition.footers import read_footers
from distrain.prep import (
    FeatureConfig,
    PrepRequest,
    PrepResult,
    infer_features,
    prepare as prepare_on,
)
from distrain.prep.features.file_checks import check_tables
from distrain.prep.features.partitions import partitions_of
from distrain.schema import ColumnSchema, Schema, Tags
from distrain.storage.inputs import list_inputs

SHOPS = ["a", "b,c", 'd"', "e\\f", None, "zz"]
SIDE = [  # the last is no row's, and `zz` has none
    {"shop": "a", "part": 1, "price": 2.5, "town": "x", "opened": "2024-01-05"},
    {"shop": "b,c", "part": 1, "price": None, "town": "y", "opened": "2024-02-06"},
    {"shop": 'd"', "part": 2, "price": 4.0, "town": None, "opened": "2024-03-07"},
    {"shop": "e\\f", "part": 2, "price": 0.5, "town": "x", "opened": "2024-04-08"},
    {"shop": "other", "part": 2, "price": 9.0, "town": "w", "opened": "2024-04-08"},
]
ROWS = [
    {"shop": SHOPS[n % 6], "part": (n % 6) // 2 + 1, "user": f"u{n % 4}", "clicked": n * 7 % 3 % 2}
    for n in range(60)
]
COLUMNS = {
    "user": {"kind": "categorical"},
    "town": {"kind": "categorical"},
    "cost": {"kind": "continuous", "from": "price", "fill": 1, "normalize": True},
    "weekday": {"kind": "categorical", "from": "opened", "as": "weekday"},
}


def wide(row: dict[str, Any]) -> dict[str, Any]:
    key = (row["shop"], row["part"])
    side = next((s for s in SIDE if (s["shop"], s["part"]) == key), {})
    return {**row, **{name: side.get(name) for name in ("price", "town", "opened")}}


def csv_bytes(rows: list[dict[str, Any]], delimiter: str = ",") -> bytes:
    def cell(value: Any) -> str:
        return "" if value is None else '"' + str(value).replace('"', '""') + '"'

    lines = [delimiter.join(rows[0]), *(delimiter.join(map(cell, r.values())) for r in rows)]
    return "".join(line + "\n" for line in lines).encode()


def save(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=7)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(csv_bytes(rows)))
    else:
        path.write_bytes(csv_bytes(rows))
    return path


def document(**changes: Any) -> dict[str, Any]:
    return {"target": "clicked", "columns": COLUMNS, **changes}


def join(file: Path, **changes: Any) -> dict[str, Any]:
    key, columns = ["shop", "part"], ["price", "town", "opened"]
    return {"file": str(file), "key": key, "columns": columns, **changes}


@pytest.fixture
def prepare(client: Any, tmp_path: Path) -> Callable[..., PrepResult]:
    def run(inputs: Path, features: FeatureConfig | None, out: str, **options: Any) -> PrepResult:
        options = {"block_bytes": 256, **options}
        request = PrepRequest((str(inputs),), tmp_path / out, features=features, **options)
        return prepare_on(request, client)

    return run


def rows_of(result: PrepResult, split: str = "train") -> pa.Table:
    files = sorted((result.out / split).glob("*.parquet"))
    return pa.concat_tables(pq.read_table(file) for file in files).combine_chunks()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "side"),
    [("t.csv.gz", "s.parquet"), ("t.parquet", "s.csv")],
)
def test_a_joined_table_is_prepared_as_one_that_was_joined_before(
    prepare: Any, tmp_path: Path, table: str, side: str
) -> None:
    path = save(tmp_path / table, ROWS)
    before = save(tmp_path / "wide.csv", [wide(row) for row in ROWS])
    features = FeatureConfig.parse(document(joins=[join(save(tmp_path / side, SIDE))]))
    split = {"by": "column", "column": "town", "equals": "x"}
    of_join = document(joins=features.document.model_dump()["joins"], split=split)
    wanted = prepare(before, FeatureConfig.parse(document(split=split)), "wanted")
    few = prepare(path, FeatureConfig.parse(of_join), "few")
    one = prepare(path, FeatureConfig.parse(of_join), "one", block_bytes=1 << 20)
    for found in (few, one):
        assert rows_of(found).equals(rows_of(wanted))
        assert rows_of(found, "valid").equals(rows_of(wanted, "valid"))
        assert found.cardinalities == wanted.cardinalities


def test_keys_may_have_other_names_and_come_from_an_earlier_join(
    prepare: Any, tmp_path: Path
) -> None:
    first = save(tmp_path / "first.csv", [{"id": "u1", "home": "x"}, {"id": "u2", "home": "y"}])
    second = save(tmp_path / "second.jsonl", [{"name": "x", "size": [1, 2]}, {"name": "q"}])
    joins = [
        {"file": str(first), "key": {"user": "id"}, "columns": {"town": "home"}},
        {"file": str(second), "key": {"town": "name"}, "columns": "size"},
    ]
    columns = {"size": {"kind": "categorical"}}
    features = FeatureConfig.parse(document(joins=joins, columns=columns))
    found = rows_of(prepare(save(tmp_path / "t.csv", ROWS), features, "out"))
    lengths = [len(items) for items in found["size"].to_pylist()]
    assert lengths == [2 if row["user"] == "u1" else 0 for row in ROWS]


def test_later_rows_are_joined_with_the_file_that_the_document_named(
    prepare: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    save(tmp_path / "side.csv", SIDE)
    path = tmp_path / "features.yaml"
    path.write_text(json.dumps(document(joins=[join(Path("side.csv"))])))
    table = save(tmp_path / "t.csv", ROWS)
    fitted = prepare(table, FeatureConfig.load(path), "out")
    later = tmp_path / "later"
    later.mkdir()
    monkeypatch.chdir(later)
    again = prepare(table, None, "again", saved_workflow=fitted.out / "workflow")
    assert rows_of(again).equals(rows_of(fitted))
    (tmp_path / "side.csv").unlink()
    wording.refused(
        DataError, partial(prepare, table, None, "gone", saved_workflow=fitted.out / "workflow")
    )


def test_side_tables_of_a_document_at_a_url_are_relative_to_its_folder() -> None:
    files = {
        "side.csv": "memory://orders/side.csv",
        "../shops/side.csv": "memory://shops/side.csv",
        "memory://side.csv": "memory://side.csv",
        "/data/side.csv": "/data/side.csv",
    }
    store = fsspec.filesystem("memory")
    joins = [
        {**join(Path()), "file": file, "columns": {f"c{number}": "x"}}
        for number, file in enumerate(files)
    ]
    store.pipe("/orders/features.json", json.dumps(document(joins=joins)).encode())
    loaded = FeatureConfig.load("memory://orders/features.json")
    store.rm("/orders", recursive=True)
    assert [one.file for one in loaded.document.joins] == list(files.values())


def test_a_side_table_that_cannot_be_joined_is_refused_before_a_cluster_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    files = list_inputs(str(save(tmp_path / "t.csv", ROWS)))
    side, twice = save(tmp_path / "s.csv", SIDE), save(tmp_path / "twice.csv", [*SIDE, SIDE[1]])
    for changes in (
        {"joins": [join(twice)]},
        {"joins": [join(side, columns=["prise"])]},
        {"joins": [join(side, columns={"user": "town"})]},
        {"joins": [join(side, key={"shopp": "shop", "part": "part"})]},
        {"partitions": {"day": "text"}, "columns": {"user": COLUMNS["user"]}},
    ):
        features = FeatureConfig.parse(document(**changes))
        wording.refused(DataError, partial(check_tables, files, features))
    monkeypatch.setattr(joins_module, "MOST_BYTES", 100)
    large = document(joins=[join(save(tmp_path / "large.csv", SIDE))])
    wording.refused(DataError, lambda: check_tables(files, FeatureConfig.parse(large)))


# Hive folders.

HIVE_COLUMNS = {
    "user": {"kind": "categorical"},
    "hour": {"kind": "categorical"},
    "weekday": {"kind": "categorical", "from": "day", "as": "weekday"},
    "land": {"kind": "categorical"},
}


def hive_row(number: int) -> dict[str, Any]:
    lands = ["DE", "Côte d'Ivoire/x=1", None]
    return {**ROWS[number], "day": f"2024-05-0{number // 20 + 1}", "hour": number // 10 % 2 + 8,
            "land": lands[number // 20]}  # fmt: skip


def save_hive(folder: Path, suffix: str) -> Path:
    rows = [hive_row(number) for number in range(60)]
    for first in range(0, 60, 10):
        day, hour, land = (rows[first][name] for name in ("day", "hour", "land"))
        place = "__HIVE_DEFAULT_PARTITION__" if land is None else quote(land, safe="")
        path = folder / f"day={day}" / f"hour={hour:02d}" / f"land={place}" / f"part-0{suffix}"
        save(path, ROWS[first : first + 10])
        (path.parent / "_SUCCESS").touch()
        (path.parent / ".part-0.crc").write_bytes(b"x")
    return folder


@pytest.mark.parametrize("suffix", [".parquet", ".csv.gz"])
def test_hive_folders_are_columns(prepare: Any, tmp_path: Path, suffix: str) -> None:
    folder = save_hive(tmp_path / "hive", suffix)
    split = {"by": "time", "column": "day", "from": "2024-05-03"}
    given = document(columns=HIVE_COLUMNS, split=split)
    found = prepare(folder, FeatureConfig.parse(given), "found")
    plain = save(tmp_path / "wide.parquet", [hive_row(number) for number in range(60)])
    wanted = prepare(plain, FeatureConfig.parse(given), "wanted")
    assert found.valid
    assert found.valid.num_rows == 20
    for part in ("train", "valid"):
        assert rows_of(found, part).equals(rows_of(wanted, part))


def test_folders_named_by_digits_are_integers_unless_one_has_a_leading_zero(
    prepare: Any, tmp_path: Path, wording: Wording
) -> None:
    folder = save_hive(tmp_path / "hive", ".parquet")
    paths = [file.path for file in list_inputs(str(folder))]
    for types, hour in (({}, "08"), ({"hour": "integer"}, 8)):
        (first, *_) = partitions_of(paths, types)
        assert (first["hour"].as_py(), first["day"].as_py()) == (hour, "2024-05-01")
    wording.refused(DataError, lambda: partitions_of(paths, {"day": "integer"}))
    split = {"by": "column", "column": "hour", "equals": "09"}
    given = document(columns=HIVE_COLUMNS, split=split, partitions={"hour": "text"})
    glob = tmp_path / "hive" / "day=2024-05-0[12]"
    found = prepare(glob, FeatureConfig.parse(given), "found")
    assert (found.train.num_rows, found.valid and found.valid.num_rows) == (20, 20)


def test_a_column_of_the_file_counts_before_that_of_its_folder(
    prepare: Any, tmp_path: Path
) -> None:
    path = save(tmp_path / "user=nobody" / "t.csv", ROWS)
    features = FeatureConfig.parse(document(columns={"user": {"kind": "categorical"}}))
    assert prepare(path, features, "out").cardinalities == {"user": 7}


def test_keys_above_the_table_are_no_columns(tmp_path: Path, wording: Wording) -> None:
    """For the ETL as for the loader: the unbroken run of folders at the file is the table's."""
    folder = tmp_path / "try=3" / "clicks" / "day=7"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"click": [0, 1], "I": [1.0, 2.0]}), folder / "part-0.parquet")
    (file,) = list_inputs(str(tmp_path))
    assert partitions_of([file.path], {}) == [{"day": pa.scalar(7, pa.int64())}]
    columns = [("try", Tags.CATEGORICAL), ("day", Tags.CATEGORICAL), ("I", Tags.CONTINUOUS)]
    schema = Schema((ColumnSchema("click", tags=(Tags.TARGET,)),
                     *(ColumnSchema(name, tags=(tag,)) for name, tag in columns)))  # fmt: skip
    wording.refused(DataError, partial(read_footers, file.path, schema, hive=True))
    table = read_footers(file.path, schema.remove(["try"]), hive=True)
    assert table.row_groups[0].constants == (("day", 7),)


def test_hive_folders_are_inferred(tmp_path: Path) -> None:
    for suffix in (".parquet", ".csv"):
        inferred = infer_features(list_inputs(str(save_hive(tmp_path / suffix[1:], suffix))))
        columns = inferred.features.document.columns
        assert {"user", "shop", "land", "hour"} <= set(columns) | set(inferred.left_out)
        assert any(column.source == "day" for column in columns.values())
        check_tables(list_inputs(str(tmp_path / suffix[1:])), inferred.features)
