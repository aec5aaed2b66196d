"""Which window a row group lies in, by files, folders and footers."""

import math
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st
from wording import Wording

from distrain.errors import DataError
from distrain.jobs.spec.data import WindowsSpec
from distrain.loader.partition.epoch_plan import EpochPlan, EpochSteps
from distrain.loader.partition.footers import read_footers
from distrain.schema import ColumnSchema, Schema, Tags

SCHEMA = Schema(
    (
        ColumnSchema("clicked", "float32", (Tags.TARGET,)),
        ColumnSchema("item", "int32", (Tags.CATEGORICAL,)),
    )
)


def write(path: Path, groups: list[Any], name: str = "at", **options: Any) -> None:
    """A file whose row groups have these values of a column."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tables = []
    for values in groups:
        column = values if isinstance(values, pa.Array) else pa.array(values)
        zeros = pa.array(np.zeros(len(column), np.int32))
        tables.append(pa.table({"clicked": zeros.cast("float32"), "item": zeros, name: column}))
    with pq.ParquetWriter(path, tables[0].schema, **options) as writer:
        for one in tables:
            writer.write_table(one.cast(writer.schema), row_group_size=max(1, one.num_rows))


def windows(folder: Path, by: str = "at", size: Any = None, **options: Any) -> list[Any]:
    """Each window's name, and its row groups as (file, number)."""
    spec = WindowsSpec(by=by, size=size)
    table = read_footers(str(folder), SCHEMA, windows=spec, **options)
    assert table.windows is not None
    return [
        (name, [(Path(g.file).stem, g.index) for g in table.of_window(number).row_groups])
        for number, name in enumerate(table.windows.names)
    ]


def moments(*texts: str) -> list[datetime]:
    return [datetime.fromisoformat(text) for text in texts]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_are_cut_at_multiples_of_the_size_since_1970(tmp_path: Path, unit: str) -> None:
    groups = [
        moments("2026-11-02 00:00", "2026-11-02 11:59"),
        moments("2026-11-01 13:00", "2026-11-01 23:59:59"),
        moments("2026-11-02 12:00"),
        moments("2026-11-01 12:00"),
    ]
    columns = [pa.array(group, pa.timestamp(unit, tz="UTC")) for group in groups]
    write(tmp_path / "a.parquet", columns)
    assert windows(tmp_path, size="12h") == [
        ("2026-11-01T12:00:00", [("a", 1), ("a", 3)]),
        ("2026-11-02", [("a", 0)]),
        ("2026-11-02T12:00:00", [("a", 2)]),
    ]
    assert windows(tmp_path, size="1d") == [
        ("2026-11-01", [("a", 1), ("a", 3)]),
        ("2026-11-02", [("a", 0), ("a", 2)]),
    ]


def test_dates_numbers_and_single_values(tmp_path: Path) -> None:
    days = [[date(2026, 1, 8)], [date(2026, 1, 1), date(2026, 1, 1)], [date(1969, 12, 31)]]
    write(tmp_path / "d" / "a.parquet", days)
    assert [name for name, _ in windows(tmp_path / "d")] == [
        "1969-12-31",
        "2026-01-01",
        "2026-01-08",
    ]
    assert windows(tmp_path / "d", size="7d") == [
        ("1969-12-25", [("a", 2)]),
        ("2026-01-01", [("a", 1)]),
        ("2026-01-08", [("a", 0)]),
    ]
    write(tmp_path / "n" / "a.parquet", [[-1], [0, 9], [25, 29]])
    assert windows(tmp_path / "n", size=10) == [
        ("-10", [("a", 0)]), ("0", [("a", 1)]), ("20", [("a", 2)]),
    ]  # fmt: skip
    write(tmp_path / "f" / "a.parquet", [[0.5, 0.7], [1.0]])
    assert [name for name, _ in windows(tmp_path / "f", size=0.5)] == ["0.5", "1.0"]
    write(
        tmp_path / "u" / "a.parquet",
        [pa.array([2**63 + 1], pa.uint64()), pa.array([3], pa.uint64())],
    )
    assert [name for name, _ in windows(tmp_path / "u")] == ["3", str(2**63 + 1)]


def test_folders_and_files(tmp_path: Path) -> None:
    for day in ("2026-11-10", "2026-11-09", "2026-11-09T12:00"):
        for part in ("x", "y"):
            write(tmp_path / "h" / f"day={day}" / f"{part}.parquet", [[1], [2]])
    assert [name for name, _ in windows(tmp_path / "h", "day")] == [
        "2026-11-09", "2026-11-09T12:00:00", "2026-11-10",
    ]  # fmt: skip
    found = windows(tmp_path / "h", "day", "1d", hive=True)
    assert [(name, len(groups)) for name, groups in found] == [("2026-11-09", 8), ("2026-11-10", 4)]
    for hour in ("10", "9"):
        write(tmp_path / "k" / f"hour={hour}" / "a.parquet", [[1]])
    assert [name for name, _ in windows(tmp_path / "k", "hour")] == ["9", "10"]
    for word in ("b", "a"):
        write(tmp_path / "t" / f"part={word}" / "a.parquet", [[1]])
    assert [name for name, _ in windows(tmp_path / "t", "part")] == ["a", "b"]
    for number in (10, 9):
        write(tmp_path / "f" / f"day_{number}.parquet", [[1], [2], []])
    assert windows(tmp_path / "f", "file") == [
        ("day_9.parquet", [("day_9", 0), ("day_9", 1)]),
        ("day_10.parquet", [("day_10", 0), ("day_10", 1)]),
    ]


@pytest.mark.parametrize(
    ("column", "size", "names"),
    [
        (pa.array([1, 2, 1, 2, 2]), None, ["1", "2"]),
        (pa.array([9, 10, 0, 11, 10], pa.uint16()), 10, ["0", "10"]),
        (pa.array([-0.5, 0.5, -0.25, 0.0, 0.75]), 1, ["-1", "0"]),
        (pa.array([0, 1, 0, 1, 1], pa.date32()), "1d", ["1970-01-01", "1970-01-02"]),
        (pa.array([0, 86_400_000, 0, 86_400_000, 86_400_000], pa.date64()), None,
         ["1970-01-01", "1970-01-02"]),
        (pa.array([3_599, 3_600, 0, 3_601, 7_199], pa.timestamp("s")), "1h",
         ["1970-01-01", "1970-01-01T01:00:00"]),
        (pa.array([-1, 0, -2, 1, 2], pa.timestamp("ns", tz="UTC")), "1d",
         ["1969-12-31", "1970-01-01"]),
    ],
)  # fmt: skip
def test_a_row_group_that_crosses_a_border_is_two(
    tmp_path: Path, column: Any, size: Any, names: list[str]
) -> None:
    write(tmp_path / "a.parquet", [column[:1], column, column[:1]])
    spec = WindowsSpec(by="at", size=size)
    table = read_footers(str(tmp_path), SCHEMA, windows=spec)
    assert table.windows is not None
    assert table.windows.names == tuple(names)
    found = [
        [(g.index, g.rows_in_file.tolist()) for g in table.of_window(n).row_groups]
        for n in range(2)
    ]
    assert found == [[(0, [0]), (1, [0, 2]), (2, [0])], [(1, [1, 3, 4])]]
    assert table.fingerprint == read_footers(str(tmp_path), SCHEMA).fingerprint


def test_a_window_that_a_filter_leaves_empty_is_none(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [[1, 1], [2, 2], [3, 3], [1, 1]])
    assert windows(tmp_path, row_filter="at != 2") == [
        ("1", [("a", 0), ("a", 3)]),
        ("3", [("a", 2)]),
    ]
    write(tmp_path / "a.parquet", [[1, 2, 3], [None, 9], [4, 5]])  # what is left out may cross
    assert windows(tmp_path, row_filter="at <= 2") == [("1", [("a", 0)]), ("2", [("a", 0)])]


def failure(folder: Path, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        windows(folder, **options)
    return str(caught.value)


def test_what_lies_in_no_window_or_in_two_is_refused_by_file_and_row_group(tmp_path: Path) -> None:
    write(tmp_path / "s" / "a.parquet", [[0], [3, 4, 9]])
    text = failure(tmp_path / "s")
    assert "'at' is between 3 and 9" in text
    assert "a.parquet" in text
    assert "row group: 1" in text
    assert "set data.windows.size" in text
    assert "between 3 and 9" in failure(tmp_path / "s", size=4)
    assert windows(tmp_path / "s", size=5)
    write(tmp_path / "n" / "a.parquet", [[1], [2, None, None]])
    text = failure(tmp_path / "n")
    assert "2 rows have no value in column 'at'" in text
    assert "row group: 1" in text
    write(tmp_path / "m" / "a.parquet", [[1], [2]], write_statistics=["clicked"])
    assert [name for name, _ in windows(tmp_path / "m")] == ["1", "2"]
    write(tmp_path / "x" / "a.parquet", [["one"], ["two"]])
    assert "has type string, which cannot define windows" in failure(tmp_path / "x")
    write(tmp_path / "y" / "a.parquet", [[1]])
    write(tmp_path / "y" / "b.parquet", [[date(2026, 1, 1)]])
    text = failure(tmp_path / "y")
    assert "numbers in" in text
    assert "times in" in text
    assert "Did you mean 'at'?" in failure(tmp_path / "y", by="att")
    write(tmp_path / "z" / "day=__HIVE_DEFAULT_PARTITION__" / "a.parquet", [[1]])
    assert "is null in the name of a folder" in failure(tmp_path / "z", by="day")


@pytest.mark.parametrize("size", [None, 1])
def test_rows_of_nan_are_refused_unless_a_filter_leaves_them_out(tmp_path: Path, size: Any) -> None:
    for values in ([1.0, math.nan], [1.0, 2.0, math.nan, 2.0]):
        write(tmp_path / "a.parquet", [[0.0], np.array(values)])
        text = failure(tmp_path, size=size)
        assert "1 rows have NaN in column 'at'" in text
        assert "row group: 1" in text
        assert windows(tmp_path, size=size, row_filter="at < 2")[-1][1] == [("a", 1)]
    write(tmp_path / "a.parquet", [[1e19, 3e19]])
    assert len(windows(tmp_path, size=size)) == 2


def test_nulls_that_a_filter_leaves_out_lie_in_no_window(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [[1, None, 1], [1, 2, None]])
    found = windows(tmp_path, row_filter="at is not null")
    assert [name for name, _ in found] == ["1", "2"]
    assert found[0][1] == [("a", 0), ("a", 1)]
    text = failure(tmp_path, row_filter="item == 0 and (at == 2 or at is null)")
    assert "1 rows have no value in column 'at'" in text


@pytest.mark.parametrize("left_out", [None, math.nan, math.inf])
def test_row_groups_of_which_a_filter_takes_no_such_value_are_read(
    tmp_path: Path, left_out: Any, wording: Wording
) -> None:
    column = np.array if left_out == math.inf else lambda values: pa.array(values, pa.float64())
    groups = [[1.0, 1.0], [left_out, left_out], [left_out, 2.0]]
    write(tmp_path / "a.parquet", [column(values) for values in groups])
    with pytest.raises(DataError):
        windows(tmp_path)
    # No statistics say which rows of a row group this takes.
    found = windows(tmp_path, row_filter="at > 0 and at < 9 and item in (0, 7)")
    assert found == [("1.0", [("a", 0)]), ("2.0", [("a", 2)])]
    wording.refused(
        DataError,
        lambda: windows(tmp_path, row_filter="not (at == 2 and item in (0, 7)) or item in (0, 7)"),
    )


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us")])
@pytest.mark.parametrize("size", [None, "1d"])
def test_times_beyond_64_bits_of_nanoseconds_come_last(
    tmp_path: Path, kind: Any, size: Any
) -> None:
    days = moments("9999-12-31", "2026-01-01")
    write(tmp_path / "a.parquet", [pa.array(days, pa.timestamp("us")).cast(kind)])
    assert [name for name, _ in windows(tmp_path, size=size)] == ["2026-01-01", "9999-12-31"]


def test_a_size_that_does_not_fit_the_values_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "n" / "a.parquet", [[1]])
    assert "the size is a time" in failure(tmp_path / "n", size="1d")
    write(tmp_path / "d" / "a.parquet", [[date(2026, 1, 1)]])
    assert "the size is a number" in failure(tmp_path / "d", size=7)
    assert "data.windows.size: 1d" in failure(tmp_path / "d", by="file", size="1d")


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=6),
    st.sampled_from([1, 2, 4, 8, 24]),
    st.integers(1, 12),
    st.booleans(),
)
def test_a_step_lies_in_one_window_and_windows_follow_each_other(
    rows: list[int], lanes: int, batch: int, drop_last: bool
) -> None:
    plans = tuple(EpochPlan(n, lanes, batch, drop_last) for n in rows)
    steps = EpochSteps(plans)
    assert steps.num_steps == sum(plan.num_steps for plan in plans)
    expected = [
        (w, plan.rows_in_step(n)) for w, plan in enumerate(plans) for n in range(plan.num_steps)
    ]
    numbers = range(steps.num_steps)
    assert [(steps.window_of(n), steps.rows_in_step(n)) for n in numbers] == expected
    before = [steps.rows_before(n) for n in range(steps.num_steps + 1)]
    assert before == [sum(size for _, size in expected[:n]) for n in range(len(expected) + 1)]
    assert steps.trained_rows == before[-1]
    for window, plan in enumerate(plans):
        first, end = steps.span(window)
        assert end - first == plan.num_steps
        assert [n for n in numbers if steps.window_of(n) == window] == list(range(first, end))
