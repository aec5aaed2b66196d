"""A table in an S3 bucket: a real server, real HTTP, the same stream as from the local files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from object_stores import serving
from same_batches import assert_same
from wording import Wording

from distrain.errors import DataError, SchemaError
from distrain.loader import Dataset, Loader
from distrain.loader.batch import Batch
from distrain.schema import Schema

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


@pytest.mark.parametrize("pattern", ["/table/*.parquet", "/table", "/table/part_*", "/*"])
def test_a_bucket_gives_the_stream_of_the_local_files(
    folder: tuple[str, Path], schema: Schema, pattern: str
) -> None:
    url, local = folder
    remote = stream(url + pattern, schema, seed=3)
    assert sum(batch.num_rows for batch in remote) == 2 * 218
    assert_same(remote, stream(str(local), schema, seed=3))


@pytest.mark.parametrize("pattern", ["/tabel/*.parquet", "/tabel", "-and-more/x.parquet"])
def test_what_is_not_in_the_bucket_is_named(
    folder: tuple[str, Path], schema: Schema, pattern: str, wording: Wording
) -> None:
    url, _ = folder
    caught = wording.refused(DataError, lambda: Dataset(url + pattern, schema))
    assert url + pattern in str(caught)


def test_a_schema_in_a_bucket_is_read_but_not_searched(
    folder: tuple[str, Path], schema: Schema, wording: Wording
) -> None:
    url, _ = folder
    caught = wording.refused(SchemaError, lambda: Dataset(f"{url}/table"))
    assert caught.where == {"file": f"{url}/table/part_0.parquet"}
    schema.save(f"{url}/schema.pbtxt")
    assert Dataset(f"{url}/table", f"{url}/schema.pbtxt").schema == schema


def test_ranges_come_by_signed_urls_without_s3fs(
    folder: tuple[str, Path], schema: Schema, caplog: pytest.LogCaptureFixture
) -> None:
    url, _ = folder
    with caplog.at_level("INFO", "werkzeug"):
        list(stream(url + "/table", schema))
    signed = [line for line in caplog.messages if "?X-Amz-Algorithm=AWS4" in line]
    assert len(signed) >= len(SIZES)
    assert all('" 206 ' in line for line in signed)
