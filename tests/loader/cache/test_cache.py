"""The cache: hits are what the reader gave; nothing that happens to it ends a run."""

import errno
import logging
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cache_tables import (
    COLUMNS,
    SCHEMA,
    PlainReader,
    assert_same_cells,
    float32_cells,
    make_table,
    read_group,
)

from distrain.errors import DataError
from distrain.loader.cache.entry import EntryFile, EntryWriter
from distrain.loader.cache.row_group_cache import CacheCounters, RowGroupCache
from distrain.loader.partition.footers import read_footers
from distrain.loader.partition.table import RowGroup
from distrain.loader.partition.wanted_columns import WantedColumn
from distrain.loader.reading.reader import DecodedColumns
from distrain.storage.identity import file_identity

GIB = 1 << 30


def assert_kept(cells, expected):
    """Ids may be narrower than those of other readers."""
    assert_same_cells([c.astype(np.int32) if c.dtype.kind == "u" else c for c in cells], expected)


@pytest.fixture
def groups(source):
    return read_footers(str(source), SCHEMA).row_groups


@pytest.fixture
def cache(tmp_path):
    return RowGroupCache(COLUMNS, tmp_path / "cache", GIB)


def entries(folder):
    return [path for path in Path(folder).iterdir() if path.suffix == ".rows"]


def read_epoch(cache, groups, reader=None):
    reader = reader or PlainReader()
    parts = [read_group(cache, group, reader) for group in groups]
    return [np.concatenate(columns) for columns in zip(*parts, strict=True)]


def test_the_second_epoch_comes_from_the_cache(cache, groups, tmp_path):
    first, second = read_epoch(cache, groups), read_epoch(cache, groups)
    assert_kept(second, float32_cells(make_table(500)))
    for before, after, column in zip(first, second, COLUMNS, strict=True):
        kind = np.int32 if column.kind == "id" else np.float32
        np.testing.assert_array_equal(before.astype(kind), after)
    size = sum(path.stat().st_size for path in entries(tmp_path / "cache"))
    num = len(groups)
    assert cache.counters == CacheCounters(hits=num, misses=num, bytes_written=size)


def test_other_columns_or_another_policy_are_other_entries(cache, groups, tmp_path):
    read_epoch(cache, groups)
    filled = [WantedColumn(c.name, c.kind, c.cardinality, fill_null=0) for c in COLUMNS]
    for columns in (COLUMNS[:3], COLUMNS[::-1], filled):
        other = RowGroupCache(columns, tmp_path / "cache", GIB)
        read_epoch(other, groups[:1])
        assert other.counters.misses == 1
        found = read_epoch(other, groups[:1])
        assert_kept(found, float32_cells(make_table(500)[:120], columns))
        assert other.counters.hits == 1


def test_a_changed_source_is_read_anew(cache, groups, source):
    read_epoch(cache, groups)
    changed = make_table(300, seed=1)
    pq.write_table(changed, source / "part-0.parquet", row_group_size=120)
    again = read_epoch(cache, groups[:3])
    assert_kept([again[2].astype(np.float32)], [float32_cells(changed)[2]])
    assert cache.counters.hits == 0
    assert_kept(read_epoch(cache, groups[:3]), float32_cells(changed))


def test_a_source_that_changes_while_it_is_read_is_not_kept(groups, source, tmp_path):
    class Changing(PlainReader):
        def read(self, group, columns):
            yield from super().read(group, columns)
            os.utime(group.file, ns=(0, self.reads))

    read_epoch(RowGroupCache(COLUMNS, tmp_path / "cache", GIB), groups[:1], Changing())
    assert not list((tmp_path / "cache").iterdir())


@pytest.mark.parametrize(
    ("name", "value"), [("user", 1000), ("user", -1), ("price", np.nan), ("clicked", 0.5)]
)
def test_values_that_training_refuses_are_handed_on_and_not_kept(groups, tmp_path, name, value):
    class Wrong(PlainReader):
        def read(self, group, columns):
            (part,) = super().read(group, columns)
            cells = list(part.cells)
            place = [column.name for column in COLUMNS].index(name)
            cells[place] = cells[place].astype(np.int64 if name == "user" else np.float64)
            cells[place][7] = value
            yield DecodedColumns(tuple(cells))

    cache = RowGroupCache(COLUMNS, tmp_path / "cache", GIB)
    place = [column.name for column in COLUMNS].index(name)
    for _ in range(2):
        np.testing.assert_array_equal(read_group(cache, groups[0], Wrong())[place][7], value)
    assert cache.counters == CacheCounters(misses=2)


# What happens to entries.


def damage(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 16
    path.unlink()  # what is open stays as it was
    path.write_bytes(content)


def test_a_flipped_byte_anywhere_is_noticed_or_not_read(source, tmp_path, caplog):
    """Each entry is whole, so that damage in a column that was not read yet is noticed, too."""
    pq.write_table(make_table(9), source / "small.parquet")
    group = RowGroup(str(source / "small.parquet"), 0, 9)
    expected = float32_cells(make_table(9))
    read_epoch(RowGroupCache(COLUMNS, tmp_path / "cache", GIB), [group])
    (path,) = entries(tmp_path / "cache")
    good = path.read_bytes()
    used = [*range(len(good))]
    for before, after in pairwise(runs_of(path)):
        used = [place for place in used if not before[1] <= place < after[0]]  # the gaps
    for place in range(len(good)):
        path.write_bytes(good)
        damage(path, place)
        fresh = RowGroupCache(COLUMNS, tmp_path / "cache", GIB)
        for cells, wanted in zip(read_epoch(fresh, [group]), expected, strict=True):
            np.testing.assert_array_equal(cells.astype(wanted.dtype), wanted)
        assert fresh.counters.corrupt == fresh.counters.misses == (place in used), place
    assert caplog.text.count("damaged entry") == len(used)


def runs_of(path):
    """First byte and one past the last byte of each run of values of an entry, and of its list."""
    file = EntryFile(str(path), COLUMNS, 9)
    runs = [(values.start, values.start + values.num_bytes) for values in file.cells]
    return [*runs, (runs[-1][1], file.num_bytes)]


@pytest.mark.parametrize("lengths", [[4, -1, 1], [1, 1, 1], [3, 1, 1], [2**31 - 1, 1, 4]])
def test_lengths_made_to_mislead_are_refused_whatever_their_checksum(tmp_path, lengths, wording):
    items = WantedColumn("tags", "id", 1000, is_list=True)
    lists = Mock()
    lists.value_lengths.return_value = pa.array(lengths, pa.int32())
    lists.flatten.return_value = pa.array([5, 6, 7, 8], pa.int32())
    entry = EntryWriter(tmp_path / "a.rows", [items])
    entry.add(DecodedColumns((), (lists,), 0))
    entry.finish()
    entry.close()
    wording.refused(
        DataError,
        lambda: list(EntryFile(str(tmp_path / "a.rows"), [items], 3).read(0)),
        file=str(tmp_path / "a.rows"),
    )


def test_of_a_damaged_entry_whole_columns_are_used_and_the_rest_is_read(source, tmp_path):
    columns = tuple(WantedColumn(f"c{number}", "id") for number in range(20))
    table = pa.table({c.name: np.arange(9, dtype=np.int32) + n for n, c in enumerate(columns)})
    pq.write_table(table, source / "wide.parquet")
    group = RowGroup(str(source / "wide.parquet"), 0, 9)
    cache, reader = RowGroupCache(columns, tmp_path / "cache", GIB), PlainReader()
    read_epoch(cache, [group], reader)
    (path,) = entries(tmp_path / "cache")
    damage(path, 18 * 64)  # of column 18, which comes with the second part
    for hits in (0, 0, 1):  # the second writes the entry again
        found = read_epoch(cache, [group], reader)
        assert [column.tolist() for column in found] == [c.to_pylist() for c in table.columns]
        assert (cache.counters.corrupt, cache.counters.hits) == (1, hits)
    assert reader.reads == 3


def test_what_an_entry_holds_is_read_once_as_long_as_it_is_the_same(
    cache, groups, tmp_path, monkeypatch
):
    expected = read_epoch(cache, groups)
    looked = []
    read_list = EntryFile._read_list
    monkeypatch.setattr(
        EntryFile, "_read_list", lambda file: looked.append(file.path) or read_list(file)
    )
    for _ in range(2):
        for before, after in zip(expected, read_epoch(cache, groups), strict=True):
            np.testing.assert_array_equal(before.astype(after.dtype), after)
        cache.close()
    assert len(looked) == len(groups)
    changed = entries(tmp_path / "cache")[0]
    content = changed.read_bytes()
    changed.unlink()
    changed.write_bytes(content)
    read_epoch(cache, groups)
    assert looked[len(groups) :] == [str(changed)]
    assert (cache.counters.misses, cache.counters.corrupt) == (len(groups), 0)


def test_an_entry_stays_where_the_process_has_too_many_files_open(
    cache, groups, tmp_path, monkeypatch
):
    read_epoch(cache, groups[:1])
    fresh = RowGroupCache(COLUMNS, tmp_path / "cache", GIB)

    def refuse(path, *_):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    with monkeypatch.context() as patch:
        patch.setattr("distrain.loader.cache.row_group_cache.EntryFile", refuse)
        read_epoch(fresh, groups[:1])
    read_epoch(fresh, groups[:1])
    assert (fresh.counters.hits, fresh.counters.misses, fresh.counters.corrupt) == (1, 1, 0)


def entry_bytes(groups, tmp_path):
    probe = RowGroupCache(COLUMNS, tmp_path / "probe", GIB)
    read_epoch(probe, groups[:1])
    return probe.counters.bytes_written


def test_what_was_not_used_for_longest_goes_first(groups, tmp_path):
    bound = int(2.6 * entry_bytes(groups, tmp_path))
    cache = RowGroupCache(COLUMNS, tmp_path / "cache", bound)
    for number in (0, 1, 0, 3):  # 1 must go for 3
        read_group(cache, groups[number], PlainReader())
    assert cache.counters == CacheCounters(1, 3, cache.counters.bytes_written, 1, 0)
    read_group(cache, groups[0], PlainReader())
    assert cache.counters.hits == 2
    read_group(cache, groups[1], PlainReader())
    assert cache.counters.misses == 4


def test_what_dead_processes_left_is_removed(groups, tmp_path):
    bound = int(1.2 * entry_bytes(groups, tmp_path))
    cache = RowGroupCache(COLUMNS, tmp_path / "cache", bound)
    read_group(cache, groups[0], PlainReader())
    (tmp_path / "cache" / ".partial-old").write_bytes(b"x" * 10)
    os.utime(tmp_path / "cache" / ".partial-old", (0, 0))
    (tmp_path / "cache" / ".partial-new").write_bytes(b"x" * 10)
    read_group(cache, groups[1], PlainReader())
    left = {path.name for path in (tmp_path / "cache").iterdir()}
    assert ".partial-new" in left
    assert ".partial-old" not in left


def test_where_nothing_can_be_kept_that_is_told_once(groups, tmp_path, caplog, monkeypatch):
    (tmp_path / "file").write_text("")
    for folder, bound, told in (
        (tmp_path / "small", 100, "max_bytes=100"),
        (tmp_path / "file" / "cache", GIB, "no more entries"),
        (tmp_path / "full", GIB, "No space left on device"),
    ):
        caplog.clear()
        if folder.name == "full":
            no_space = OSError(28, "No space left on device")
            refusing = Mock(side_effect=no_space)
            monkeypatch.setattr("distrain.loader.cache.entry.EntryWriter._write", refusing)
        cache = RowGroupCache(COLUMNS, folder, bound)
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                found = read_epoch(cache, groups)
        np.testing.assert_array_equal(found[0], float32_cells(make_table(500))[0])
        assert caplog.text.count(told) == 1
        assert cache.counters == CacheCounters(misses=2 * len(groups))
        assert not list(folder.glob("*"))


CHILD = """
import sys, numpy as np
from cache_tables import COLUMNS, SCHEMA, PlainReader, float32_cells, make_table, read_group
from distrain.loader.cache.row_group_cache import RowGroupCache
from distrain.loader.partition.footers import read_footers
folder, cache, bound, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
groups = read_footers(folder, SCHEMA).row_groups
starts = np.cumsum([0, *(group.num_rows for group in groups)])
expected = float32_cells(make_table(500))
cached = RowGroupCache(COLUMNS, cache, bound)
for number in np.random.default_rng(seed).integers(0, len(groups), 150):
    cells = read_group(cached, groups[number], PlainReader())
    for column, values, want in zip(COLUMNS, cells, expected):
        rows = want[starts[number]:starts[number + 1]]
        assert np.array_equal(values.astype(want.dtype), rows), column
now = cached.counters
assert now.hits + now.misses == 150 and now.corrupt == 0, now
print(now.hits, now.evictions)
"""


@pytest.mark.slow
def test_processes_share_a_cache_that_is_too_small(groups, source, tmp_path):
    bound = int(2.5 * entry_bytes(groups, tmp_path))
    support = Path(__file__).resolve().parents[2] / "support"
    roots = [str(support), str(Path(__file__).resolve().parents[3])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(roots)}
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, source, tmp_path / "cache", str(bound), str(seed)],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in range(3)
    ]
    largest, running = 0, True
    while running:
        running = any(child.poll() is None for child in children)
        largest = max(largest, *(total_bytes(tmp_path / "cache") for _ in range(2)))
    outputs = [child.communicate() for child in children]
    assert [child.returncode for child in children] == [0, 0, 0], outputs
    hits, evictions = np.array([out.split() for out, _ in outputs], int).sum(axis=0)
    assert hits > 0
    assert evictions > 0
    assert 0 < largest <= bound
    assert not list((tmp_path / "cache").glob(".partial*"))


def total_bytes(folder):
    """Entries' size; what is renamed while we look may be missed, but is never seen twice."""
    total = 0
    for path in folder.glob("*.rows"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            return 0  # what was counted before may be gone as well
    return total


# What tells one version of a file from another.


def test_a_remote_file_has_a_version_or_is_not_kept(wording):
    import fsspec

    class Versioned(fsspec.AbstractFileSystem):
        protocol = "versioned"

        def info(self, path, **_):
            if "broken" in path:
                raise RuntimeError("the server is down")
            version = {} if "bare" in path else {"ETag": f'"{tags[-1]}"'}
            return {"name": path, "size": 5, "type": "file", **version}

    tags = ["abc"]
    fsspec.register_implementation("versioned", Versioned, clobber=True)
    assert "abc" in file_identity("versioned://bucket/a.parquet")
    tags.append("def")  # a later run in the same process meets another version
    assert "def" in file_identity("versioned://bucket/a.parquet")
    assert file_identity("versioned://bucket/bare.parquet") is None
    wording.refused(OSError, lambda: file_identity("versioned://bucket/broken.parquet"))


@pytest.mark.parametrize(
    ("largest", "dtype"),
    [(255, "u1"), (256, "<u2"), (65_535, "<u2"), (65_536, "<i4"), (2**31 - 1, "<i4"), (-1, "<i4")],
)
def test_ids_are_kept_as_narrow_as_the_largest_of_them(tmp_path, largest, dtype):
    table = pa.table({"a": pa.array([3, largest, 0], pa.int32())})
    pq.write_table(table, tmp_path / "a.parquet")
    columns = (WantedColumn("a", "id"),)
    cache = RowGroupCache(columns, tmp_path / "cache", GIB)
    group = RowGroup(str(tmp_path / "a.parquet"), 0, 3)
    read_group(cache, group, PlainReader())
    (cells,) = read_group(cache, group, PlainReader())
    assert cache.counters.hits == 1
    assert (cells.dtype, cells.tolist()) == (np.dtype(dtype), [3, largest, 0])
