"""A table in an S3 bucket: a real server, real HTTP, the same stream as from the local files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from object_stores import serving
from small_jobs import make_spec, write_prepared

from distrain.batch import Batch
from distrain.errors import DataError, SchemaError
from distrain.jobs.view import Record
from distrain.loader import Dataset, Loader
from distrain.schema import Schema
from distrain.storage import whole_output
from distrain.submission.inline import run_inline

SIZES = [[40, 31], [64], [50, 33]]


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with serving("bucket") as filesystem:
        yield filesystem


@pytest.fixture
def folder(server: Any, write_table: Any, request: pytest.FixtureRequest) -> tuple[str, Path]:
    """The table's URL in a folder of the test's own, and where its files are."""
    local = Path(write_table(SIZES))
    name = request.node.name.partition("[")[0]
    for file in sorted(local.glob("*.parquet")):
        server.put_file(str(file), f"bucket/{name}/table/{file.name}")
    return f"s3://bucket/{name}", local


def stream(paths: str, schema: Schema, **options: Any) -> list[Batch]:
    with Loader(Dataset(paths, schema), batch_size=32, **options) as loader:
        return [*loader.epochs(2)]


def same(left: list[Batch], right: list[Batch]) -> bool:
    return len(left) == len(right) and all(
        torch.equal(a.categorical, b.categorical)
        and torch.equal(a.continuous, b.continuous)
        and a.label is not None
        and b.label is not None
        and torch.equal(a.label, b.label)
        for a, b in zip(left, right, strict=True)
    )


@pytest.mark.parametrize("pattern", ["/table/*.parquet", "/table", "/table/part_*", "/*"])
def test_a_bucket_gives_the_stream_of_the_local_files(
    folder: tuple[str, Path], schema: Schema, pattern: str
) -> None:
    url, local = folder
    remote = stream(url + pattern, schema, seed=3)
    assert sum(batch.num_rows for batch in remote) == 2 * 218
    assert same(remote, stream(str(local), schema, seed=3))


def test_the_fingerprint_does_not_tell_where_files_lie(
    folder: tuple[str, Path], schema: Schema
) -> None:
    url, local = folder
    dataset = Dataset(f"{url}/table", schema)
    assert dataset.table.fingerprint == Dataset(local, schema).table.fingerprint
    assert {group.file for group in dataset.table.row_groups} == {
        f"{url}/table/part_{number}.parquet" for number in range(len(SIZES))
    }
    loader = Loader(dataset, batch_size=32)
    assert loader.reader_choice.name == "arrow"
    assert "local files only" in loader.reader_choice.reason


def test_a_stream_resumes_from_a_bucket_where_it_stood_on_a_disk(
    folder: tuple[str, Path], schema: Schema
) -> None:
    url, local = folder
    on_disk = Loader(Dataset(local, schema), batch_size=32)
    for number, _ in enumerate(on_disk, 1):
        if number == 3:
            break
    in_bucket = Loader(Dataset(f"{url}/table", schema), batch_size=32)
    in_bucket.load_state_dict(on_disk.state_dict())
    with on_disk.epoch(0, start_step=3) as rest:
        assert same(list(in_bucket), list(rest))


def test_an_object_deleted_since_it_was_listed_is_named(
    folder: tuple[str, Path], schema: Schema, server: Any
) -> None:
    url, _ = folder
    dataset = Dataset(f"{url}/table", schema)
    server.rm(f"{url}/table/part_2.parquet")
    options = {"shuffle": False, "lanes": 1, "decode_threads": 1, "prefetch_batches": 1}
    with Loader(dataset, batch_size=10, **options).epoch(0) as batches:
        taken = 0
        with pytest.raises(DataError) as caught:  # noqa: PT012 (counting what comes before it)
            for _ in batches:
                taken += 1
    assert taken == sum(map(sum, SIZES[:2])) // 10
    assert caught.value.where["file"] == f"{url}/table/part_2.parquet"


@pytest.mark.parametrize("pattern", ["/tabel/*.parquet", "/tabel", "-and-more/x.parquet"])
def test_what_is_not_in_the_bucket_is_named(
    folder: tuple[str, Path], schema: Schema, pattern: str
) -> None:
    url, _ = folder
    with pytest.raises(DataError, match="no such file") as caught:
        Dataset(url + pattern, schema)
    assert url + pattern in str(caught.value)


def test_no_schema_is_looked_for_in_a_bucket(folder: tuple[str, Path]) -> None:
    url, _ = folder
    with pytest.raises(SchemaError, match="none is looked for beside") as caught:
        Dataset(f"{url}/table")
    assert caught.value.where == {"file": f"{url}/table/part_0.parquet"}
    assert "Pass schema=" in str(caught.value)
    with pytest.raises(SchemaError, match="local files only"):
        Dataset(f"{url}/table", f"{url}/schema.pbtxt")


def test_a_job_trains_from_a_bucket_as_from_a_disk(server: Any, tmp_path: Path) -> None:
    prepared = write_prepared(tmp_path / "prepared")
    with whole_output("s3://bucket/job") as place:
        server.put(f"{prepared}/", f"{place}/", recursive=True)
    curves = []
    for source in (prepared, "s3://bucket/job"):
        spec = make_spec(
            prepared,
            f"data={{train: {source}/train, valid: {source}/valid}}",
            f"data.schema={source}/schema.pbtxt",
            "resources={backend: inline, num_ranks: 1}",
            "train.max_steps=5",
            "train.log_every_steps=1",
        )
        records: list[Record] = []
        run_dir = tmp_path / str(len(curves))
        view = run_inline(spec, run_dir, "job", lambda view, to=records: to.extend(view.records))
        assert view.reason is None
        curves.append([(record.split, record.step, record.rows, record.loss) for record in records])
    assert len(curves[0]) > 5
    assert curves[0] == curves[1]


def test_ranges_come_by_signed_urls_without_s3fs(
    folder: tuple[str, Path], schema: Schema, caplog: pytest.LogCaptureFixture
) -> None:
    url, _ = folder
    with caplog.at_level("INFO", "werkzeug"):
        list(stream(url + "/table", schema))
    signed = [line for line in caplog.messages if "?X-Amz-Algorithm=AWS4" in line]
    assert len(signed) >= len(SIZES)
    assert all('" 206 ' in line for line in signed)
