"""What people type wrongly is told where it was typed, with what to type instead."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from small_jobs import write_prepared

from distrain.cli.main import cli
from distrain.errors import DataError, OutputError, SpecError
from distrain.loader import Dataset, Loader
from distrain.loader.packed import pack
from distrain.schema import Schema
from distrain.spec import parse_spec
from distrain.train.data.inputs import check_inputs


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("mistyped")
    write_prepared(root)
    return root


@pytest.fixture
def dataset(folder: Path) -> Dataset:
    return Dataset(folder / "train")


def test_no_files():
    with pytest.raises(DataError, match="no files are named"):
        Dataset([])


@pytest.mark.parametrize(
    ("reader", "hint"), [("packed", "distrain pack"), ("cudf", "the GPU that batches go to")]
)
def test_a_reader_that_cannot_serve_says_what_would(dataset, reader, hint):
    with pytest.raises(SpecError) as caught:
        Loader(dataset, batch_size=10, reader=reader)
    assert hint in caught.value.hint


def test_a_cache_folder_that_is_a_file(dataset, tmp_path):
    file = tmp_path / "cache"
    file.touch()
    with pytest.raises(SpecError, match="needs a folder"):
        Loader(dataset, batch_size=10, cache=str(file))


def test_a_state_that_is_none(dataset):
    with pytest.raises(SpecError, match="lacks epoch, step, fingerprint"):
        Loader(dataset, batch_size=10).load_state_dict({})


def test_a_column_that_is_not_there_names_those_that_are(dataset):
    with Loader(dataset, batch_size=10) as loader:
        batch = loader.sample_batch()
    with pytest.raises(KeyError, match="'C99'; there are C1, "):
        batch["C99"]


@pytest.mark.parametrize(
    ("field", "size"), [("part_size", "0MB"), ("cache_size", "10 apples"), ("part_size", "")]
)
def test_a_size_that_is_none_is_told_before_anything_starts(folder, field, size):
    data = {"train": str(folder / "train"), field: size}
    spec = parse_spec({"data": data, "model": {"kind": "mlp"}})
    with pytest.raises(SpecError, match=rf"data\.{field}: '{size}' is no size"):
        check_inputs(spec)


def test_packing_a_folder_onto_itself_is_refused(folder):
    schema = Schema.load(folder / "schema.pbtxt")
    for output in (folder / "train", folder):
        with pytest.raises(OutputError, match="holds files that are to be packed"):
            pack(str(folder / "train"), schema, output, overwrite=True)
    assert pq.read_metadata(next((folder / "train").glob("*.parquet"))).num_rows > 0


def test_pack_takes_out_as_prep_does(folder, tmp_path):
    words = ["pack", str(folder / "train"), "--out", str(tmp_path / "packed")]
    assert CliRunner().invoke(cli, words).exit_code == 0
    assert Dataset(tmp_path / "packed").table.num_rows == Dataset(folder / "train").table.num_rows
