"""Row groups that several processes of a machine fetch: who fetches what, and what is left."""

import multiprocessing
import os
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from same_batches import assert_same
from watched_files import WatchedFileSystem

from distrain.loader import Dataset, Loader
from distrain.loader.batch import Batch
from distrain.loader.reading import fetcher as fetcher_module, shared_partial_file as module
from distrain.loader.reading.partial_file import PartialFile, Span
from distrain.loader.reading.shared_partial_file import SharedPartialFile, shared_partial_file
from distrain.schema import ColumnSchema, Schema, Tags

CONTENT = bytes(range(256))
RANGES = [Span(0, 100), Span(100, 200)]
FOOTER = Span(200, 256)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "_FOLDER", tmp_path)
    monkeypatch.setattr(module, "_LEAST_BYTES", 1)
    monkeypatch.setattr(module, "_FREE_PART", 0.0)
    return tmp_path / f"distrain-fetched-{os.getuid()}"


def partial_file_of(name: str = "a") -> SharedPartialFile:
    partial_file = shared_partial_file(name, len(CONTENT), RANGES, FOOTER)
    assert partial_file is not None
    return partial_file


def read(begin: int, end: int) -> bytes:
    return CONTENT[begin:end]


def refused(begin: int, end: int) -> bytes:
    raise AssertionError(f"bytes {begin} to {end} are there")


def bytes_of(partial_file: PartialFile) -> bytes:
    return Path(partial_file.path).read_bytes()


def test_a_range_is_fetched_once_and_the_last_holder_removes_it(folder: Path) -> None:
    one, other = partial_file_of(), partial_file_of()
    one.bring(RANGES[0], read)
    other.bring(RANGES[0], refused)
    other.bring(RANGES[1], read)
    one.bring(RANGES[1], refused)
    assert bytes_of(one) == bytes_of(other) == CONTENT[:200] + bytes(56)
    del one
    partial_file_of().bring(RANGES[0], refused)
    assert len(list(folder.iterdir())) == 2
    del other
    assert not list(folder.iterdir())
    partial_file_of().bring(RANGES[0], read)


def test_other_versions_and_other_ranges_are_other_images() -> None:
    one, other = partial_file_of("version 1"), partial_file_of("version 2")
    one.bring(RANGES[0], read)
    other.bring(RANGES[0], lambda begin, end: bytes(end - begin))
    assert bytes_of(one)[:100] == CONTENT[:100]
    assert bytes_of(other) == bytes(256)


def test_who_comes_second_waits_for_the_first() -> None:
    one, other = partial_file_of(), partial_file_of()
    begun, finish = threading.Event(), threading.Event()

    def slowly(begin: int, end: int) -> bytes:
        begun.set()
        assert finish.wait(60)
        return read(begin, end)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(one.bring, RANGES[0], slowly)
        assert begun.wait(60)
        second = pool.submit(other.bring, RANGES[0], refused)
        finish.set()
        first.result()
        second.result()


def test_a_fetch_that_failed_is_made_by_another() -> None:
    one, other = partial_file_of(), partial_file_of()

    def failing(begin: int, end: int) -> bytes:
        raise OSError("reset")

    with pytest.raises(OSError, match="reset"):
        one.bring(RANGES[0], failing)
    other.bring(RANGES[0], read)
    one.bring(RANGES[0], refused)


def test_a_killed_process_leaves_neither_locks_nor_files(folder: Path) -> None:
    context = multiprocessing.get_context("fork")
    begun, begin_held = context.Event(), partial_file_of("held")

    def fetch() -> None:
        partial_file = partial_file_of()
        partial_file.bring(RANGES[0], read)

        def forever(begin: int, end: int) -> bytes:
            begun.set()
            threading.Event().wait()
            return b""

        partial_file.bring(RANGES[1], forever)

    process = context.Process(target=fetch)
    process.start()
    assert begun.wait(60)
    partial_file = partial_file_of()
    process.kill()
    process.join()
    partial_file.bring(RANGES[0], refused)
    partial_file.bring(RANGES[1], read)
    assert bytes_of(partial_file)[:200] == CONTENT[:200]
    del partial_file, begin_held
    process = context.Process(target=fetch)
    begun.clear()
    process.start()
    assert begun.wait(60)
    process.kill()
    process.join()
    assert len(list(folder.iterdir())) == 2
    other = partial_file_of("b")
    assert len(list(folder.iterdir())) == 2
    del other
    assert not list(folder.iterdir())


def test_marks_of_bytes_that_others_removed_do_not_count(folder: Path) -> None:
    one = partial_file_of()
    one.bring(RANGES[0], read)
    (data,) = (path for path in folder.iterdir() if not path.suffix)
    data.unlink()
    other = partial_file_of()
    other.bring(RANGES[0], read)
    assert bytes_of(other)[:100] == bytes_of(one)[:100] == CONTENT[:100]


def test_where_it_cannot_be_shared_it_is_not(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing() -> bool:
        return shared_partial_file("a", len(CONTENT), RANGES, FOOTER) is None

    with monkeypatch.context() as patched:
        patched.setattr(module, "_FREE_PART", 1.0)
        assert refusing()  # too full
    with monkeypatch.context() as patched:
        patched.setattr(module, "_LEAST_BYTES", 201)
        assert refusing()  # small
    assert not list(folder.iterdir())
    folder.chmod(0o755)
    assert refusing()  # others might look into it
    folder.rmdir()
    folder.symlink_to("/tmp")
    assert refusing()
    monkeypatch.setattr(module, "_FOLDER", folder / "none" / "none")
    assert refusing()


ROWS, RANKS = 140_000, 4


def of_all_ranks(url: str, schema: Schema) -> list[list[Batch]]:
    """The batches of ranks that go step by step, as a training does."""
    loaders = [
        Loader(Dataset(url, schema), global_batch_size=20_000, rank=rank, num_ranks=RANKS, seed=1)
        for rank in range(RANKS)
    ]
    try:
        steps = zip(*loaders, strict=True)
        return [list(batches) for batches in steps]
    finally:
        for loader in loaders:
            loader.close()


def test_ranks_read_no_byte_of_a_row_group_twice(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    WatchedFileSystem.reset()
    WatchedFileSystem.has_versions = True
    data = tmp_path / "data"
    data.mkdir()
    generator = torch.Generator().manual_seed(1)
    columns = {
        name: torch.randint(0, 2**20, (ROWS,), generator=generator).numpy() for name in ("c", "i")
    }
    table = pa.table({"label": pa.array([1.0, 0.0] * (ROWS // 2), pa.float32())} | columns)
    pq.write_table(table, data / "a.parquet", row_group_size=ROWS)
    schema = Schema((
        ColumnSchema("label", tags=(Tags.TARGET,)),
        ColumnSchema("c", tags=(Tags.CATEGORICAL,), cardinality=2**20),
        ColumnSchema("i", tags=(Tags.CONTINUOUS,)),
    ))  # fmt: skip
    held: list[SharedPartialFile | None] = []  # however far ranks are apart

    def holding(*wanted: Any) -> SharedPartialFile | None:
        held.append(shared_partial_file(*wanted))
        return held[-1]

    monkeypatch.setattr(fetcher_module, "shared_partial_file", holding)
    found = {}
    for is_shared in (True, False):
        monkeypatch.setattr(module, "_LEAST_BYTES", 1 if is_shared else 1 << 40)
        WatchedFileSystem.reads.clear()
        batches = of_all_ranks(f"watched://{data}", schema)
        row_groups = {
            key: n for key, n in Counter(WatchedFileSystem.reads).items() if key[1] < 100_000
        }
        found[is_shared] = batches, max(row_groups.values())
    held.clear()
    assert found[True][1] == 1
    assert found[False][1] == RANKS  # each rank for itself
    assert_same(found[True][0], found[False][0])
    assert not list(folder.iterdir())
