"""`distrain pack`, as people type it."""

import json

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from packed_tables import COLUMNS, SCHEMA, assert_same_cells, float32_cells, make_table

from distrain.cli.main import cli
from distrain.errors import InputError, SchemaError


def run(*words):
    return CliRunner().invoke(cli, ["pack", *map(str, words)])


def test_a_folder_is_packed_with_the_schema_beside_it(source, tmp_path):
    SCHEMA.save(source / "schema.pbtxt")
    result = run(source, "--out", tmp_path / "packed", "--row-group-rows", "0.1k")
    assert result.exit_code == 0, result.output
    assert "500 in 1 files" in result.output
    assert str(tmp_path / "packed") in result.output
    assert_same_cells(
        float32_cells(pq.read_table(tmp_path / "packed")), float32_cells(make_table(500))
    )
    metadata = pq.read_metadata(tmp_path / "packed" / "part-00000.parquet")
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [100] * 5


def test_what_was_packed_can_be_packed_again(source, tmp_path):
    SCHEMA.save(tmp_path / "schema.json")  # one above the data
    assert run(source, "--out", tmp_path / "a" / "packed").exit_code == 0
    files = ["--rows-per-file", 200, "--row-group-rows", 100]
    result = run(tmp_path / "a" / "packed", "--out", tmp_path / "again", *files, "--json")
    told = json.loads(result.output)
    assert {k: told[k] for k in ("rows", "files", "output")} == {
        "rows": 500,
        "files": 3,
        "output": str(tmp_path / "again"),
    }
    assert told["bytes_in"] == (tmp_path / "a/packed/part-00000.parquet").stat().st_size
    assert told["bytes_out"] == sum(
        f.stat().st_size for f in (tmp_path / "again").glob("*.parquet")
    )
    table = pq.read_table(tmp_path / "again")
    assert table.schema.names == [column.name for column in COLUMNS]


def test_without_a_schema_it_says_how_to_name_one(source, tmp_path):
    result = run(source, "--out", tmp_path / "packed")
    assert isinstance(result.exception, SchemaError)
    assert "--schema" in str(result.exception)
    SCHEMA.save(tmp_path / "meaning.pbtxt")
    result = run(source, "--out", tmp_path / "packed", "--schema", tmp_path / "meaning.pbtxt")
    assert result.exit_code == 0


@pytest.mark.parametrize("words", [["--row-group-rows", "0"], ["--row-group-rows", "1G"]])
def test_sizes_out_of_range_are_usage_errors(source, tmp_path, words):
    result = run(source, "--out", tmp_path / "packed", *words)
    assert result.exit_code == 2
    assert "--row-group-rows is 1 to 268435456" in result.output


@pytest.mark.parametrize("splits", [("train",), ("train", "valid")])
def test_a_folder_as_prep_writes_it_is_refused_with_the_one_that_is_meant(tmp_path, splits):
    folder = tmp_path / "criteo"
    for part in (*splits, "vocabularies"):
        (folder / part).mkdir(parents=True)
        pq.write_table(make_table(10), folder / part / "part-0.parquet")
    SCHEMA.save(folder / "schema.pbtxt")
    result = run(folder, "--out", tmp_path / "packed")
    assert isinstance(result.exception, InputError)
    assert f"Pack {folder / 'train'}" in str(result.exception)
    assert ("valid" in str(result.exception)) == ("valid" in splits)
    assert not (tmp_path / "packed").exists()
    assert run(folder / "train", "--out", tmp_path / "packed").exit_code == 0
