"""Odd names of folders and columns, and lists of one value in filters."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from wording import Wording

from distrain.errors import DataError
from distrain.jobs.spec.row_filter import parse_filter
from distrain.loader.partition.footers import read_footers
from distrain.schema import ColumnSchema, Schema, Tags
from distrain.storage.inputs import list_inputs

SCHEMA = Schema((ColumnSchema("x", "float32", (Tags.CONTINUOUS,)),))


def test_folders_of_partition_values_are_data_whatever_the_name_begins_with(tmp_path: Path) -> None:
    for folder in ("_day=3", "day=4", "_temporary", ".hidden=1"):
        (tmp_path / folder).mkdir()
        pq.write_table(pa.table({"x": [1.0]}), tmp_path / folder / "a.parquet")
    for pattern in (tmp_path, tmp_path / "*"):
        found = {Path(file.path).parent.name for file in list_inputs(str(pattern))}
        assert found == {"_day=3", "day=4"}


def test_a_column_that_a_file_has_twice_is_named(tmp_path: Path, wording: Wording) -> None:
    values = pa.array([1.0, 2.0], pa.float32())
    pq.write_table(pa.table([values, values], ["x", "x"]), tmp_path / "a.parquet")
    wording.refused(
        DataError, lambda: read_footers([str(tmp_path)], SCHEMA, need_label=False), columns="x"
    )


def test_one_value_in_parentheses_is_a_list_of_one() -> None:
    assert parse_filter("a in (7)") == parse_filter("a in (7,)")
    assert parse_filter("a not in ('x')") == parse_filter("a not in ('x',)")
