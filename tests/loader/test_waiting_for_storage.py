"""A storage that does not always answer: the same stream, later; or an error that says so."""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from same_batches import assert_same
from watched_files import WatchedFileSystem

from distrain.loader import Dataset, Loader
from distrain.loader.batch import Batch
from distrain.schema import Schema
from distrain.storage import retrying
from distrain.storage.inputs import list_inputs
from distrain.storage.retrying import is_retrying

SIZES = [[40, 31], [64], [50, 33]]
STALE = OSError(errno.ESTALE, "Stale file handle")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(retrying, "LONGEST_PAUSE_S", 0.01)


@pytest.fixture
def flaky() -> type[WatchedFileSystem]:
    WatchedFileSystem.reset()
    return WatchedFileSystem


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


def test_a_failure_is_told_with_file_row_group_try_and_pause(
    write_table: Any, schema: Schema, flaky: Any, caplog: pytest.LogCaptureFixture
) -> None:
    table = Path(write_table([[71]]))  # of several, any may be asked for first
    dataset = Dataset(f"watched://{table}", schema)
    failures = iter([STALE])

    def before(_: str) -> None:
        if (error := next(failures, None)) is not None:
            raise error

    flaky.before = staticmethod(before)
    stream(dataset, decode_threads=1, shuffle="none")
    (line,) = [record.getMessage() for record in caplog.records]
    assert "Stale file handle" in line
    assert (
        f"(file watched://{table}/part_0.parquet, row group 0); try 1 failed, the next in" in line
    )


def test_who_closes_the_loader_does_not_wait_for_the_storage(
    write_table: Any, schema: Schema, flaky: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Path(write_table([[40, 31]]))
    dataset = Dataset(f"watched://{table}", schema)
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

    monkeypatch.setattr("distrain.loader.reading.source.os", SimpleNamespace(stat=stat))
    assert_same(stream(dataset), expected)
    assert before.told.failures > 2  # type: ignore[attr-defined]


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
    files = list_inputs(f"watched://{table}{pattern}", suffixes=(".parquet",), retry_s=60)
    assert len(files) == (1 if pattern == "/part_0.parquet" else len(SIZES))
    assert seen != 1
