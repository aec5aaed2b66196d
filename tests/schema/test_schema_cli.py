"""`distrain schema`."""

import json

import pytest
from click.testing import CliRunner

from distrain.cli.data.schema import command
from distrain.errors import SchemaError
from distrain.schema import ColumnSchema, Schema, criteo_schema


def run(*args):
    return CliRunner().invoke(command, [str(arg) for arg in args], catch_exceptions=False)


@pytest.fixture
def path(tmp_path):
    schema = Schema(
        (
            ColumnSchema("C1", "int32", ("categorical",), cardinality=12345, embedding_dim=16),
            ColumnSchema("seen", "int64", is_list=True, is_ragged=True, value_count=(2, 20)),
            ColumnSchema("pair", "float32", is_list=True, value_count=(2, 2)),
            ColumnSchema("loose", is_list=True, is_ragged=True),
            ColumnSchema("[red]odd\n", tags=("one", "two")),
        )
    )
    schema.save(tmp_path / "schema.pbtxt")
    return tmp_path / "schema.pbtxt"


def test_the_table_says_it_all(path):
    lines = [line.split() for line in run(path).stdout.splitlines()]
    assert lines[:6] == [
        ["column", "dtype", "tags", "cardinality", "embedding", "dim", "list"],
        ["C1", "int32", "categorical", "12,345", "16"],
        ["seen", "int64", "ragged", "2..20"],
        ["pair", "float32", "fixed", "2"],
        ["loose", "ragged"],
        ["'[red]odd\\n'", "one,", "two"],
    ]
    assert lines[6] == ["5", "columns"]


def test_a_folder_and_the_preset(path):
    assert run(path.parent).stdout == run(path).stdout
    assert json.loads(run("criteo", "--json").stdout) == criteo_schema().to_json()


def test_conversion(path, tmp_path):
    out = tmp_path / "new" / "schema.json"
    result = run(path, "--out", out)
    assert result.stdout == f"Wrote {out}: 5 columns.\n"
    assert Schema.load(out) == Schema.load(path)
    result = run(path, "--out", out, "--json")
    assert len(json.loads(result.stdout)["columns"]) == 5
    assert result.stderr == f"Wrote {out}: 5 columns.\n"


def test_errors_pass_through(tmp_path, wording):
    wording.refused(SchemaError, lambda: run(tmp_path / "none.pbtxt"), lambda: run(tmp_path))
