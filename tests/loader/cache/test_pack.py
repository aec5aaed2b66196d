"""`distrain pack`: a cache folder that is complete or absent, and serves trainings and loaders."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cache_tables import SCHEMA, make_table
from click.testing import CliRunner, Result
from hypothesis import given, settings, strategies as st
from same_batches import assert_same
from wording import Wording

from distrain.cli.main import cli
from distrain.errors import DataError, InputError, OutputError, SchemaError
from distrain.loader import Dataset, Loader
from distrain.loader.batch import Batch
from distrain.loader.cache.pack import pack
from distrain.schema import ColumnSchema, Schema, Tags

LISTS = Schema(
    (
        ColumnSchema("row", tags=(Tags.CATEGORICAL,)),
        ColumnSchema("tags", tags=(Tags.CATEGORICAL,), cardinality=1000, is_list=True),
        ColumnSchema("prices", tags=(Tags.CONTINUOUS,), is_list=True, is_ragged=True),
    )
)


def lists_table(lengths: list[int], **types: pa.DataType) -> pa.Table:
    random = np.random.default_rng(len(lengths))
    tags = [random.integers(0, 1000, length).tolist() for length in lengths]
    prices = [(random.integers(-99, 99, length) / 4).tolist() for length in reversed(lengths)]
    return pa.table(
        {
            "prices": pa.array(prices, pa.list_(types["prices"])),
            "row": np.arange(len(lengths)),
            "tags": pa.array(tags, pa.list_(types["tags"])),
        }
    )


def batches(dataset: Dataset, **options: Any) -> list[Batch]:
    with Loader(dataset, **{"batch_size": 16, "lanes": 6, "seed": 3, **options}) as loader:
        return [batch for epoch in range(2) for batch in loader.epoch(epoch)]


def run(*words: object) -> Result:
    return CliRunner().invoke(cli, ["pack", *map(str, words)])


def no_source(*_: object, **__: object) -> None:
    raise AssertionError("a row group was read from the source")


@settings(max_examples=10, deadline=None)
@given(
    lengths=st.lists(st.sampled_from([0, 0, 1, 2, 9]), min_size=1, max_size=70),
    types=st.sampled_from(
        [{"tags": pa.int32(), "prices": pa.float32()}, {"tags": pa.uint16(), "prices": pa.int8()}]
    ),
    rows=st.integers(1, 30),
    large=st.sampled_from([24, 1000]),
    shuffle=st.sampled_from(["chunk", "full", "none"]),
    threads=st.integers(1, 2),
    row_filter=st.sampled_from([None, "row >= 0", "row > 3 and row < 40"]),
)
def test_a_packed_folder_gives_the_batches_of_parquet_and_reads_none(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[int],
    types: dict[str, pa.DataType],
    rows: int,
    large: int,
    shuffle: str,
    threads: int,
    row_filter: str | None,
) -> None:
    folder = tmp_path_factory.mktemp("lists")
    lengths = [*lengths, 1, 1, 1, 1, 1]  # so that each filter takes a row
    pq.write_table(lists_table(lengths, **types), folder / "a.parquet", row_group_size=rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("distrain.loader.dataset.LARGE_ROWS", large)
        options: Any = {"shuffle": shuffle, "decode_threads": threads}
        dataset = Dataset(str(folder / "a.parquet"), LISTS, need_label=False, row_filter=row_filter)
        expected = batches(dataset, **options)
        # Epochs overlap in a loader, so that the first may still fill what the second reads.
        filled = batches(dataset, cache=str(folder / "filled"), **options)
        assert_same(filled, expected)
        report = pack(dataset, folder / "packed", threads=threads)
        assert (report.rows, report.entries) == (len(dataset), len(dataset.slices))
        patch.setattr("distrain.loader.reading.arrow.ArrowReader.read", no_source)
        assert_same(batches(dataset, cache=str(folder / "packed"), **options), expected)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("user", [0, 1, 1000, -1]),
        ("price", [1.0, 2.0, float("nan"), 1.0]),
        ("price", [1.0, 2.0, 1e300, 1.0]),
        ("clicked", [0.0, 1.0, 0.5, 1.0]),
        ("importance", [0.0, 1.0, -0.5, 1.0]),
    ],
)
def test_a_value_that_training_refuses_is_named_and_nothing_is_left(
    tmp_path: Path, name: str, values: list[float], wording: Wording
) -> None:
    table = make_table(4)
    table = table.set_column(table.schema.names.index(name), name, pa.array(values))
    pq.write_table(table, tmp_path / "a.parquet", write_statistics=False)
    caught = wording.refused(
        DataError, lambda: pack(Dataset(tmp_path / "a.parquet", SCHEMA), tmp_path / "packed")
    )
    assert caught.where["row in the group"] == 2
    assert caught.where["column"] == name
    assert [file.name for file in tmp_path.iterdir()] == ["a.parquet"]


def test_a_disk_that_is_full_leaves_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    written = 0
    write = os.writev

    def writev(*args: Any) -> int:
        nonlocal written
        written += 1
        if written > 2:
            raise OSError(28, "No space left on device")
        return write(*args)

    monkeypatch.setattr("distrain.loader.cache.entry.os.writev", writev)
    wording.refused(
        OutputError, lambda: pack(Dataset(source, SCHEMA), tmp_path / "packed", threads=1)
    )
    assert [file.name for file in tmp_path.iterdir()] == ["source"]


def test_a_folder_is_replaced_only_on_request_and_never_the_source(
    source: Path, tmp_path: Path
) -> None:
    dataset = Dataset(source, SCHEMA)
    pack(dataset, tmp_path / "packed")
    with pytest.raises(OutputError, match="exists"):
        pack(dataset, tmp_path / "packed")
    pack(dataset, tmp_path / "packed", overwrite=True)
    for holds_source in (source, tmp_path):
        with pytest.raises(OutputError):
            pack(dataset, holds_source, overwrite=True)
    assert len(list(source.iterdir())) == 2


def test_the_command_takes_the_schema_beside_the_data_or_a_named_one(
    source: Path, tmp_path: Path
) -> None:
    assert isinstance(run(source, tmp_path / "packed").exception, SchemaError)
    SCHEMA.save(tmp_path / "meaning.pbtxt")
    result = run(source, tmp_path / "packed", "--schema", tmp_path / "meaning.pbtxt")
    assert "500 in 5 entries" in result.output
    SCHEMA.save(source / "schema.pbtxt")
    result = run(source, tmp_path / "again", "--filter", "user < 500", "--json")
    document = json.loads(result.output)
    assert document["cache_dir"] == str(tmp_path / "again")
    assert 0 < document["rows"] < 500
    sizes = [path.stat().st_size for path in (tmp_path / "again").glob("*.rows")]
    assert (len(sizes), sum(sizes)) == (document["entries"], document["bytes_out"])


@pytest.mark.parametrize("splits", [("train",), ("train", "valid")])
def test_a_folder_as_prep_writes_it_is_refused_with_the_one_that_is_meant(
    tmp_path: Path, splits: tuple[str, ...], wording: Wording
) -> None:
    folder = tmp_path / "criteo"
    for part in (*splits, "vocabularies"):
        (folder / part).mkdir(parents=True)
        pq.write_table(make_table(10), folder / part / "part-0.parquet")
    SCHEMA.save(folder / "schema.pbtxt")
    error = run(folder, tmp_path / "packed").exception
    assert isinstance(error, InputError)
    wording(error)
    assert not (tmp_path / "packed").exists()
    assert run(folder / "train", tmp_path / "packed").exit_code == 0
