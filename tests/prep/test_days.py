"""A fitted workflow learns more days: old ids stay, new ones follow."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st
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
from distrain.prep.counting.spilling import MemoryPlan
from distrain.prep.operators.counts import NUM_BUCKETS, Counts, buckets_of
from distrain.prep.saved_vocabulary import SavedVocabulary
from distrain.prep.updates import grown_vocabularies as growing
from distrain.prep.updates.grown_vocabularies import (
    VocabularyBefore,
    write_kept,
    write_learnt_files,
    write_vocabulary,
)
from distrain.prep.updates.vocabulary_update import KEPT_BUCKETS, Limits, learn
from distrain.prep.vocabulary import Vocabulary

MANY = 1 << 20
WORDS = st.sampled_from(["", "a", "b", "c", "d", "é", "ü" * 40, "x", "y", "z"])
DAY = st.lists(WORDS, max_size=30)
DAYS = st.lists(DAY, min_size=1, max_size=4)
OPERATORS = st.builds(
    Categorify,
    freq_threshold=st.integers(0, 4),
    max_size=st.sampled_from([0, 0, 2, 5]),
    num_buckets=st.integers(0, 3),
)


@dataclass(frozen=True)
class Learned:
    """A vocabulary and what is kept beside it."""

    vocabulary: Vocabulary
    kept: Counts


def counts_of(values: Sequence[Any]) -> Counts:
    return Categorify().fit(pa.array(values, None if values else pa.string()))


def learned(
    operator: Categorify,
    day: Counts,
    before: Learned | None = None,
    keep: int = 0,
    num_pieces: int = 1,
    at_once: int = 64 * 3,
) -> Learned:
    """What the tasks do, by so many pieces; of what is read in order, three values at once."""
    num_old = len(before.vocabulary.values) if before else 0
    limits = Limits.of(operator, num_old, keep)
    was = VocabularyBefore()
    with TemporaryDirectory() as folder:
        for name in ("old", "new"):
            Path(folder, name).mkdir()
        if before:
            before.vocabulary.save(f"{folder}/old", "x")
            was = VocabularyBefore(f"{folder}/old")
            was = was.with_more(before.vocabulary.values, before.vocabulary.counts)
        pieces = []
        for piece in range(num_pieces):

            def of_piece(counts: Counts, piece: int = piece) -> Counts:
                buckets = buckets_of(counts.values).astype(int)
                mask = pa.array(buckets * num_pieces // NUM_BUCKETS == piece)
                return Counts(counts.values.filter(mask), counts.counts.filter(mask))

            known = kept = None
            if before:
                places = pa.array(np.arange(num_old))
                known = of_piece(Counts(before.vocabulary.values, places))
                kept = of_piece(before.kept)
            learnt = learn(operator, of_piece(day), known, kept, limits)
            pieces.append(write_learnt_files(learnt, f"{folder}/{piece}", keep_rare=True))
        new = f"{folder}/new"
        write_vocabulary(operator, "x", day.nulls, was, pieces, limits, new, at_once)
        write_kept(pieces, new, "x")
        rare = pq.read_table(f"{new}/rare.x.parquet").combine_chunks()
        kept = Counts(rare["x"].combine_chunks(), rare["x_size"].combine_chunks())
        return Learned(Vocabulary.load(new, "x"), kept)


def by_frequency(counted: Counter[str]) -> list[str]:
    return sorted(counted, key=lambda value: (-counted[value], value.encode()))


def content(vocabulary: Vocabulary) -> tuple[Any, ...]:
    return (
        vocabulary.values.to_pylist(),
        vocabulary.counts.to_pylist(),
        vocabulary.num_oov,
        vocabulary.nulls_observed,
        vocabulary.oov_observed,
    )


@settings(max_examples=15, deadline=None)
@given(DAYS, OPERATORS, st.booleans(), st.sampled_from([1, 4]))
def test_days_that_are_learnt_equal_a_naive_count(
    days: list[list[str]], operator: Categorify, keeps: bool, num_pieces: int
) -> None:
    """A value that passes gets the next id, and from then on all of its rows count."""
    ids: list[str] = []
    counts: Counter[str] = Counter()
    rare: Counter[str] = Counter()
    before = None
    for day in days:
        counted = Counter(day)
        counts.update({value: counted[value] for value in ids})
        passing = Counter({v: n for v, n in counted.items() if v not in ids})
        if keeps:
            passing.update(rare)
        new = [v for v in by_frequency(passing) if passing[v] >= operator.freq_threshold]
        room = max(0, operator.max_size - len(ids)) if operator.max_size else len(new)
        counts.update({value: passing[value] for value in new[:room]})
        rare = Counter({v: n for v, n in passing.items() if n < operator.freq_threshold})
        if operator.max_size and room == 0:
            rare = Counter()
        ids += new[:room]
        before = learned(operator, counts_of(day), before, MANY if keeps else 0, num_pieces)
        vocabulary = before.vocabulary
        assert vocabulary.values.to_pylist() == ids
        assert vocabulary.counts.to_pylist() == [counts[value] for value in ids]
        kept = dict(
            zip(before.kept.values.to_pylist(), before.kept.counts.to_pylist(), strict=True)
        )
        assert kept == (dict(rare) if keeps else {})
        assert vocabulary.num_oov == max(1, operator.num_buckets)
    seen = sum(map(len, days))
    assert sum(before.vocabulary.counts.to_pylist()) + before.vocabulary.oov_observed == seen


def test_the_kept_counts_are_bounded_whatever_the_pieces() -> None:
    operator = Categorify(freq_threshold=10)
    values = [n for n in range(4000) for _ in range(1 + n % 3)]
    kept = [
        learned(operator, counts_of(values), keep=1000, num_pieces=pieces).kept
        for pieces in (1, 16)
    ]
    assert kept[0].values.equals(kept[1].values)
    assert kept[0].counts.equals(kept[1].counts)
    assert len(kept[0].values) <= 1000 // KEPT_BUCKETS * KEPT_BUCKETS + KEPT_BUCKETS
    # Some 5 of each bucket's 5 values that were seen three times.
    assert np.mean(kept[0].counts.to_numpy()) > 2.8


def test_ids_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch, wording: Wording) -> None:
    before = learned(Categorify(), counts_of(["a", "b"]))
    monkeypatch.setattr(growing, "FIRST_OOV_ID", 2**31)
    wording.refused(DataError, learned, Categorify(), counts_of(["c"]), before)


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
def kept(prep: Prep) -> PrepResult:
    """The first day, with counts of rare values."""
    return prep("kept", 0, keep_counts=MANY)


@pytest.fixture(scope="module")
def plain(prep: Prep) -> PrepResult:
    """The first day, without these."""
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


def rare(result: PrepResult) -> dict[str, bytes]:
    return files_in(result.out / "workflow" / "categories", "rare.*")


@pytest.mark.parametrize("keeps", [False, True])
def test_a_saved_workflow_learns_a_day(
    prep: Prep, kept: PrepResult, plain: PrepResult, keeps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = kept if keeps else plain
    saved = first.out / "workflow"
    content_before = files_in(saved)
    with monkeypatch.context() as patched:
        patched.setattr(Vocabulary, "load", _no_whole_vocabulary)
        second = prep(f"second-{keeps}", 1, saved_workflow=saved, update=True)
    assert files_in(saved) == content_before
    for name, threshold in (("user", 3), ("name", 3), ("item", 2)):
        old, new = vocabularies(first)[name], vocabularies(second)[name]
        day = [Counter(values_in(rows_of(n), name)) for n in (0, 1)]
        known = old.values.to_pylist()
        both = day[0] + day[1]
        passing = both if keeps else day[1]
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
    loaded, fitted = (Workflow.load(result.out / "workflow") for result in (second, first))
    assert loaded.groups[0] == fitted.groups[0], "numbers keep their scale"
    found = pa.concat_tables(map(pq.read_table, sorted((second.out / "train").iterdir())))
    assert found.drop_columns("label").equals(loaded.transform(rows_of(1)).drop_columns("label"))


def test_what_was_learnt_is_in_the_report_and_the_workflow(prep: Prep, kept: PrepResult) -> None:
    results = [kept]
    for day in (1, 2):
        saved = results[-1].out / "workflow"
        results.append(prep(f"to {day}", day, saved_workflow=saved, update=True, valid_rows=100))
    report, files = json.loads((results[-1].out / "prep.json").read_text()), rare(results[-1])
    kept_counts = {"values": results[-1].kept_counts, "bytes": sum(map(len, files.values()))}
    assert (report["new_ids"], report["kept_counts"]) == (results[-1].new_ids, kept_counts)
    assert set(files) == {f"rare.{name}.parquet" for name in ("item", "name", "user")}
    document, first = (
        json.loads((result.out / "workflow" / "workflow.json").read_text())
        for result in (results[-1], kept)
    )
    assert (document["keep_counts"], document["fitted_on"]) == (MANY, first["fitted_on"])
    for update, result in zip(document["updates"], results[1:], strict=True):
        found = (update["rows"], update["new_ids"], tuple(update["inputs"]))
        assert found == (500, result.new_ids, result.inputs)
    assert {one.what for one in results[-1].drifted} >= {"mean"}


def test_kept_counts_are_passed_on_and_end_on_request(
    prep: Prep, kept: PrepResult, plain: PrepResult
) -> None:
    with_counts, without = (files_in(one.out / "workflow" / "categories") for one in (kept, plain))
    assert with_counts == without | rare(kept)
    assert not rare(plain)
    saved = kept.out / "workflow"
    assert rare(prep("used", 1, saved_workflow=saved)) == rare(kept)
    ended = prep("ended", 1, saved_workflow=saved, update=True, keep_counts=0)
    assert (rare(ended), ended.kept_counts) == ({}, {})
    begun = prep("begun", 1, saved_workflow=plain.out / "workflow", update=True, keep_counts=MANY)
    assert set(rare(begun)) == set(rare(kept))
    file = begun.out / "workflow" / "categories" / "rare.user.parquet"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(DataError) as caught:  # the message names the command's own copy
        prep("damaged", 1, saved_workflow=begun.out / "workflow", update=True)
    assert str(caught.value.where["file"]).endswith("/categories/rare.user.parquet")


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
    wording.refused(DataError, looked_at.save, tmp_path / "copy", "C1")
