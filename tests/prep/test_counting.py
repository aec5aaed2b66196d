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
from distrain.prep.counting import spilling
from distrain.prep.counting.spilling import (
    MemoryPlan,
    in_ranges,
    plan_memory,
    read_counts,
    write_counts,
)
from distrain.prep.operators.counts import NUM_BUCKETS, Counts, added_up, buckets_of, joined
from distrain.prep.updates.grown_vocabularies import (
    VocabularyBefore,
    write_learnt_files,
    write_vocabulary,
)
from distrain.prep.updates.vocabulary_update import Learnt, Limits, learn

VALUES = st.one_of(
    st.lists(st.one_of(st.none(), st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1))),
    st.lists(st.one_of(st.none(), st.text(max_size=3), st.text(alphabet="aé", max_size=90))),
)


def limits_of(operator: Categorify) -> Limits:
    return Limits.of(operator, 0, 0)


def learnt_of(operator: Categorify, files: list[str], buckets: range) -> Learnt:
    """What a first fit learns of some buckets."""
    day = joined([read_counts(path, buckets) for path in files])
    return learn(operator, day, None, None, limits_of(operator), is_added_up=len(files) == 1)


def write_all(operator: Categorify, pieces: list[Learnt], folder: Path, range_bytes: int) -> None:
    stems = [str(folder / f"piece-{number}") for number in range(len(pieces))]
    files = [
        write_learnt_files(*piece, keep_rare=False) for piece in zip(pieces, stems, strict=True)
    ]
    before, limits = VocabularyBefore(), limits_of(operator)
    write_vocabulary(operator, "c", 0, before, files, limits, str(folder), range_bytes)


def naive(values: list[Any]) -> Counter[Any]:
    return Counter(value for value in values if value is not None)


def as_array(values: list[Any]) -> pa.Array:
    is_text = any(isinstance(value, str) for value in values)
    return pa.array(values, pa.string() if is_text else pa.int64())


@settings(max_examples=8, deadline=None)
@given(VALUES, st.integers(1, 4), st.integers(0, 8), st.integers(0, 3), st.integers(0, 4))
def test_counts_by_pieces_equal_a_naive_count(
    tmp_path_factory: pytest.TempPathFactory,
    values: list[Any],
    num_files: int,
    power: int,
    freq_threshold: int,
    max_size: int,
) -> None:
    operator = Categorify(freq_threshold, max_size)
    folder = tmp_path_factory.mktemp("counts")
    whole = as_array(values)
    cut = -(-len(values) // num_files)
    files = [str(folder / f"{n}.arrow") for n in range(num_files)]
    for number, path in enumerate(files):
        state = operator.fit(whole.slice(number * cut, cut))
        write_counts(state, path)
    step = NUM_BUCKETS >> power
    pieces = [
        learnt_of(operator, files, range(at, at + step)) for at in range(0, NUM_BUCKETS, step)
    ]
    counted = naive(values)
    observed = sum(piece.observed for piece in pieces)
    assert observed == sum(counted.values())
    found = operator.finish(joined([piece.new for piece in pieces]))
    expected = operator.finish(operator.fit(whole))
    assert found.values.equals(expected.values)
    assert found.counts.equals(expected.counts)
    kept_counts = sum(found.counts.to_pylist())
    assert observed - kept_counts == expected.oov_observed
    ordered = sorted(counted.items(), key=lambda item: (-item[1], _by_bytes(item[0])))
    kept = [(value, count) for value, count in ordered if count >= freq_threshold]
    kept = kept[: max_size or None]
    assert list(zip(found.values.to_pylist(), found.counts.to_pylist(), strict=True)) == kept


def _by_bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


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
    write = spilling.write_counts
    monkeypatch.setattr(
        spilling, "write_counts", lambda counts, path: (written.append(path), write(counts, path))
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
    ranges = list(in_ranges(tables, most))
    assert all(table.num_rows <= max(most, 3 * len(runs)) for table in ranges)
    found = [row for table in ranges for row in zip(*table.to_pydict().values(), strict=True)]
    whole = [row for table in tables for row in zip(*table.to_pydict().values(), strict=True)]
    assert found == sorted(whole, key=lambda row: (-row[1], row[0]))


def test_runs_with_wide_and_narrow_offsets_come_in_one_order() -> None:
    rows = {"value": pa.array(["b", "c"]), "count": pa.array([2, 1])}
    wide = {"value": pa.array(["a", ""], pa.large_string()), "count": pa.array([2, 1])}
    (found,) = in_ranges([pa.table(rows), pa.table(wide)], 10)
    assert found["value"].to_pylist() == ["a", "b", "", "c"]


@pytest.mark.parametrize(("max_size", "dtype"), [(0, pa.large_string()), (60, pa.string())])
def test_offsets_are_as_wide_as_what_is_kept_needs_however_many_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_size: int, dtype: pa.DataType
) -> None:
    monkeypatch.setattr("distrain.prep.counting.spilling._STRING_BYTES", 1500)
    operator, file = Categorify(0, max_size), str(tmp_path / "counts.arrow")
    write_counts(operator.fit(pa.array([f"name-{n}" for n in range(200)])), file)
    written = []
    for step in (NUM_BUCKETS, NUM_BUCKETS // 8):
        pieces = [
            learnt_of(operator, [file], range(at, at + step)) for at in range(0, NUM_BUCKETS, step)
        ]
        write_all(operator, pieces, tmp_path, 500)
        written.append((tmp_path / "unique.c.parquet").read_bytes())
    assert written[0] == written[1]
    assert pq.read_schema(tmp_path / "unique.c.parquet").field("c").type == dtype


@pytest.mark.parametrize("max_size", [0, 700])
def test_a_vocabulary_of_several_row_groups_has_the_bytes_of_one_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_size: int
) -> None:
    monkeypatch.setattr("distrain.prep.vocabulary.ROW_GROUP_VALUES", 256)
    operator = Categorify(2, max_size)
    whole = operator.fit(pa.array(np.random.default_rng(3).integers(0, 1000, 5000)))
    for folder in ("ranges", "at once"):
        (tmp_path / folder).mkdir()
    operator.finish(whole).save(tmp_path / "at once", "c")
    pieces = []
    for n in range(5):
        of_run = pa.array(buckets_of(whole.values) % 5 == n)
        piece = Counts(whole.values.filter(of_run), whole.counts.filter(of_run))
        pieces.append(learn(operator, piece, None, None, limits_of(operator)))
    write_all(operator, pieces, tmp_path / "ranges", range_bytes=1600)
    for name in ("unique.c.parquet", "meta.c.parquet"):
        assert (tmp_path / "ranges" / name).read_bytes() == (
            tmp_path / "at once" / name
        ).read_bytes()
    assert pq.ParquetFile(tmp_path / "ranges" / "unique.c.parquet").num_row_groups > 1


class Workers:
    """A client's view of its workers."""

    def __init__(self, *workers: tuple[int, int]):
        self._workers = workers

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        described = [{"nthreads": n, "memory_limit": limit} for n, limit in self._workers]
        return {"workers": dict(enumerate(described))}


def test_memory_is_shared_out_among_threads_and_too_little_is_refused(wording: Wording) -> None:
    mib = 1 << 20
    assert plan_memory(Workers((2, 0)), None, 64 * mib).thread_bytes == 320 * mib
    tight = plan_memory(Workers((4, 4000 * mib), (2, 1600 * mib)), None, 64 * mib)
    assert tight.thread_bytes == 160 * mib  # 0.6 of the lower limit, less the libraries
    assert plan_memory(Workers((2, 0)), 1024 * mib, 64 * mib).thread_bytes == 352 * mib
    wording.refused(
        InputError, plan_memory, Workers((4, 0)), 700 * mib, 64 * mib, **{"at least": 320 + 4 * 128}
    )
    plan_memory(Workers((4, 0)), 832 * mib, 64 * mib)


@pytest.mark.parametrize("make", [int, "v{}".format], ids=["integers", "strings"])
def test_counts_that_were_read_hold_no_file_mapped(tmp_path: Path, make: Any) -> None:
    values = pa.array([make(n) for n in range(50)])
    path = str(tmp_path / "counts.arrow")
    write_counts(Counts(values, pa.array(range(50), pa.int64())), path)
    found = read_counts(path, range(NUM_BUCKETS // 2))
    rest = read_counts(path, range(NUM_BUCKETS // 2, NUM_BUCKETS))
    assert path not in Path("/proc/self/maps").read_text()
    both = joined([found, rest])
    pairs = zip(both.values.to_pylist(), both.counts.to_pylist(), strict=True)
    assert dict(pairs) == dict(zip(values.to_pylist(), range(50), strict=True))
