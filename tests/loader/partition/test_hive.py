from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st
from wording import Wording

from distrain.errors import DataError
from distrain.loader.partition.footers import read_footers
from distrain.loader.partition.hive import read_constants
from distrain.loader.partition.table import Table
from distrain.loader.partition.wanted_columns import WantedColumn
from distrain.schema import ColumnSchema, Schema, Tags
from distrain.schema.folders import NULL_FOLDER, folder_values

SCHEMA = Schema(
    (
        ColumnSchema("clicked", tags=(Tags.TARGET,)),
        ColumnSchema("price", tags=(Tags.CONTINUOUS,)),
        ColumnSchema("day", tags=(Tags.CATEGORICAL,), cardinality=31),
    )
)

names = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=8)


@settings(deadline=None, max_examples=50)
@given(
    above=st.lists(st.sampled_from(["data", "run=4", "s3:", "", "a b"]), max_size=4),
    said=st.lists(st.tuples(names, st.one_of(names, st.just(""))), max_size=4),
)
def test_folders_are_read_back_as_they_were_written(
    above: list[str], said: list[tuple[str, str]]
) -> None:
    folders = [f"{quote(key, safe='')}={quote(value, safe='')}" for key, value in said]
    path = "/".join([*above, "table", *folders, "part=0.parquet"])
    assert folder_values(path) == tuple(said)


@settings(deadline=None, max_examples=50)
@given(number=st.integers(-(2**40), 2**40), limit=st.integers(1, 2**33))
def test_integers_become_ids_if_they_are_in_range(number: int, limit: int) -> None:
    constants, keys, problems = read_constants(f"t/x={number}/f", [WantedColumn("x", "id", limit)])
    assert keys == ("x",)
    if 0 <= number < min(limit, 2**31):
        assert (constants, problems) == ((("x", number),), [])
        assert type(constants[0][1]) is int
    else:
        assert constants == ()
        assert f"id {number} of column 'x' is not in 0.." in problems[0].message


@settings(deadline=None, max_examples=50)
@given(number=st.floats(allow_nan=True, allow_infinity=True))
def test_finite_numbers_become_values(number: float) -> None:
    constants, _, problems = read_constants(f"t/x={number!r}/f", [WantedColumn("x", "value")])
    if number in (float("inf"), float("-inf")) or number != number:
        assert "is not a finite number" in problems[0].message
    else:
        assert (constants, problems) == ((("x", number),), [])
        assert type(constants[0][1]) is float


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("id", "007", 7),
        ("id", "true", 1),
        ("id", "False", 0),
        ("value", "3", 3.0),
        ("value", "-1e3", -1000.0),
        ("value", "1%2E5", 1.5),
        ("label", "1", 1.0),
        ("label", "false", 0.0),
        ("weight", "0.25", 0.25),
    ],
)
def test_values_are_parsed_by_what_they_are_for(kind: Any, text: str, value: float) -> None:
    constants, _, problems = read_constants(f"t/x={text}/f", [WantedColumn("x", kind)])
    assert (constants, problems) == ((("x", value),), [])


@pytest.mark.parametrize(
    ("wanted", "folders", "message"),
    [
        (
            WantedColumn("x", "id"),
            "x=1.0",
            "column 'x' is '1.0' in the name of a folder, but an integer",
        ),
        (WantedColumn("x", "id"), "x=", "column 'x' is '' in the name of a folder, but an integer"),
        (WantedColumn("x", "id"), f"x={'9' * 5000}", "but an integer id is needed"),
        (WantedColumn("x", "id"), "x=a%20b", "column 'x' is 'a b'"),
        (WantedColumn("x", "value"), "x=2026-11-21", "but a number is needed"),
        (WantedColumn("x", "value"), "x=1_000", "but a number is needed"),
        (WantedColumn("x", "label"), "x=2", "label 'x' is 2.0, not 0 or 1"),
        (WantedColumn("x", "weight"), "x=-2", "weight 'x' is -2.0, not 0 or more"),
        (WantedColumn("x", "id", is_list=True), "x=2", "each row holds a list"),
        (WantedColumn("x", "id"), "x=1/y=3/x=2", "give column 'x' more than one value: 1, 2"),
        (WantedColumn("x", "id"), f"x={NULL_FOLDER}", "column 'x' is null"),
    ],
)
def test_what_folders_may_not_say(wanted: WantedColumn, folders: str, message: str) -> None:
    path = f"t/{folders}/f.parquet"
    constants, keys, (problem,) = read_constants(path, [wanted])
    assert (constants, keys) == ((), ("x",))
    assert message in problem.message
    assert problem.where == {"file": path, "column": "x"}
    assert problem.hint


def test_a_null_is_filled_where_nulls_are() -> None:
    wanted = [WantedColumn("a", "id", 5, fill_null=4), WantedColumn("b", "value", fill_null=0)]
    constants, _, problems = read_constants(f"b={NULL_FOLDER}/a={NULL_FOLDER}/f", wanted)
    assert (constants, problems) == ((("a", 4), ("b", 0.0)), [])
    assert type(constants[1][1]) is float


def write(path: Path, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {"clicked": [0, 1, 1], "price": [1.0, 2.0, 3.0], **columns}
    pq.write_table(
        pa.table({name: values for name, values in columns.items() if values is not None}),
        path,
        row_group_size=2,
    )


def groups(table: Table, folder: Path) -> list[tuple[Any, ...]]:
    return [
        (str(Path(g.file).relative_to(folder)), g.index, g.num_rows, g.constants)
        for g in table.row_groups
    ]


def test_a_column_comes_from_the_folders_where_the_file_lacks_it(
    tmp_path: Path, wording: Wording
) -> None:
    write(tmp_path / "day=10/source=web/a.parquet")
    write(tmp_path / "day=2/a.parquet")
    write(tmp_path / "plain.parquet", day=[0, 1, 2])
    for name in ("_SUCCESS", "_metadata", "day=2/_SUCCESS", "day=2/.a.parquet.crc"):
        (tmp_path / name).write_bytes(b"no data")
    expected = [
        ("day=2/a.parquet", 0, 2, (("day", 2),)),
        ("day=2/a.parquet", 1, 1, (("day", 2),)),
        ("day=10/source=web/a.parquet", 0, 2, (("day", 10),)),
        ("day=10/source=web/a.parquet", 1, 1, (("day", 10),)),
        ("plain.parquet", 0, 2, ()),
        ("plain.parquet", 1, 1, ()),
    ]
    assert groups(read_footers(str(tmp_path), SCHEMA, hive=True), tmp_path) == expected
    patterns = [f"{tmp_path}/day=2", f"{tmp_path}/day=*/**/a.parquet"]
    assert groups(read_footers(patterns, SCHEMA, hive=True), tmp_path) == expected[:4]
    wording.refused(DataError, lambda: read_footers(patterns, SCHEMA))


def test_the_fingerprint_covers_what_folders_say(tmp_path: Path) -> None:
    def fingerprint(folder: str, *, hive: bool = True, **columns: Any) -> str:
        write(tmp_path / folder / "x.parquet", **columns)
        return read_footers(str(tmp_path / folder), SCHEMA, hive=hive).fingerprint

    assert fingerprint("one/day=1") == fingerprint("other/day=1") == fingerprint("one/day=01")
    assert fingerprint("one/day=1") != fingerprint("one/day=2")
    ids = {"day": [1, 1, 1]}
    plain = fingerprint("plain", **ids)
    assert fingerprint("source=web", **ids) == fingerprint("plain", hive=False, **ids) == plain


def test_a_column_in_both_places_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "day=1/price=4/x.parquet", day=[1, 1, 1])
    with pytest.raises(DataError) as caught:
        read_footers(str(tmp_path), SCHEMA, hive=True)
    text = str(caught.value)
    assert "2 problems" in text
    for name in ("day", "price"):
        assert f"column '{name}' is in the file and in the name of a folder above it" in text
    assert read_footers(str(tmp_path), SCHEMA).num_rows == 3
