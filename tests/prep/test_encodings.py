"""Buckets, flags, crosses, counts and target means, each against a naive loop, on one table."""

import math
import pickle
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Client
from hypothesis import given, settings, strategies as st
from tasks_here import TasksHere
from wording import Wording

from distrain.errors import DataError, InputError
from distrain.prep import (
    Bucketize,
    Categorify,
    ColumnGroup,
    CountEncode,
    FeatureConfig,
    HashBucket,
    History,
    PrepRequest,
    QuantileBuckets,
    TargetEncode,
    Workflow,
    prepare,
)
from distrain.prep.column_group import FOLD
from distrain.prep.counting.count_tables import fit_tables
from distrain.prep.counting.count_tasks import CountedColumn
from distrain.prep.counting.spilled import Spilled, write_buckets
from distrain.prep.memory import MemoryPlan
from distrain.prep.operators import value_table
from distrain.prep.operators.encodings import fold_numbers
from distrain.prep.operators.key_index import KeyIndex
from distrain.prep.operators.operator import TrainingRows
from distrain.prep.operators.spelling import crossed
from distrain.prep.operators.value_table import SavedTable, ValueTable, forget_tables
from distrain.schema.criteo import LABEL

quick = settings(max_examples=30, deadline=None)
small = st.none() | st.integers(-9, 9)
words = st.none() | st.sampled_from(["a", "b", "\\0", "c\x1f", "", "c\\"])
labels = st.sampled_from([0.0, 1.0, 0.1, 1e16])


def test_log_squares_are_those_of_the_loop_and_never_fall() -> None:
    values = sorted([*range(-300, 300), 0.5, 2.5, -1.5, 1e9, -1e30, math.inf, -math.inf])

    def bucket(x: float) -> int:
        if abs(x) <= 2:
            return math.floor(x)
        size = math.floor(math.log(min(abs(x), 1.7976931348623157e308)) ** 2) + 2
        return size if x > 0 else -size

    found = Bucketize(log_square=True).transform("x", pa.array(values)).to_pylist()
    assert found == [bucket(x) for x in values]
    assert found == sorted(found)


@quick
@given(st.lists(small, max_size=60), st.integers(2, 6), st.lists(st.integers(0, 60), max_size=3))
def test_quantile_buckets_are_those_of_the_sorted_values(
    values: list[int | None], number: int, cuts: list[int]
) -> None:
    operator = QuantileBuckets(number)
    pieces = np.split(np.array(values, object), sorted(cuts))
    states = [operator.fit(pa.array(piece.tolist(), pa.int64())) for piece in pieces]
    fitted = operator.with_fitted({"x": operator.finish(operator.merge(*states))})
    known = sorted(value for value in values if value is not None)
    quantiles = [known[-(-len(known) * k // number) - 1] for k in range(1, number) if known]
    later = {min((v for v in known if v > q), default=None) for q in quantiles} - {None}
    edges = sorted(later)  # type: ignore[type-var]
    wanted = [None if v is None else bisect_right(edges, v) for v in values]  # type: ignore[arg-type,type-var]
    assert fitted.transform("x", pa.array(values, pa.float64())).to_pylist() == wanted


@quick
@given(st.lists(st.tuples(words, words), min_size=2, max_size=2))
def test_a_cross_is_one_category_for_equal_rows_alone(rows: list[tuple[str, str]]) -> None:
    columns = [pa.array(side, pa.string()) for side in zip(*rows, strict=True)]
    one, other = crossed(columns).to_pylist()
    assert (one == other) == (rows[0] == rows[1])
    assert [one is None, other is None] == [row == (None, None) for row in rows]


def test_staged_buckets_are_not_hashed_again_nor_taken_for_those_of_another_number(
    wording: Wording,
) -> None:
    texts = pa.array(["a", None, "b", "a"])
    staged = HashBucket(7).staged(texts)
    assert HashBucket(7).transform("x", staged).equals(HashBucket(7).transform("x", texts))
    wording.refused(DataError, lambda: HashBucket(8).transform("x", staged), column="x")


def mean_of(rows: Sequence[tuple[Any, float]], value: Any, smoothing: float) -> float:
    prior = math.fsum(y for _, y in rows) / len(rows) if rows else 0.0
    same = [y for x, y in rows if x == value]
    return (math.fsum(same) + smoothing * prior) / (len(same) + smoothing)


@quick
@given(
    st.lists(st.tuples(words, labels, st.integers(0, 12)), min_size=1, max_size=40),
    st.booleans(),
    st.integers(1, 39),
)
def test_target_means_are_those_of_other_folds_and_of_earlier_blocks(
    rows: list[tuple[str | None, float, int]], by_time: bool, cut: int
) -> None:
    values, targets, places = (list(side) for side in zip(*rows, strict=True))
    places = places if by_time else [place % 8 for place in places]
    operator = TargetEncode(3.0, by_time=by_time).with_blocks(np.array(places, float))
    x = pa.array(values, pa.string())

    def encoded(targets: list[float]) -> tuple[TargetEncode, np.ndarray[Any, Any]]:
        bound = operator.of_rows(TrainingRows(np.array(places), np.array(targets)))
        states = []
        for some in (slice(0, cut), slice(cut, None)):
            part = TrainingRows(np.array(places)[some], np.array(targets)[some])
            states.append(operator.of_rows(part).fit(x[some]))
        fitted = bound.with_fitted({"x": operator.finish(operator.merge(*states))})
        return fitted, fitted.transform("x", x).to_numpy()

    fitted, found = encoded(targets)
    folds = [bisect_right(operator.edges, p) for p in places] if by_time else places
    others = [
        [(values[j], targets[j]) for j, g in enumerate(folds) if (g < f if by_time else g != f)]
        for f in folds
    ]
    wanted = [mean_of(some, value, 3.0) for some, value in zip(others, values, strict=True)]
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
    # No row's own label, nor by time one of its own time or later, leaves a trace, to the bit.
    row = cut % len(rows)
    silent = [j for j in range(len(rows)) if places[j] >= places[row]] if by_time else [row]
    changed = [7.0 if j in silent else y for j, y in enumerate(targets)]
    assert encoded(changed)[1][row] == found[row]
    later = TargetEncode(3.0, tables=fitted.tables).transform("x", pa.array(["a", "new", None]))
    everything = list(zip(values, targets, strict=True))
    wanted = [mean_of(everything, value, 3.0) for value in ("a", "new", None)]
    np.testing.assert_allclose(later.to_pylist(), wanted, rtol=1e-9)


@quick
@given(
    st.lists(
        st.lists(st.tuples(st.none() | st.sampled_from("abcdefgh"), labels, st.integers(0, 7))),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([1 << 8, 1 << 20]),
)
def test_tables_that_are_summed_by_pieces_are_those_of_memory_to_the_byte(
    parts: list[list[tuple[str | None, float, int]]], piece_bytes: int
) -> None:
    operator = TargetEncode()
    states = []
    for rows in parts:
        values, targets, folds = zip(*rows, strict=True) if rows else ((), (), ())
        known = TrainingRows(np.array(folds, np.int64), np.array(targets, np.float64))
        # A part without values is of no type.
        states.append(operator.of_rows(known).fit(pa.array(values)))
    with TemporaryDirectory() as folder:
        files = tuple(f"{folder}/{number}.arrow" for number in range(len(parts)))
        for state, path in zip(states, files, strict=True):
            write_buckets(state.rows, path)
        size_bytes = sum(state.nbytes for state in states)
        counted = CountedColumn("x", operator, (Spilled(files, size_bytes, 0),))
        memory = MemoryPlan(8 * piece_bytes)
        (found,) = fit_tables([counted], TasksHere(), folder, folder, memory)  # type: ignore[arg-type]
        written = Path(folder, "encoded.x.parquet").read_bytes()
        wanted = operator.finish(operator.merge(*states))
        wanted.save(folder, "x")
        assert Path(folder, "encoded.x.parquet").read_bytes() == written
        loaded = pickle.loads(pickle.dumps(found)).opened()
        forget_tables()
        looked_at = SavedTable.look_at(folder, "x")
    assert found.checksum == wanted.checksum == loaded.checksum == looked_at.checksum
    assert loaded.values.equals(wanted.values)
    assert (loaded.counts == wanted.counts).all()


def tables_at(folder: Path, names: str, most_bytes: int) -> dict[str, SavedTable]:
    made = CountEncode().finish(CountEncode().fit(pa.array(np.arange(N))))
    for name in names:
        made.save(folder, name)
    bound = most_bytes * made.held_bytes + made.held_bytes // 2
    return {name: SavedTable.at(str(folder), name, most_bytes=bound) for name in names}


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the tables that were read, in order."""
    names: list[str] = []
    load = ValueTable.load

    def counted(folder: str, name: str) -> ValueTable:
        names.append(name)
        return load(folder, name)

    monkeypatch.setattr(ValueTable, "load", counted)
    forget_tables()
    yield names
    forget_tables()


@pytest.mark.parametrize(
    ("names", "room", "read"),
    [
        ("abc", 3, "abc"),
        ("abc", 2, "abccc"),
        ("abc", 1, "abcbcbc"),
        ("abc", 0, "abcabcabc"),
        ("a", 0, "a"),
    ],
)
def test_tables_that_fit_are_read_once(
    tmp_path: Path, loads: list[str], names: str, room: int, read: str
) -> None:
    tables = tables_at(tmp_path, names, room)
    encode = CountEncode(tables=tables)
    x = pa.array([3, None, 2 * N])
    for _ in range(3):
        for name in tables:
            assert encode.transform(name, x).to_pylist() == [1, 1, 1]
            assert len(value_table._KEPT) <= max(room, 1)
            assert set(value_table._OPENED) == set(value_table._KEPT)
    assert "".join(loads) == read


def test_tables_of_another_folder_make_room(tmp_path: Path, loads: list[str]) -> None:
    for name in ("before", "now"):
        (tmp_path / name).mkdir()
        for table in 2 * [*tables_at(tmp_path / name, "ab", 2).values()]:
            table.opened()
    assert "".join(loads) == "abab"


def test_a_transform_opens_its_table_once(
    tmp_path: Path, loads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = tables_at(tmp_path, "ab", 0)
    once = ValueTable.once

    def interrupted(*args: Any) -> Any:
        tables["b"].opened()  # as another thread might
        return once(*args)

    monkeypatch.setattr(ValueTable, "once", interrupted)
    CountEncode(tables=tables).transform("a", pa.array([1, 2]))
    assert loads == ["a", "b"]


def test_a_table_in_memory_does_not_wait_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_tables()
    encode = CountEncode(tables=tables_at(tmp_path, "ab", 2))
    x = pa.array([1, 2])
    encode.transform("a", x)
    load, of = ValueTable.load, KeyIndex.of

    def use_a() -> None:
        pool.submit(encode.transform, "a", x).result(timeout=30)

    with ThreadPoolExecutor(2) as pool:
        monkeypatch.setattr(ValueTable, "load", lambda *args: (use_a(), load(*args))[1])
        monkeypatch.setattr(KeyIndex, "of", lambda *args: (use_a(), of(*args))[1])
        encode.transform("b", x)
    forget_tables()


def test_threads_share_a_table_that_does_not_fit(tmp_path: Path, loads: list[str]) -> None:
    tables = tables_at(tmp_path, "ab", 1)
    tables["a"].opened()
    with ThreadPoolExecutor(4) as pool:
        ready = Barrier(4)
        opened = pool.map(lambda _: (ready.wait(), tables["b"].opened())[1], range(4))
        assert len(set(map(id, list(opened)))) == 1
    assert loads == ["a", "b"]


def test_the_memory_of_a_table_includes_the_numbers_made_from_it() -> None:
    rows = TrainingRows(np.arange(N) % 8, TABLE["y"].to_numpy().astype(float))
    operator = TargetEncode().of_rows(rows)
    x = pa.array(np.arange(N))
    made = operator.finish(operator.fit(x))
    operator.with_fitted({"x": made}).transform("x", x)
    TargetEncode(tables={"x": made}).transform("x", x)
    numbers = [one for one in made._made.values() if isinstance(one, np.ndarray)]
    assert len(numbers) == 2
    assert sum(array.nbytes for array in [made.counts, made.sums, *numbers]) <= made.held_bytes


def test_too_many_values_are_refused_before_a_table_is_made(
    tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    monkeypatch.setattr("distrain.prep.operators.encodings.MOST_VALUES", 20)
    monkeypatch.setattr(SavedTable, "write", lambda *_: pytest.fail("a table was written"))
    pq.write_table(TABLE, tmp_path / "t.parquet")
    columns = {"b": {"kind": "continuous", "count": True}}
    features = FeatureConfig.parse({"target": "y", "columns": columns})
    request = PrepRequest((str(tmp_path / "t.parquet"),), tmp_path / "d", features=features)
    wording.refused(DataError, lambda: prepare(request, client), column="b")


N = 1200
RNG = np.random.default_rng(4)
TABLE = pa.table(
    {
        "y": RNG.integers(0, 2, N),
        "at": np.sort(RNG.integers(0, 90, N)),
        "a": pa.array([None if n % 11 == 0 else f"a{n}" for n in RNG.integers(0, 40, N)]),
        "b": RNG.integers(0, 30, N),
        "x": pa.array(RNG.lognormal(3, 2, N), mask=RNG.random(N) < 0.2),
        "tags": pa.array([RNG.integers(0, 9, n).tolist() for n in RNG.integers(0, 4, N)]),
        "when": pa.array(RNG.integers(0, 10**9, N), pa.timestamp("s")),
    }
)
COLUMNS: dict[str, dict[str, Any]] = {
    "a_count": {"from": "a", "kind": "continuous", "count": True},
    "a_mean": {"from": "a", "kind": "continuous", "target_mean": {"smoothing": 5}},
    "tags_mean": {"from": "tags", "kind": "continuous", "target_mean": {}},
    "tags_count": {"from": "tags", "kind": "continuous", "count": True},
    "tags_few": {"from": "tags", "kind": "categorical", "buckets": [3, 6]},
    "ab": {"cross": ["a", "b"], "kind": "categorical"},
    "ab_few": {"cross": ["a", "b"], "kind": "categorical", "hash_buckets": 7},
    "ab_mean": {"cross": ["a", "b"], "kind": "continuous", "target_mean": {"smoothing": 1}},
    "x_few": {"from": "x", "kind": "categorical", "buckets": {"quantiles": 5}},
    "x_size": {"from": "x", "kind": "categorical", "buckets": "log_square"},
    "x_gone": {"from": "x", "kind": "continuous", "missing_flag": True},
    "a_gone": {"from": "a", "kind": "continuous", "missing_flag": True},
    "hour": {"from": "when", "kind": "categorical", "as": "hour"},
}


@pytest.mark.slow
@pytest.mark.parametrize("by", ["fraction", "time"])
def test_a_cluster_writes_what_the_loops_give(
    tmp_path: Path, client: Client, by: str, wording: Wording
) -> None:
    split = {"by": by, "last": 0.25} if by == "fraction" else {"by": by, "column": "at", "from": 70}
    pq.write_table(TABLE, tmp_path / "t.parquet", row_group_size=200)
    features = FeatureConfig.parse({"target": "y", "split": split, "columns": COLUMNS})
    inputs = (str(tmp_path / "t.parquet"),)
    prepare(PrepRequest(inputs, tmp_path / "d", features=features, block_bytes=80_000), client)
    train, valid = (pq.read_table(tmp_path / "d" / name) for name in ("train", "valid"))
    first = train.num_rows
    raw, rest = TABLE.slice(0, first).to_pydict(), TABLE.slice(first).to_pydict()
    assert train[LABEL].to_pylist() == raw["y"]
    rows = list(zip(raw["a"], map(float, raw["y"]), strict=True))
    wanted = [mean_of(rows, a, 5.0) for a in rest["a"]]
    np.testing.assert_allclose(valid["a_mean"].to_numpy(), wanted, rtol=1e-6)
    pairs = list(zip(raw["a"], raw["b"], strict=True))
    rows = list(zip(pairs, map(float, raw["y"]), strict=True))
    wanted = [mean_of(rows, pair, 1.0) for pair in zip(rest["a"], rest["b"], strict=True)]
    np.testing.assert_allclose(valid["ab_mean"].to_numpy(), wanted, rtol=1e-6)
    assert train["a_count"].to_pylist() == [raw["a"].count(a) for a in raw["a"]]
    items = [tag for row in raw["tags"] for tag in row]
    assert train["tags_count"].to_pylist() == [[items.count(t) for t in r] for r in raw["tags"]]
    for gone, held in (("x_gone", "x"), ("a_gone", "a")):
        assert train[gone].to_pylist() == [value is None for value in raw[held]]
    texts = crossed([TABLE["a"].combine_chunks(), TABLE["b"].combine_chunks().cast(pa.string())])
    buckets = HashBucket(7).transform("ab", texts)
    assert len({*zip(buckets.to_pylist()[:first], train["ab_few"].to_pylist(), strict=True)}) == 7
    if by == "time":
        # By blocks of time, of which no row sees its own: the oracle takes earlier times alone.
        operator = Workflow.load(tmp_path / "d" / "workflow")
        (edges,) = {
            one.edges
            for group in operator.groups
            for one in group.operators
            if isinstance(one, TargetEncode) and "a_mean" in group.columns
        }
        blocks = [bisect_right(edges, at) for at in raw["at"]]
        known = list(zip(blocks, raw["a"], map(float, raw["y"]), strict=True))
        before = [[(x, y) for b, x, y in known if b < block] for block in range(len(edges) + 1)]
        wanted = [mean_of(before[block], a, 5.0) for block, a, _ in known]
        np.testing.assert_allclose(train["a_mean"].to_numpy(), wanted, rtol=1e-6)
        return
    flipped = TABLE.set_column(
        0, "y", pa.array([1 - TABLE["y"][0].as_py(), *TABLE["y"].to_pylist()[1:]])
    )
    pq.write_table(flipped, tmp_path / "t.parquet", row_group_size=200)
    prepare(PrepRequest(inputs, tmp_path / "e", features=features, block_bytes=80_000), client)
    again = pq.read_table(tmp_path / "e" / "train")
    for name in ("a_mean", "tags_mean", "ab_mean"):
        assert again[name][0] == train[name][0]
    assert again["a_mean"].to_pylist() != train["a_mean"].to_pylist()
    saved = tmp_path / "d" / "workflow"
    later = PrepRequest(inputs, tmp_path / "later", saved_workflow=saved, update=True)
    prepare(later, client)
    tables = list((saved / "categories").glob("encoded.*"))
    assert len(tables) == 5
    for file in tables:  # an update copies them
        copied = tmp_path / "later" / "workflow" / "categories" / file.name
        assert copied.read_bytes() == file.read_bytes()


def test_a_table_in_memory_has_the_values_of_training_rows_with_folds_alone(
    tmp_path: Path, wording: Wording
) -> None:
    groups = (ColumnGroup(("a",), (TargetEncode(5),)), ColumnGroup(("b",), (CountEncode(),)))
    rows = TABLE.select(["a", "b"]).append_column(LABEL, TABLE["y"])
    training = rows.append_column(FOLD, pa.array(fold_numbers(N)))
    fitted = Workflow(groups).fit([training.slice(0, 500), training.slice(500)])
    (tmp_path / "w").mkdir()
    fitted.save(tmp_path / "w")
    for workflow in (fitted, Workflow.load(tmp_path / "w")):
        later, own = (workflow.transform(table)["a"].to_numpy() for table in (rows, training))
        folds = training[FOLD].to_pylist()
        known = list(
            zip(folds, rows["a"].to_pylist(), map(float, TABLE["y"].to_pylist()), strict=True)
        )
        wanted = [
            mean_of([(x, y) for g, x, y in known if g != f], a, 5.0) for f, a, _ in known[:50]
        ]
        np.testing.assert_allclose(own[:50], wanted, rtol=1e-6)
        wanted = [mean_of([row[1:] for row in known], a, 5.0) for _, a, _ in known[:50]]
        np.testing.assert_allclose(later[:50], wanted, rtol=1e-6)
    wording.refused(DataError, lambda: Workflow(groups).fit([rows]))
    listed = partial(Workflow, groups, history=History("b", "at", 3, ("a",)))
    wording.refused(InputError, listed)


def test_a_cross_takes_no_lists(tmp_path: Path, client: Client, wording: Wording) -> None:
    pq.write_table(TABLE, tmp_path / "t.parquet")
    columns = {"c": {"kind": "categorical", "cross": ["a", "tags"]}}
    features = FeatureConfig.parse({"target": "y", "columns": columns})
    wording.refused(
        DataError,
        lambda: prepare(
            PrepRequest((str(tmp_path / "t.parquet"),), tmp_path / "d", features=features), client
        ),
    )


def test_values_that_cannot_be_told_apart_later_are_refused(wording: Wording) -> None:
    fitted = Workflow((ColumnGroup(("b",), (CountEncode(),)),)).fit([TABLE.select(["b"])])
    wording.refused(DataError, lambda: fitted.transform(pa.table({"b": ["1"]})))
    least = min(map(TABLE["b"].to_pylist().count, TABLE["b"].to_pylist()))
    assert fitted.transform(pa.table({"b": pa.nulls(2)}))["b"].to_pylist() == [least, least]
    group = ColumnGroup(("b",), (Bucketize((3, 9)), Categorify()))
    buckets = Workflow((group,)).fit([TABLE.select(["b"])])
    found = buckets.transform(pa.table({"b": [0, 3, 8, 9, None]}))["b"].to_pylist()
    assert found[1] == found[2] != found[3] != found[0]
    assert found[4] == 1
