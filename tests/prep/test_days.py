"""A fitted workflow learns more days: old ids stay, new ones follow."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st
from tasks_here import TasksHere
from wording import Wording

from distrain.errors import DataError
from distrain.prep import (
    Categorify,
    ColumnGroup,
    FillMissing,
    Normalize,
    PrepRequest,
    PrepResult,
    Workflow,
    prepare,
)
from distrain.prep.counting.count_tasks import CountedColumn
from distrain.prep.counting.spilled import Spilled, write_buckets
from distrain.prep.counting.vocabularies import fit_vocabularies
from distrain.prep.memory import MemoryPlan
from distrain.prep.saved_vocabulary import SavedVocabulary
from distrain.prep.updates.vocabularies import update_vocabularies
from distrain.prep.vocabulary import Vocabulary

WORDS = st.sampled_from(["", "a", "b", "c", "d", "é", "ü" * 40, "x", "y", "z"])
NUMBERS = st.one_of(st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1))


def days_of(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[list[Any]]]:
    return st.lists(st.lists(st.none() | values, max_size=30), min_size=1, max_size=4)


DAYS = st.one_of(days_of(WORDS), days_of(NUMBERS))
OPERATORS = st.builds(
    Categorify,
    freq_threshold=st.integers(0, 4),
    max_size=st.sampled_from([0, 0, 2, 5]),
    num_buckets=st.integers(0, 3),
)


@dataclass(frozen=True)
class Vocabularies:
    """A vocabulary, made by the tasks in small pieces."""

    folder: Path
    operator: Categorify
    piece_bytes: int = 64  # a value or two

    def fit(self, day: Sequence[Any]) -> Path:
        return self._made(0, day, fit_vocabularies)

    def update(self, number: int, day: Sequence[Any]) -> Path:
        old = str(self.folder / str(number - 1))
        return self._made(number, day, partial(update_vocabularies, old=old))

    def _made(self, number: int, day: Sequence[Any], make: Callable[..., Any]) -> Path:
        to, staging = self.folder / str(number), self.folder / f"staging-{number}"
        to.mkdir()
        staging.mkdir()
        files, size_bytes, nulls = [], 0, 0
        for some in (day[:7], day[7:]):
            counts = self.operator.fit(as_array(some))
            files.append(str(staging / f"{len(files)}.arrow"))
            write_buckets(counts.rows, files[-1])
            size_bytes, nulls = size_bytes + counts.nbytes, nulls + counts.nulls
        counted = CountedColumn("x", self.operator, (Spilled(tuple(files), size_bytes, nulls),))
        memory = MemoryPlan(8 * self.piece_bytes)
        make([counted], TasksHere(), str(to), str(staging), memory)
        return to


def as_array(values: Sequence[Any]) -> pa.Array:
    is_text = any(isinstance(value, str) for value in values)
    return pa.array(values, pa.string() if is_text else pa.int64())


def by_frequency(counted: Counter[Any]) -> list[Any]:
    def order(value: Any) -> Any:
        return -counted[value], value.encode() if isinstance(value, str) else value

    return sorted(counted, key=order)


@settings(max_examples=25, deadline=None)
@given(DAYS, OPERATORS, st.sampled_from([64, 1 << 20]))
def test_a_fit_and_its_updates_equal_a_naive_count(
    days: list[list[Any]], operator: Categorify, piece_bytes: int
) -> None:
    """A value that passes gets the next id, and from then on all of its rows count."""
    ids: list[Any] = []
    counts: Counter[Any] = Counter()
    with TemporaryDirectory() as folder:
        made = Vocabularies(Path(folder), operator, piece_bytes)
        for number, day in enumerate(days):
            counted = Counter(value for value in day if value is not None)
            counts.update({value: counted[value] for value in ids})
            passing = Counter({v: n for v, n in counted.items() if v not in ids})
            new = [v for v in by_frequency(passing) if passing[v] >= operator.freq_threshold]
            room = max(0, operator.max_size - len(ids)) if operator.max_size else len(new)
            counts.update({value: passing[value] for value in new[:room]})
            ids += new[:room]
            to = made.update(number, day) if number else made.fit(day)
            vocabulary = Vocabulary.load(to, "x")
            assert vocabulary.values.to_pylist() == ids
            assert vocabulary.counts.to_pylist() == [counts[value] for value in ids]
            assert vocabulary.num_oov == max(1, operator.num_buckets)
            if number == 0:  # what a fit in memory writes, to the byte
                operator.finish(operator.fit(as_array(day))).save(folder, "x")
                for file in ("unique.x.parquet", "meta.x.parquet"):
                    assert (to / file).read_bytes() == Path(folder, file).read_bytes()
    seen = [value for day in days for value in day]
    assert vocabulary.nulls_observed == seen.count(None)
    known = sum(vocabulary.counts.to_pylist()) + vocabulary.nulls_observed
    assert known + vocabulary.oov_observed == len(seen)


@pytest.mark.parametrize(("max_size", "dtype"), [(0, pa.large_string()), (60, pa.string())])
def test_offsets_are_as_wide_as_what_is_kept_needs_however_many_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_size: int, dtype: pa.DataType
) -> None:
    monkeypatch.setattr("distrain.prep.counting.vocabulary_runs._STRING_BYTES", 1500)
    written = []
    for piece_bytes in (1 << 20, 500):
        (tmp_path / str(piece_bytes)).mkdir()
        made = Vocabularies(
            tmp_path / str(piece_bytes), Categorify(0, max_size), piece_bytes=piece_bytes
        )
        file = made.fit([f"name-{n}" for n in range(200)]) / "unique.x.parquet"
        written.append(file.read_bytes())
        assert pq.read_schema(file).field("x").type == dtype
    assert written[0] == written[1]


@pytest.mark.parametrize("max_size", [0, 700])
def test_a_vocabulary_of_several_row_groups_has_the_bytes_of_one_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_size: int
) -> None:
    monkeypatch.setattr("distrain.prep.vocabulary.ROW_GROUP_VALUES", 256)
    operator, values = Categorify(2, max_size), np.random.default_rng(3).integers(0, 1000, 5000)
    found = Vocabularies(tmp_path, operator, piece_bytes=1600).fit(values.tolist())
    operator.finish(operator.fit(pa.array(values))).save(tmp_path, "x")
    for name in ("unique.x.parquet", "meta.x.parquet"):
        assert (found / name).read_bytes() == (tmp_path / name).read_bytes()
    assert pq.ParquetFile(found / "unique.x.parquet").num_row_groups > 1


def test_ids_that_do_not_fit_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    made = Vocabularies(tmp_path, Categorify())
    made.fit(["a", "b"])
    monkeypatch.setattr("distrain.prep.updates.vocabularies.FIRST_OOV_ID", 2**31)
    wording.refused(DataError, lambda: made.update(1, ["c"]), column="x")


# On a cluster.

WORKFLOW = Workflow(
    (
        ColumnGroup(("price",), (FillMissing(0), Normalize())),
        ColumnGroup(("user", "name"), (Categorify(3, num_buckets=5),)),
        ColumnGroup(("item", "before"), (Categorify(2, domain="item"),)),
    )
)


def rows_of(day: int, num_rows: int = 600) -> pa.Table:
    source = np.random.default_rng(day)
    first = 40 * day  # each day some values go and others come
    user = source.integers(first, first + 400, num_rows)
    names = [f"{n}-é" if n % 7 else None for n in source.integers(first, first + 200, num_rows)]
    before = [
        source.integers(first, first + 300, source.integers(0, 4)).tolist() or None
        for _ in range(num_rows)
    ]
    return pa.table(
        {
            "label": source.integers(0, 2, num_rows),
            "price": source.normal(10 + day, 1, num_rows),
            "user": pa.array(user, mask=user % 9 == 0),
            "name": names,
            "item": source.integers(first, first + 300, num_rows),
            "before": pa.array(before, pa.list_(pa.int64())),
        }
    )


Prep = Callable[..., PrepResult]


@pytest.fixture(scope="module")
def prep(client: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prep]:
    """Prepare days in small parts, with counts in many files and pieces."""
    folder = tmp_path_factory.mktemp("days")

    def run(name: str, *days: int, **options: Any) -> PrepResult:
        for day in days:
            pq.write_table(rows_of(day), folder / f"{day}.parquet", row_group_size=50)
        inputs = tuple(str(folder / f"{day}.parquet") for day in days)
        if "saved_workflow" not in options:
            options["workflow"] = WORKFLOW
        request = PrepRequest(inputs, folder / name, block_bytes=256 * 100, **options)
        return prepare(request, client)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryPlan, "held_bytes", 4_000)
        patch.setattr(MemoryPlan, "piece_bytes", 1_600)
        yield run


@pytest.fixture(scope="module")
def plain(prep: Prep) -> PrepResult:
    """The first day."""
    return prep("plain", 0)


def _no_whole_vocabulary(*_: object) -> None:
    raise AssertionError("a vocabulary may be larger than memory")


def values_in(table: pa.Table, name: str) -> list[Any]:
    if name != "item":
        return [value for value in table[name].to_pylist() if value is not None]
    return table["item"].to_pylist() + table["before"].combine_chunks().flatten().to_pylist()


def vocabularies(result: PrepResult) -> dict[str, Vocabulary]:
    folder = result.out / "workflow" / "categories"
    return {name: Vocabulary.load(folder, name) for name in ("user", "name", "item")}


def files_in(folder: Path, pattern: str = "*") -> dict[str, bytes]:
    return {
        str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob(pattern) if f.is_file()
    }


def test_a_saved_workflow_learns_a_day(
    prep: Prep, plain: PrepResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = plain.out / "workflow"
    content_before = files_in(saved)
    with monkeypatch.context() as patched:
        patched.setattr(Vocabulary, "load", _no_whole_vocabulary)
        second = prep("second", 1, saved_workflow=saved, update=True)
    assert files_in(saved) == content_before
    for name, threshold in (("user", 3), ("name", 3), ("item", 2)):
        old, new = vocabularies(plain)[name], vocabularies(second)[name]
        day = [Counter(values_in(rows_of(n), name)) for n in (0, 1)]
        known = old.values.to_pylist()
        both, passing = day[0] + day[1], day[1]
        wanted = [v for v, count in passing.items() if count >= threshold and v not in known]
        added = sorted(wanted, key=lambda v: (-passing[v], v.encode() if name == "name" else v))
        assert added, name
        assert new.values.to_pylist() == known + added
        counts = [both[v] for v in known] + [passing[v] for v in added]
        assert new.counts.to_pylist() == counts
        assert new.oov_observed == sum(both.values()) - sum(counts)
        nulls = sum(rows_of(n)[name].null_count for n in (0, 1) if name != "item")
        assert new.nulls_observed == nulls
        assert second.new_ids[name] == len(added)
        assert second.cardinalities[name] == new.cardinality
    assert second.new_ids["before"] == second.new_ids["item"]
    loaded, fitted = (Workflow.load(result.out / "workflow") for result in (second, plain))
    assert loaded.groups[0] == fitted.groups[0], "numbers keep their scale"
    found = pa.concat_tables(map(pq.read_table, sorted((second.out / "train").iterdir())))
    assert found.drop_columns("label").equals(loaded.transform(rows_of(1)).drop_columns("label"))


def test_what_was_learnt_is_in_the_report_and_the_workflow(prep: Prep, plain: PrepResult) -> None:
    results = [plain]
    for day in (1, 2):
        saved = results[-1].out / "workflow"
        results.append(prep(f"to {day}", day, saved_workflow=saved, update=True, valid_rows=100))
    report = json.loads((results[-1].out / "prep.json").read_text())
    assert report["new_ids"] == results[-1].new_ids
    document, first = (
        json.loads((result.out / "workflow" / "workflow.json").read_text())
        for result in (results[-1], plain)
    )
    paths = [path for result in results for path in result.inputs]
    assert list(document["raw_files"]["train"]) == paths
    assert {**document, "raw_files": {}} == {**first, "raw_files": {}}


def test_the_same_rows_again_give_no_new_id_and_cuts_do_not_show(
    prep: Prep, plain: PrepResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = plain.out / "workflow"
    again = prep("again", 0, saved_workflow=saved, update=True)
    assert set(again.new_ids.values()) == {0}
    assert again.learnt_before == again.inputs
    for name, vocabulary in vocabularies(again).items():
        assert vocabulary.values.equals(vocabularies(plain)[name].values)
        doubled = [2 * count for count in vocabularies(plain)[name].counts.to_pylist()]
        assert vocabulary.counts.to_pylist() == doubled
    pieces = prep("pieces", 0, 1, saved_workflow=again.out / "workflow", update=True)
    assert pieces.learnt_before == again.inputs
    monkeypatch.setattr(MemoryPlan, "held_bytes", 1 << 25)
    monkeypatch.setattr(MemoryPlan, "piece_bytes", 1 << 26)
    whole = prep("whole", 0, 1, saved_workflow=again.out / "workflow", update=True)
    folders = [result.out / "workflow" / "categories" for result in (whole, pieces)]
    assert files_in(folders[0]) == files_in(folders[1])


def test_a_saved_vocabulary_that_is_replaced_meanwhile_is_refused(
    tmp_path: Path, wording: Wording
) -> None:
    (tmp_path / "copy").mkdir()
    saved = Vocabulary(pa.array(["a", "b"]), pa.array([2, 1]))
    saved.save(tmp_path, "C1")
    looked_at = SavedVocabulary.look_at(str(tmp_path), "C1")
    looked_at.save(tmp_path / "copy", "C1")
    assert Vocabulary.load(tmp_path / "copy", "C1").values.equals(saved.values)
    replace(saved, values=pa.array(["a"]), counts=pa.array([2])).save(tmp_path, "C1")
    wording.refused(DataError, lambda: looked_at.save(tmp_path / "copy", "C1"))
