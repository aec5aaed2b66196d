"""Row groups of remote files, fetched ahead: what is asked for, what is held, what comes out."""

import errno
import gc
import itertools
import os
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st
from same_batches import assert_same
from watched_files import WatchedFileSystem
from wording import Wording

from distrain.errors import DataError
from distrain.loader import Dataset, FetchOptions, Loader
from distrain.loader.batch import Batch
from distrain.loader.partition.table import RowGroup, Slice
from distrain.loader.reading import fetcher as fetcher_module
from distrain.loader.reading.fetcher import Fetcher
from distrain.loader.reading.partial_file import PartialFile, Span, plan_ranges
from distrain.schema import Schema
from distrain.storage import retrying

SIZES = [[40, 31, 64], [50], [33, 70, 12, 9]]
SMALL = FetchOptions(connections=3, range_bytes=200, gap_bytes=16, ahead_bytes=4000)
spans = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 60)), max_size=12)


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> type[WatchedFileSystem]:
    WatchedFileSystem.reset()
    monkeypatch.setattr(retrying, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(retrying, "LONGEST_PAUSE_S", 0.002)
    return WatchedFileSystem


def stream(paths: str, schema: Schema, **options: Any) -> list[Batch]:
    options = {"seed": 3, "lanes": 4, "batch_size": 32} | options
    with Loader(Dataset(paths, schema), **options) as loader:
        return [*loader.epochs(2)]


@given(pairs=spans, gap=st.integers(0, 20), most=st.integers(1, 50))
@settings(max_examples=20)
def test_ranges_hold_what_is_needed_and_only_short_gaps(
    pairs: list[tuple[int, int]], gap: int, most: int
) -> None:
    wanted = [Span(begin, begin + count) for begin, count in pairs]
    ranges = plan_ranges(wanted, gap_bytes=gap, most_bytes=most)
    assert all(0 < span.num_bytes <= most for span in ranges)
    needed = {byte for span in wanted for byte in range(*span)}
    got = [byte for span in ranges for byte in range(*span)]
    assert got == sorted(set(got))  # in order, none twice
    assert needed <= set(got)
    for byte in set(got) - needed:  # each lies in a gap between two needed ones that is short
        before, after = max(b for b in needed if b < byte), min(b for b in needed if b > byte)
        assert after - before - 1 <= gap
    for left, right in itertools.pairwise(ranges):
        if left.end == right.begin:  # parts of one that was too long
            assert left.num_bytes + right.num_bytes > most
        else:
            assert right.begin - left.end > gap


def test_an_image_is_read_like_the_file() -> None:
    partial_file = PartialFile(1 << 40)
    partial_file.write(1 << 39, b"in the middle")
    with open(partial_file.path, "rb") as handle:
        assert handle.seek(0, 2) == 1 << 40
        handle.seek((1 << 39) - 1)
        assert handle.read(9) == b"\0in the m"
        del partial_file
        handle.seek(1 << 39)
        assert handle.read(13) == b"in the middle"


def test_nobody_finds_an_image_that_is_being_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    partial_file, found, close = PartialFile(10), [], os.close
    reference = weakref.ref(partial_file)

    def closed(number: int) -> None:
        found.append(reference())  # as another thread may look for it, too
        close(number)

    monkeypatch.setattr("distrain.loader.reading.partial_file.os.close", closed)
    del partial_file
    assert found == [None]


@given(
    sizes=st.lists(st.integers(1, 90), min_size=7, max_size=7),
    bound=st.integers(0, 200),
    kept=st.sets(st.integers(0, 6)),
)
@settings(max_examples=20, deadline=None)
def test_no_more_is_held_than_the_bound_or_one_row_group(
    one_file: str,
    sizes: list[int],
    bound: int,
    kept: set[int],
) -> None:
    url = f"watched://{one_file}"
    options = FetchOptions(connections=1, range_bytes=40, gap_bytes=0, ahead_bytes=bound)
    fetcher = Fetcher(lambda group, *_: [Span(0, sizes[group.index])], options)
    groups = [RowGroup(url, number, 10) for number in range(7)]
    with open(url.removeprefix("watched://"), "rb") as handle:
        content = handle.read()
    expected = fetcher.expect(iter(groups))
    taken = 0
    for number, group in enumerate(groups):
        settled(fetcher)
        ahead = [one for one in fetcher._wanted.values() if one.is_started and not one.is_taken]
        assert sum(one.num_bytes for one in ahead) <= bound or len(ahead) == 1
        assert [one.group for one in ahead] == groups[number : number + len(ahead)]
        assert all(one.is_over for one in ahead)
        if number in kept:  # the others are passed over
            partial_file = fetcher.take(group)
            with open(partial_file.path, "rb") as handle:
                assert handle.read(sizes[number]) == content[: sizes[number]]
            taken += 1
        expected.passed(number + 1)
    settled(fetcher)
    assert not fetcher._wanted
    assert taken == len(kept)
    fetcher.close()


def settled(fetcher: Fetcher) -> None:
    """Wait until nothing is being asked for."""
    with fetcher._changed:
        assert fetcher._changed.wait_for(lambda: not fetcher._num_threads, 60)


@pytest.fixture(scope="module")
def one_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("fetching") / "a.parquet"
    pq.write_table(pa.table({"a": range(70)}), path, row_group_size=10)
    return str(path)


@pytest.mark.parametrize("shuffle", ["chunk", "none", "full"])
@pytest.mark.parametrize(("large_rows", "long_bytes"), [(24, 1 << 20), (1 << 20, 1 << 20), (24, 0)])
def test_batches_are_those_of_the_local_files(
    write_table: Any,
    schema: Schema,
    monkeypatch: pytest.MonkeyPatch,
    shuffle: str,
    large_rows: int,
    long_bytes: int,
) -> None:
    monkeypatch.setattr("distrain.loader.reading.sliced_footer.LONG_BYTES", long_bytes)
    monkeypatch.setattr("distrain.loader.dataset.LARGE_ROWS", large_rows)
    local = str(write_table(SIZES))
    expected = stream(local, schema, shuffle=shuffle)
    for fetch in (SMALL, FetchOptions()):
        found = stream(f"watched://{local}", schema, shuffle=shuffle, decode_threads=3, fetch=fetch)
        assert_same(found, expected)


def test_each_byte_is_asked_for_once_and_few_requests_bring_it(
    write_table: Any, schema: Schema, asked: type[WatchedFileSystem]
) -> None:
    local = Path(write_table([[400, 310], [500]]))
    with Loader(Dataset(f"watched://{local}", schema), batch_size=32) as loader:
        asked.reads.clear()
        list(loader)
    # Of each file its footer, and of each row group one range.
    assert len(asked.reads) == 2 + 3
    size = sum(file.stat().st_size for file in local.glob("*.parquet"))
    assert sum(count for _, _, count in asked.reads) <= 2 * size


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("every", [2, 5])
def test_whatever_fails_on_the_way_the_batches_are_the_same(
    write_table: Any, schema: Schema, asked: type[WatchedFileSystem], threads: int, every: int
) -> None:
    local = str(write_table(SIZES))
    errors: list[Exception] = [
        ConnectionResetError("reset by peer"),
        OSError(errno.ESTALE, "Stale file handle"),
        TimeoutError(errno.ETIMEDOUT, "timed out"),
    ]
    dataset = Dataset(f"watched://{local}", schema)
    failed = []

    def before(number: int) -> None:
        if number % every == 0:
            failed.append(number)
            raise errors[number % len(errors)]

    asked.before_read = staticmethod(before)
    with Loader(
        dataset, seed=3, lanes=4, batch_size=32, decode_threads=threads, fetch=SMALL, retry_s=60
    ) as loader:
        found = [*loader.epochs(2)]
    assert len(failed) > 5
    assert_same(found, stream(local, schema))


def test_what_cannot_be_fetched_is_named(
    write_table: Any, schema: Schema, asked: type[WatchedFileSystem], wording: Wording
) -> None:
    local = str(write_table([[40, 31, 64]]))
    dataset = Dataset(f"watched://{local}", schema)

    def before(number: int) -> None:
        raise PermissionError("no request is allowed")

    asked.before_read = staticmethod(before)
    caught = wording.refused(
        DataError, lambda: list(Loader(dataset, batch_size=32, shuffle="none", lanes=1))
    )
    assert caught.where == {"file": f"watched://{local}/part_0.parquet", "row group": 0}


def test_an_epoch_that_is_left_asks_for_nothing_more(
    write_table: Any, schema: Schema, asked: type[WatchedFileSystem]
) -> None:
    local = str(write_table(SIZES))
    with Loader(Dataset(f"watched://{local}", schema), batch_size=8, fetch=SMALL) as loader:
        for _ in loader:
            break
        told = len(asked.reads)
        assert not fetching()
    assert len(asked.reads) == told


@pytest.mark.slow
def test_a_collection_in_a_fetching_thread_waits_for_no_loader(
    write_table: Any, schema: Schema, asked: type[WatchedFileSystem]
) -> None:
    dataset = Dataset(f"watched://{write_table(SIZES)}", schema)
    is_dropped, is_reading = threading.Event(), threading.Event()

    def before(number: int) -> None:
        if number == 3:
            is_reading.set()
            assert is_dropped.wait(60)
            gc.collect()  # finds the iterator whose threads wait for this one

    asked.reads.clear()
    asked.before_read = staticmethod(before)
    with Loader(dataset, batch_size=32, fetch=SMALL) as loader:
        cycle: list[Any] = [loader.epoch(0)]
        cycle.append(cycle)
        (thread,) = (one for one in threading.enumerate() if one.name == "loader")
        assert is_reading.wait(60)
        gc.disable()
        del cycle
        is_dropped.set()
        try:
            assert len(list(loader.epoch(1))) == len(loader)
            thread.join(60)
        finally:
            gc.enable()


def test_no_further_than_some_row_groups_ahead_is_looked() -> None:
    seen = itertools.count()
    fetcher = Fetcher(lambda *_: [Span(0, 20)])
    expected = fetcher.expect(None for _ in seen)  # all of them local
    assert next(seen) == fetcher_module._MOST_LOOKED_AT
    expected.passed(10)
    assert next(seen) == fetcher_module._MOST_LOOKED_AT + 11
    fetcher.close()


@pytest.mark.slow
def test_a_row_group_is_held_until_its_last_slice_has_passed(one_file: str) -> None:
    url = f"watched://{one_file}"
    fetcher = Fetcher(lambda *_: [Span(0, 20)])
    groups = [RowGroup(url, 0, 10, slice=Slice(number, 10, 40)) for number in (0, 2, 3)]
    expected = fetcher.expect(iter([*groups, RowGroup(url, 1, 10)]))
    for passed, late in enumerate(reversed(groups)):  # other threads were faster than the first
        partial_file = weakref.ref(fetcher.take(late))
        gc.collect()
        assert partial_file() is not None
        expected.passed(passed)
    whole = weakref.ref(fetcher.take(RowGroup(url, 1, 10)))
    assert whole() is None
    settled(fetcher)
    assert [one[1:] for one in WatchedFileSystem.reads].count(
        (0, 20)
    ) == 2  # of each row group, which have the same bytes here
    expected.passed(3)
    assert partial_file() is None
    fetcher.close()


def test_few_files_keep_connections(one_file: str, tmp_path: Path) -> None:
    fetcher = Fetcher(lambda *_: [Span(0, 20)])
    for number in range(40):
        (tmp_path / f"{number}.parquet").symlink_to(one_file)
        fetcher.take(RowGroup(f"watched://{tmp_path}/{number}.parquet", 0, 10))
    settled(fetcher)
    holding = [file for file in fetcher._files.values() if file._idle]
    assert len(holding) <= fetcher_module._FILES_WITH_HANDLES + 1
    fetcher.close()
    assert not [file for file in fetcher._files.values() if file._idle]


def fetching() -> list[threading.Thread]:
    """Threads that fetch, without those that have nothing more to do and are about to end."""
    threads = [one for one in threading.enumerate() if one.name == "fetch"]
    for one in threads:
        one.join(60)
    return [one for one in threads if one.is_alive()]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert not fetching()
