"""A storage that does not always answer: the same stream, later; or an error that says so."""

import contextlib
import errno
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import pytest
import torch
from cudf_on_cpu import pylibcudf
from fsspec.implementations.local import LocalFileSystem
from streams_on_cpu import CpuStreams

from distrain.batch import Batch
from distrain.errors import DataError, Unavailable
from distrain.loader import Dataset, Loader
from distrain.loader.cudf_reader import CudfReader
from distrain.loader.packed import pack
from distrain.partition import read_footers
from distrain.partition.wanted_columns import wanted_columns
from distrain.schema import Schema
from distrain.storage import is_retrying, list_inputs, retrying

SIZES = [[40, 31], [64], [50, 33]]
STALE = OSError(errno.ESTALE, "Stale file handle")


class FlakyFileSystem(LocalFileSystem):  # type: ignore[misc]  # fsspec is untyped
    """Local files, of which a test says when they cannot be read."""

    protocol = "flaky"
    cachable = False
    before: Callable[[str], None] = staticmethod(lambda _: None)

    def ls(self, path: str, detail: bool = False, **options: Any) -> Any:
        type(self).before(f"list {path}")
        return super().ls(path, detail, **options)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super()._strip_protocol(str(path).removeprefix("flaky://"))

    def unstrip_protocol(self, name: str) -> str:
        return f"flaky://{name}"

    def info(self, path: str, **options: Any) -> Any:
        type(self).before(f"info {path}")
        return super().info(path, **options)

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        type(self).before(f"open {path}")
        handle = open(self._strip_protocol(path), mode, buffering=0)  # noqa: SIM115
        return _FlakyFile(handle)


class _FlakyFile:
    def __init__(self, handle: Any):
        self._handle = handle

    def read(self, size: int = -1) -> bytes:
        FlakyFileSystem.before(f"read {self._handle.name}")
        return self._handle.read(size)  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    def __enter__(self) -> "_FlakyFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.close()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(retrying, "LONGEST_PAUSE_S", 0.01)


@pytest.fixture
def flaky(monkeypatch: pytest.MonkeyPatch) -> type[FlakyFileSystem]:
    fsspec.register_implementation("flaky", FlakyFileSystem, clobber=True)
    monkeypatch.setattr(FlakyFileSystem, "before", staticmethod(lambda _: None))
    return FlakyFileSystem


def every(number: int, error: Exception, others: tuple[str, ...] = ()) -> Callable[[str], None]:
    """Fail the first call and each so manieth after it, but for others; count what failed."""
    told = SimpleNamespace(calls=0, failures=0)

    def before(call: str) -> None:
        if call.startswith(others):
            return
        told.calls += 1
        if (told.calls - 1) % number == 0:
            told.failures += 1
            raise error

    before.told = told  # type: ignore[attr-defined]
    return before


def stream(dataset: Dataset, **options: Any) -> list[Batch]:
    with Loader(dataset, batch_size=32, seed=3, **options) as loader:
        return list(loader)


def assert_same(left: list[Batch], right: list[Batch]) -> None:
    assert len(left) == len(right) > 0
    for a, b in zip(left, right, strict=True):
        assert torch.equal(a.categorical, b.categorical)
        assert torch.equal(a.continuous, b.continuous)
        assert a.label is not None
        assert b.label is not None
        assert torch.equal(a.label, b.label)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "error",
    [STALE, TimeoutError(errno.ETIMEDOUT, "timed out"), ConnectionResetError("reset by peer")],
    ids=["stale", "timeout", "reset"],
)
def test_a_stream_with_failures_is_the_stream_without(
    write_table: Any, schema: Schema, flaky: Any, error: Exception, threads: int
) -> None:
    table = Path(write_table(SIZES))
    expected = stream(Dataset(str(table), schema))
    before = flaky.before = staticmethod(every(5, error, ("list", "info")))
    table_ = read_footers(f"flaky://{table}", schema, retry_s=60)
    found = stream(Dataset.of(table_, schema), retry_s=60, decode_threads=threads)
    assert vars(before.__func__)["told"].failures > 3
    assert_same(found, expected)
    assert not is_retrying()


def test_a_failure_is_told_with_file_row_group_try_and_pause(
    write_table: Any, schema: Schema, flaky: Any, caplog: pytest.LogCaptureFixture
) -> None:
    table = Path(write_table([[71]]))  # of several, any may be asked for first
    dataset = Dataset(f"flaky://{table}", schema)
    failures = iter([STALE])

    def before(_: str) -> None:
        if (error := next(failures, None)) is not None:
            raise error

    flaky.before = staticmethod(before)
    stream(dataset, decode_threads=1, shuffle="none")
    (line,) = [record.getMessage() for record in caplog.records]
    assert "Stale file handle" in line
    assert f"(file flaky://{table}/part_0.parquet, row group 0); try 1 failed, the next in" in line


def test_a_storage_that_stays_away_is_told_as_such(
    write_table: Any, schema: Schema, flaky: Any
) -> None:
    table = Path(write_table([[40, 31]]))
    dataset = Dataset(f"flaky://{table}", schema)
    flaky.before = staticmethod(every(1, STALE))
    with pytest.raises(Unavailable, match="Stale file handle") as caught:
        stream(dataset, retry_s=0.05, decode_threads=1, shuffle="none", lanes=1)
    assert caught.value.where == {"file": f"flaky://{table}/part_0.parquet", "row group": 0}
    with pytest.raises(Unavailable) as caught:
        read_footers(f"flaky://{table}", schema, retry_s=0.05)
    assert caught.value.where == {"path": f"flaky://{table}"}  # as it could not be listed


@pytest.mark.parametrize(
    "error", [FileNotFoundError("gone"), PermissionError("no"), OSError("Corrupt data")]
)
def test_what_does_not_pass_ends_the_stream_at_once(
    write_table: Any, schema: Schema, flaky: Any, error: Exception
) -> None:
    table = Path(write_table([[40, 31]]))
    dataset = Dataset(f"flaky://{table}", schema)
    before = flaky.before = staticmethod(every(1, error))
    with pytest.raises(DataError):
        stream(dataset, retry_s=1e9, decode_threads=1)
    assert vars(before.__func__)["told"].calls < 20


def test_who_closes_the_loader_does_not_wait_for_the_storage(
    write_table: Any, schema: Schema, flaky: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Path(write_table([[40, 31]]))
    dataset = Dataset(f"flaky://{table}", schema)
    monkeypatch.setattr(retrying, "FIRST_PAUSE_S", 1e6)
    monkeypatch.setattr(retrying, "LONGEST_PAUSE_S", 1e6)
    failed = threading.Event()

    def before(_: str) -> None:
        failed.set()
        raise STALE

    flaky.before = staticmethod(before)
    with Loader(dataset, batch_size=32, retry_s=1e9).epoch(0):
        assert failed.wait(60)
    assert not is_retrying()


def test_local_files_are_waited_for_as_well(
    write_table: Any, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = Dataset(str(write_table(SIZES)), schema)
    expected = stream(dataset)
    before = every(3, STALE)
    look = os.stat

    def stat(path: Any, *args: Any, **options: Any) -> Any:
        if str(path).endswith(".parquet"):
            before(str(path))
        return look(path, *args, **options)

    monkeypatch.setattr("distrain.loader.reading.reader.os", SimpleNamespace(stat=stat))
    assert_same(stream(dataset), expected)
    assert before.told.failures > 2  # type: ignore[attr-defined]


def test_packed_files_are_waited_for_as_well(
    write_table: Any, schema: Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack(str(write_table(SIZES)), schema, tmp_path / "packed")
    dataset = Dataset(str(tmp_path / "packed"), schema)
    expected = stream(dataset)
    before = every(7, OSError(errno.EIO, "Input/output error"))
    read = os.preadv

    def preadv(*args: Any) -> int:
        before("read")
        return read(*args)

    monkeypatch.setattr("distrain.loader.packed.raw_file.os.preadv", preadv)
    loader = Loader(dataset, batch_size=32, seed=3)
    assert loader.reader_choice.name == "packed"
    with contextlib.closing(loader):
        assert_same(list(loader), expected)
    assert before.told.failures  # type: ignore[attr-defined]


def test_cudf_tells_a_storage_that_does_not_answer(
    write_table: Any, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pylibcudf", pylibcudf)
    monkeypatch.setattr("distrain.loader.cudf_reader._StreamHandle", lambda _: CpuStreams())
    table = read_footers(str(write_table([[40]])), schema)
    columns = wanted_columns(schema, need_label=True)
    reader = CudfReader(columns, torch.device("cpu"), None)  # type: ignore[arg-type]

    def broken(*_: Any) -> Any:
        raise RuntimeError("cannot read: Input/output error")

    monkeypatch.setattr(pylibcudf.io.parquet_metadata, "read_parquet_footers", broken)
    with pytest.raises(Unavailable, match="Input/output error") as caught:
        reader.read(table.row_groups[0])
    assert caught.value.where["row group"] == 0


@pytest.mark.parametrize("pattern", ["", "/*.parquet", "/part_*", "/part_0.parquet"])
@pytest.mark.parametrize("what", ["list", "info"])
def test_what_cannot_be_listed_now_is_not_taken_for_missing(
    write_table: Any, schema: Schema, flaky: Any, pattern: str, what: str
) -> None:
    table = Path(write_table(SIZES))
    seen = 0

    def before(call: str) -> None:
        nonlocal seen
        seen += call.startswith(what)
        if call.startswith(what) and seen <= 2:
            raise STALE

    flaky.before = staticmethod(before)
    files = list_inputs(f"flaky://{table}{pattern}", suffixes=(".parquet",), retry_s=60)
    assert len(files) == (1 if pattern == "/part_0.parquet" else len(SIZES))
    assert seen != 1
