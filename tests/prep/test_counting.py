"""Values counted by tasks into files, and added up by pieces of their hashes' buckets."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st
from wording import Wording

from distrain.errors import InputError
from distrain.prep import Categorify, ColumnGroup, PrepRequest, PrepResult, Workflow, prepare
from distrain.prep.counting import spilled
from distrain.prep.counting.spilled import read_counts, write_buckets
from distrain.prep.memory import MemoryPlan, plan_memory
from distrain.prep.operators.categorify import BY_FREQUENCY
from distrain.prep.operators.counts import NUM_BUCKETS, Counts, added_up, buckets_of
from distrain.prep.sorted_runs import SortedRun, in_ranges


def test_buckets_are_the_stated_hash() -> None:
    values: tuple[list[Any], ...] = ([0, 1, -1, 2**40], ["", "a", "b", "x" * 300, "é-7"])
    for of_kind in values:
        wanted = [bucket(value) for value in of_kind]
        assert buckets_of(pa.array(of_kind)).tolist() == wanted
        assert buckets_of(pa.array([of_kind[-1], *of_kind]).slice(1)).tolist() == wanted
    assert buckets_of(pa.array(values[1], pa.large_string())).tolist() == wanted


def bucket(value: int | str) -> int:
    if isinstance(value, int):
        hashed = value * 0xBF58476D1CE4E5B9
    else:
        text = value.encode()
        hashed = sum(drawn(n % 64 * 256 + byte) for n, byte in enumerate(text)) + len(text)
    hashed %= 2**64
    return (hashed ^ hashed >> 32) * 0x9E3779B97F4A7C15 % 2**64 >> 52


def drawn(number: int) -> int:
    """A number of splitmix64."""
    x = (number + 1) * 0x9E3779B97F4A7C15 % 2**64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


@given(st.lists(st.tuples(st.sampled_from([0, 7, -(2**63), 2**63 - 1, 2**40]), st.integers(1, 3))))
@pytest.mark.parametrize("scale", [1, 2**33])
def test_integers_far_apart_and_large_counts_add_up(
    scale: int, pairs: list[tuple[int, int]]
) -> None:
    values = pa.array([value for value, _ in pairs], pa.int64())
    found = added_up(Counts(values, pa.array([scale * n for _, n in pairs], pa.int64())))
    wanted: Counter[int] = Counter()
    for value, count in pairs:
        wanted[value] += scale * count
    assert dict(zip(found.values.to_pylist(), found.counts.to_pylist(), strict=True)) == wanted


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Integers, strings and lists; some columns nearly unique, and gaps."""
    source = np.random.default_rng(1)
    number = source.integers(0, 1300, 2000)
    table = pa.table(
        {
            "label": source.integers(0, 2, 2000).astype(np.float32),
            "user": pa.array(number, mask=number % 50 == 0),
            "name": [f"{n}-é" if n % 7 else None for n in source.integers(0, 1000, 2000)],
            "first": source.integers(0, 300, 2000),
            "second": source.integers(0, 700, 2000),
        }
    )
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=100)
    return tmp_path / "rows.parquet"


def test_files_and_pieces_do_not_show_in_the_vocabularies(
    client: Any, tmp_path: Path, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = (
        ColumnGroup(("user", "name"), (Categorify(2, 400),)),
        ColumnGroup(("first", "second"), (Categorify(domain="item"),)),
    )

    def prepared(name: str, block_rows: int) -> PrepResult:
        request = PrepRequest(
            (str(rows),), tmp_path / name, workflow=Workflow(groups), block_bytes=block_rows * 256
        )
        return prepare(request, client)

    def rows_of(result: PrepResult) -> pa.Table:
        return pq.read_table(result.out / "train")

    def content(result: PrepResult) -> dict[str, bytes]:
        folder = result.out / "workflow" / "categories"
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    whole = prepared("whole", 10_000)
    expected = content(whole)
    assert set(expected) == {f"{k}.{c}.parquet" for k in ("unique", "meta") for c in
                             ("user", "name", "item")}  # fmt: skip
    table = pq.read_table(rows)
    values = [v for column in ("first", "second") for v in table[column].to_pylist()]
    assert whole.cardinalities["first"] == whole.cardinalities["second"] == 3 + len(set(values))
    written: list[str] = []
    monkeypatch.setattr(MemoryPlan, "held_bytes", 2_000)
    monkeypatch.setattr(MemoryPlan, "piece_bytes", 3_200)
    write = spilled.write_buckets
    monkeypatch.setattr(
        spilled, "write_buckets", lambda rows, path: (written.append(path), write(rows, path))
    )
    pieces = prepared("pieces", 100)
    assert len(written) > 30
    assert content(pieces) == expected
    assert rows_of(pieces).equals(rows_of(whole))
    assert pieces.cardinalities == whole.cardinalities
    assert not list(tmp_path.rglob("*.arrow"))


RUNS = st.lists(
    st.dictionaries(st.integers(-9, 9), st.integers(1, 3), max_size=12), min_size=1, max_size=4
)


@settings(max_examples=15, deadline=None)
@given(RUNS, st.integers(1, 30), st.booleans())
def test_runs_come_in_one_order_and_no_range_is_too_large(
    runs: list[dict[int, int]], most: int, text: bool
) -> None:
    # A value of a run gets the run's number: no two runs have the same values.
    tables = []
    for number, run in enumerate(runs):
        rows = [(f"{v}-{number}" if text else 10 * v + number, n) for v, n in run.items()]
        rows.sort(key=lambda row: (-row[1], row[0]))
        values = pa.array([value for value, _ in rows], pa.string() if text else pa.int64())
        tables.append(pa.table({"value": values, "count": pa.array([n for _, n in rows])}))
        tables[-1] = tables[-1].cast(pa.schema([("value", values.type), ("count", pa.int64())]))
    ranges = list(in_ranges([SortedRun(table, BY_FREQUENCY) for table in tables], most))
    assert all(table.num_rows <= max(most, 3 * len(runs)) for table in ranges)
    found = [row for table in ranges for row in zip(*table.to_pydict().values(), strict=True)]
    whole = [row for table in tables for row in zip(*table.to_pydict().values(), strict=True)]
    assert found == sorted(whole, key=lambda row: (-row[1], row[0]))


def test_runs_with_wide_and_narrow_offsets_come_in_one_order() -> None:
    rows = {"value": pa.array(["b", "c"]), "count": pa.array([2, 1])}
    wide = {"value": pa.array(["a", ""], pa.large_string()), "count": pa.array([2, 1])}
    (found,) = in_ranges([SortedRun(pa.table(run), BY_FREQUENCY) for run in (rows, wide)], 10)
    assert found["value"].to_pylist() == ["a", "b", "", "c"]


class Workers:
    """A client's view of its workers."""

    def __init__(self, *workers: tuple[int, int]):
        self._workers = workers

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        described = [{"nthreads": n, "memory_limit": limit} for n, limit in self._workers]
        return {"workers": dict(enumerate(described))}


def test_memory_is_shared_out_among_threads_and_too_little_is_refused(wording: Wording) -> None:
    mib = 1 << 20
    assert plan_memory(Workers((2, 0)), None, 64 * mib, False).thread_bytes == 320 * mib
    tight = plan_memory(Workers((4, 4000 * mib), (2, 1600 * mib)), None, 64 * mib, False)
    assert tight.thread_bytes == 160 * mib  # 0.6 of the lower limit, less the libraries
    assert plan_memory(Workers((2, 0)), 1024 * mib, 64 * mib, False).thread_bytes == 352 * mib
    with_tables = plan_memory(Workers((2, 0)), 1024 * mib, 64 * mib, True)
    assert with_tables == MemoryPlan(264 * mib, 176 * mib)
    wording.refused(
        InputError,
        lambda: plan_memory(Workers((4, 0)), 700 * mib, 64 * mib, False),
        **{"at least": 320 + 4 * 128},
    )
    plan_memory(Workers((4, 0)), 832 * mib, 64 * mib, False)
    with pytest.raises(InputError) as refused:
        plan_memory(Workers((4, 0)), 832 * mib, 64 * mib, True)
    least = refused.value.where["at least"]
    plan_memory(Workers((4, 0)), least * mib, 64 * mib, True)


@pytest.mark.parametrize("make", [int, "v{}".format], ids=["integers", "strings"])
def test_counts_that_were_read_hold_no_file_mapped(tmp_path: Path, make: Any) -> None:
    values = pa.array([make(n) for n in range(50)])
    path = str(tmp_path / "counts.arrow")
    write_buckets(Counts(values, pa.array(range(50), pa.int64())).rows, path)
    halves = range(NUM_BUCKETS // 2), range(NUM_BUCKETS // 2, NUM_BUCKETS)
    found = [read_counts([path], buckets) for buckets in halves]
    assert path not in Path("/proc/self/maps").read_text()
    pairs = [p for one in found for p in zip(one.values, one.counts, strict=True)]
    counted = {value.as_py(): count.as_py() for value, count in pairs}
    assert counted == dict(zip(values.to_pylist(), range(50), strict=True))
