"""Filters: which rows they take, whatever row groups and statistics files have; what is refused."""

import math
from datetime import date, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from wording import Wording

from distrain.errors import DataError, SpecError
from distrain.jobs.spec.data import WindowsSpec
from distrain.loader.partition.footers import read_footers
from distrain.loader.partition.scanning import scan_columns
from distrain.loader.partition.table import Table
from distrain.schema import ColumnSchema, Schema, Tags

SCHEMA = Schema(
    (
        ColumnSchema("label", "float32", (Tags.TARGET,)),
        ColumnSchema("id", "int32", (Tags.CATEGORICAL,), cardinality=1000),
    )
)


def write(path: Path, columns: dict[str, Any], sizes: list[int], **options: Any) -> str:
    rows = len(next(iter(columns.values())))
    plain = {"label": np.zeros(rows, np.float32), "id": np.arange(rows, dtype=np.int32)}
    table = pa.table(plain | columns)
    path.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(path, table.schema, **options) as writer:
        for first, end in pairwise(np.cumsum([0, *sizes]).tolist()):
            writer.write_table(table.slice(first, end - first), row_group_size=max(1, end - first))
    return str(path)


def taken(table: Table) -> list[tuple[int, list[int]]]:
    return [(group.index, group.rows_in_file.tolist()) for group in table.row_groups]


VALUES: dict[str, list[Any]] = {
    "n": [None, -3, 0, 1, 2, 3, 2**53, 2**53 + 1],
    "x": [None, math.nan, -0.0, 0.0, 0.1, 1.5, math.inf, -math.inf],
    "f": [None, math.nan, 0.1, 1.5, 2.0],
    "s": [None, "", "a", "at", "de", "zz"],
    "b": [None, True, False],
}
TYPES = {"n": pa.int64(), "x": pa.float64(), "f": pa.float32(), "s": pa.string(), "b": pa.bool_()}
LITERALS: dict[str, list[str]] = {
    "n": ["0", "2", "-3", "1.5", "9007199254740992", "9007199254740993"],
    "x": ["0", "0.1", "1.5", "-2"],
    "f": ["0.1", "1.5", "2"],
    "s": ["'a'", "'de'", "''"],
    "b": ["true", "false"],
}
OPERATORS = ["==", "!=", "<", "<=", ">", ">="]


@st.composite
def conditions(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(sorted(VALUES)))
    kind = draw(st.sampled_from(["compare", "turned", "in", "null", "column"]))
    some = st.sampled_from(LITERALS[name])
    if kind == "in":
        values = draw(st.lists(some, min_size=1, max_size=3))
        return f"{name} {draw(st.sampled_from(['in', 'not in']))} ({', '.join(values)},)"
    if kind == "null":
        return f"{name} is {draw(st.sampled_from(['', 'not ']))}null"
    operator = draw(st.sampled_from(OPERATORS))
    if kind == "column":
        other = draw(st.sampled_from(["n", "x", "f"] if name in "nxf" else [name]))
        return f"{name} {operator} {other}"
    pair = name, draw(some)
    return f" {operator} ".join(pair if kind == "compare" else pair[::-1])


CONDITIONS = st.recursive(
    conditions(),
    lambda inner: st.one_of(
        inner.map(lambda text: f"not ({text})"),
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(
            lambda parts: f"({parts[0]}) {parts[1]} ({parts[2]})"
        ),
    ),
    max_leaves=4,
)


def truth(text: str, row: dict[str, Any]) -> bool | None:
    """What a filter is for a row, by Python and the tables of three-valued logic."""
    import ast

    def value(node: ast.expr) -> Any:
        match node:
            case ast.Name(name):
                return {"true": True, "false": False, "null": None}.get(name, row.get(name))
            case ast.Tuple(items):
                return [value(item) for item in items]
        return ast.literal_eval(node)

    def of(node: ast.expr) -> bool | None:
        match node:
            case ast.UnaryOp(ast.Not(), inner):
                found = of(inner)
                return None if found is None else not found
            case ast.BoolOp(operator, parts):
                found_of = [of(part) for part in parts]
                decisive = isinstance(operator, ast.Or)
                if decisive in found_of:
                    return decisive
                return None if None in found_of else not decisive
            case ast.Compare(left, [operator], [right]):
                a, b = value(left), value(right)
                if isinstance(operator, ast.Is | ast.IsNot):
                    return (a is None) == isinstance(operator, ast.Is)
                if a is None or b is None:
                    return None
                if isinstance(operator, ast.In | ast.NotIn):
                    return any(as_arrow(a, v, equal) for v in b) == isinstance(operator, ast.In)
                return as_arrow(a, b, operator)
        raise AssertionError(ast.dump(node))

    equal = ast.Eq()

    def as_arrow(a: Any, b: Any, operator: ast.cmpop) -> bool:
        if isinstance(a, float) or isinstance(b, float):  # Arrow compares int64 as double then
            a, b = float(a), float(b)
        by_name = {"Eq": "__eq__", "NotEq": "__ne__", "Lt": "__lt__"}
        by_name |= {"LtE": "__le__", "Gt": "__gt__", "GtE": "__ge__"}
        return bool(getattr(a, by_name[type(operator).__name__])(b))

    return of(ast.parse(text.strip(), mode="eval").body)


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(
    text=CONDITIONS,
    seed=st.integers(0, 2**31),
    spread=st.sampled_from([1, 2, 8]),
    has_statistics=st.sampled_from([True, True, False]),
)
def test_a_filter_takes_the_rows_for_which_it_is_true(
    tmp_path_factory: pytest.TempPathFactory,
    text: str,
    seed: int,
    spread: int,
    has_statistics: bool,
) -> None:
    rng = np.random.default_rng(seed)
    sizes = [5, 1, 0, 7, 6, 3]
    columns: dict[str, Any] = {}
    for name, values in VALUES.items():
        drawn: list[Any] = []
        for size in sizes:  # few values in a row group, so that statistics often decide
            some = rng.choice(len(values), min(spread, len(values)), replace=False)
            drawn += [values[int(rng.choice(some))] for _ in range(size)]
        columns[name] = pa.array(drawn, TYPES[name], from_pandas=False)
    file = write(tmp_path_factory.mktemp("f") / "a.parquet", columns, sizes,
                 write_statistics=has_statistics)  # fmt: skip
    rows = pa.table(columns).to_pylist()
    starts = np.cumsum([0, *sizes])
    expected = [
        (index, [n - first for n in range(first, end) if truth(text, rows[n])])
        for index, (first, end) in enumerate(pairwise(starts.tolist()))
    ]
    expected = [(index, places) for index, places in expected if places]
    if not expected:
        with pytest.raises(SpecError):
            read_footers(file, SCHEMA, row_filter=text)
        return
    assert taken(read_footers(file, SCHEMA, row_filter=text)) == expected


TYPED: dict[str, Any] = {
    "day": pa.array(np.arange(20, dtype=np.int32) + 20_000, pa.date32()),
    "at": pa.array(np.arange(20) * 3_600 * 10**6, pa.timestamp("us")),
    "zoned": pa.array(np.arange(20) * 3_600 * 10**9, pa.timestamp("ns", "Europe/Berlin")),
    "word": pa.array([f"w{n:02}" for n in range(20)]).dictionary_encode(),
    "large": pa.array([f"w{n:02}" for n in range(20)], pa.large_string()),
    "hash": pa.array(np.arange(20, dtype=np.uint64) + 2**63, pa.uint64()),
    "small": pa.array(np.arange(20, dtype=np.uint8)),
    "decimal": pa.array(np.arange(20)).cast(pa.decimal128(21, 2)),
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("day >= '2024-10-09'", range(5, 20)),
        ("day in ('2024-10-04', '2024-10-23')", [0, 19]),
        ("at < '1970-01-01 05:00'", range(5)),
        ("at == '1970-01-01T05:00:00'", [5]),
        ("zoned >= '1970-01-01T05:00:00+00:00' and zoned < '1970-01-01 07:00'", [5, 6]),
        ("word in ('w03', 'w12', 'no')", [3, 12]),
        ("not (word > 'w03')", range(4)),
        ("large != 'w00'", range(1, 20)),
        (f"hash == {2**63 + 7} or hash in ({2**63},)", [0, 7]),
        ("hash >= 5", range(20)),
        ("small == 300", []),
        ("-1 < small <= 3.5", range(4)),
        ("decimal < 2", [0, 1]),
    ],
)
def test_types_of_columns(tmp_path: Path, text: str, expected: Any, wording: Wording) -> None:
    file = write(tmp_path / "a.parquet", TYPED, [5, 5, 5, 5])
    if not expected:
        wording.refused(SpecError, lambda: read_footers(file, SCHEMA, row_filter=text))
        return
    found = read_footers(file, SCHEMA, row_filter=text)
    rows = [5 * index + place for index, places in taken(found) for place in places]
    assert rows == list(expected)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("day >= '2024-10-09'", []),
        ("day >= '2024-10-10'", [1]),
        ("at < '1970-01-01 06:00'", [1]),
        ("word == 'w03'", [0, 1, 2, 3]),  # Arrow compares no dictionary with statistics
        ("large > 'w04' and large < 'w11'", [2]),
        ("small in (3, 4)", [0]),
        ("label == 0 and not small < 5", []),
        ("label != 0 or small > 13", [2]),
    ],
)
def test_only_row_groups_that_statistics_leave_open_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, read: list[int]
) -> None:
    scanned: list[int] = []

    def noted(groups: Any, *args: Any) -> Any:
        scanned.extend(group.index for group in groups)
        return scan_columns(groups, *args)

    monkeypatch.setattr("distrain.loader.partition.filtering.scan_columns", noted)
    whole = {**TYPED, "label": pa.array(np.zeros(20, np.int8))}
    file = write(tmp_path / "a.parquet", whole, [5, 5, 5, 5])
    read_footers(file, SCHEMA, row_filter=text)
    assert scanned == read


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("day == 7", 5),
        ("day in (7, 8)", 10),
        ("day > 7.5 and n < 2", 4),
        ("name == 'a b'", 5),
        ("name is null", 10),
        ("name != 'a b' or day == 8", 5),
        ("day == n", 0),
        ("7 <= day and fresh == true", 5),
    ],
)
def test_folders_give_columns(tmp_path: Path, text: str, rows: int, wording: Wording) -> None:
    columns = {"n": np.arange(5)}
    null = "name=__HIVE_DEFAULT_PARTITION__"
    folders = ["fresh=true/day=7/name=a%20b", f"fresh=false/day=8/{null}", f"fresh=no/day=9/{null}"]
    for folder in folders:
        if "fresh" in text and "fresh=no" in folder:
            continue
        write(tmp_path / folder / "a.parquet", columns, [3, 2])
    if not rows:
        wording.refused(
            SpecError, lambda: read_footers(str(tmp_path), SCHEMA, hive=True, row_filter=text)
        )
        return
    assert read_footers(str(tmp_path), SCHEMA, hive=True, row_filter=text).num_rows == rows
    wording.refused(SpecError, lambda: read_footers(str(tmp_path), SCHEMA, row_filter=text))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("small > 1 and samll < 3", 15),
        ("small > 'a'", 1),
        ("small == 1 or word in (3,)", 15),
        ("day > 5", 1),
        ("at > '30.11.2026'", 1),
        ("word == small", 1),
        ("small = 3", 7),
        ("small", 1),
        ("small == null", 10),
        ("small in 3", 10),
        ("small in (day,)", 11),
        ("3 == 3", 1),
        ("__import__('os').system('true') == 0", 1),
        ("é == 1 and (", 12),
        ("not " * 3000 + "small == 1", 1),
        ("not " * 100 + "small == 1", 1),
        ("small > 1" + " or small == 1" * 1000, 14000),
        (" small > 1 # one\nand word == 'a'", 12),
        ("word == 'a\nb'", 9),
        (f"small > 0x{'f' * 5000}", 9),
        (f"small in (1, -0x{'f' * 5000})", 15),
    ],
)
def test_refusals_name_the_place(tmp_path: Path, text: str, place: int, wording: Wording) -> None:
    file = write(tmp_path / "a.parquet", TYPED, [20])
    with pytest.raises(SpecError, match="filter") as error:
        read_footers(file, SCHEMA, row_filter=text)
    assert error.value.where["character"] == place
    wording(str(error.value).partition(": Function")[0], text=text)  # the rest is Arrow's


def test_columns_have_the_letters_that_the_filter_has(tmp_path: Path) -> None:
    micro, mu = "\u00b5", "\u03bc"  # of which Python makes one name
    columns = {micro: np.array([1, 2, 3]), mu: np.array([3, 2, 1]), "#": np.array([1, 1, 2])}
    file = write(tmp_path / "a.parquet", columns, [3])
    assert taken(read_footers(file, SCHEMA, row_filter=f"{micro} > 2")) == [(0, [2])]
    assert taken(read_footers(file, SCHEMA, row_filter=f"{mu} > 2")) == [(0, [0])]
    both = f"({micro} < 3\n  and\n {mu} < 3) and col('#') == 1"
    assert taken(read_footers(file, SCHEMA, row_filter=both)) == [(0, [1])]


def test_many_values_and_many_tests(tmp_path: Path) -> None:
    values = np.array([-0.0, 0.0, 0.5, 0.1, 30_000, math.nan])
    file = write(tmp_path / "a.parquet", {"x": values, "f": values.astype(np.float32)}, [6])
    many = ", ".join(f"{n}.0" for n in range(4_000))
    with pytest.raises(SpecError, match="'x'"):
        read_footers(file, SCHEMA, row_filter="x in (1, true)")
    for name, rows in (("x", [0, 1, 3]), ("f", [0, 1])):  # no float of 32 bits is 0.1
        found = read_footers(file, SCHEMA, row_filter=f"{name} in ({many}, 0.1)")
        assert taken(found) == [(0, rows)]
    text = " or ".join(f"x == {n}" for n in range(1000))
    assert taken(read_footers(file, SCHEMA, row_filter=text)) == [(0, [0, 1])]


MOMENTS = [datetime(2026, 1, 1, hour, microsecond=1000 * hour) for hour in range(4)]
AS_LITERALS: list[tuple[Any, list[str]]] = [
    (pa.array([-3, 0, 1, 2, 127], pa.int8()), ["1", "1.5", "2.0", "300", "-1e300", "true", "'1'"]),
    (pa.array([0, 1, 2**64 - 1], pa.uint64()), ["1", "-1", "1.5", f"{2**64 - 1}", f"{2**70}"]),
    (pa.array([0, 1, None, 2]).dictionary_encode(), ["1", "1.5", "3"]),
    (pa.array([Decimal("0.25"), Decimal(3)], pa.decimal128(9, 4)), ["0.25", "3", "1e300", "'a'"]),
    (pa.array([date(2026, 1, 2), date(1970, 1, 6)]), ["'2026-01-02'", "5", "'2026-13-01'"]),
    (pa.array(MOMENTS, pa.timestamp("ms")), ["'2026-01-01T01:00:00.001'", "5",
        "'2026-01-01T01:00:00.001001'", "'2026-01-01T01:00:00.0010001'", "'2026-01-01'"]),
    (pa.array([True, False]), ["true", "1", "'true'"]),
    (pa.array(["a", None], pa.large_string()), ["'a'", "'b'", "1"]),
    (pa.array([[1], [2]]), ["1"]),
]  # fmt: skip


@pytest.mark.parametrize(("column", "literals"), AS_LITERALS)
def test_a_value_after_in_is_taken_or_refused_as_after_equals(
    tmp_path: Path, column: Any, literals: list[str]
) -> None:
    file = write(tmp_path / "a.parquet", {"c": column}, [len(column)])

    def result(text: str) -> Any:
        try:
            return taken(read_footers(file, SCHEMA, row_filter=text))
        except SpecError as error:
            return error.message.partition(" compare with")[0]

    for literal in literals:
        assert result(f"c in ({literal},)") == result(f"c == {literal}")
        assert result(f"c not in ({literal},)") == result(f"c != {literal}")


def test_what_is_left_out_is_part_of_the_fingerprint(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", TYPED, [5, 5, 5, 5])
    texts = (None, "small >= 0", "small > 3", "small != 3", "small < 5")
    found = [read_footers(file, SCHEMA, row_filter=text).fingerprint for text in texts]
    assert found[0] == found[1]
    assert len(set(found)) == 4


def test_statistics_refuse_values_only_of_row_groups_that_are_taken_whole(
    tmp_path: Path, wording: Wording
) -> None:
    ids = np.array([1, 2, 5000, 4, 5, 6], np.int32)
    file = write(tmp_path / "a.parquet", {"id": ids}, [3, 3])
    wording.refused(DataError, lambda: read_footers(file, SCHEMA))
    wording.refused(DataError, lambda: read_footers(file, SCHEMA, row_filter="id > 0"))
    for text in ("id < 1000", "id > 3 and id < 1000"):
        assert read_footers(file, SCHEMA, row_filter=text).num_rows in (5, 3)


def test_windows_keep_the_rows_that_a_filter_takes(tmp_path: Path) -> None:
    for day in (7, 8, 9):
        write(tmp_path / f"day={day}" / "a.parquet", {"n": np.arange(6) + day}, [3, 3])
    windows = WindowsSpec(by="day", size=1)
    for text, rows in (("n < 11", [4, 3, 2]), ("n == 7 or n == 14", [1, 0, 1])):
        table = read_footers(str(tmp_path), SCHEMA, hive=True, row_filter=text, windows=windows)
        assert table.windows is not None
        found = {
            name: table.of_window(number).num_rows
            for number, name in enumerate(table.windows.names)
        }
        assert [found.get(str(day), 0) for day in (7, 8, 9)] == rows
