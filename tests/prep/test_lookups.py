"""Vocabularies looked up in files that are mapped into memory."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st
from wording import Wording

from distrain.errors import DataError
from distrain.prep.lookups.index import open_own_index, write_index
from distrain.prep.lookups.mapped_vocabulary import MappedVocabulary
from distrain.prep.operators import key_index
from distrain.prep.vocabulary import Vocabulary

TEXTS = st.text(alphabet="aé\0", max_size=4)
INTEGERS = st.one_of(st.integers(-9, 9), st.integers(-(2**63), 2**63 - 1))


def vocabulary(values: list[Any], num_oov: int) -> Vocabulary:
    dtype = pa.string() if isinstance((values or [0])[0], str) else pa.int64()
    counts = pa.array(range(len(values), 0, -1), pa.int64())
    return Vocabulary(pa.array(values, dtype), counts, num_oov, 3, 4)


def through_files(
    folder: Path, whole: Vocabulary, range_bytes: int, own: bool = False
) -> MappedVocabulary:
    whole.save(folder, "c")
    if own:
        return open_own_index(str(folder), "c", range_bytes)
    index = folder / "index"
    assert write_index(str(folder), "c", str(index), range_bytes) == len(whole.values)
    return MappedVocabulary.open(str(folder), "c", lambda file: index / file)


@settings(max_examples=20, deadline=None)
@given(
    st.one_of(st.lists(TEXTS, unique=True), st.lists(INTEGERS, unique=True)),
    st.lists(st.one_of(TEXTS, st.none())),
    st.lists(st.one_of(INTEGERS, st.none())),
    st.integers(1, 3),
    st.sampled_from([1, 200, 10_000]),
    st.integers(1, 5),
    st.booleans(),
)
def test_ids_are_those_of_the_vocabulary_in_memory(
    tmp_path_factory: pytest.TempPathFactory,
    values: list[Any],
    texts: list[str | None],
    integers: list[int | None],
    num_oov: int,
    range_bytes: int,
    range_keys: int,
    own: bool,
) -> None:
    whole = vocabulary(values, num_oov)
    found = through_files(tmp_path_factory.mktemp("lookup"), whole, range_bytes, own)
    is_text = pa.types.is_string(whole.values.type)
    rows = pa.array([*values, *(texts if is_text else integers)], whole.values.type)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_index, "_RANGE_KEYS", range_keys)
        patch.setattr(key_index, "_KEPT_KEYS", 0)
        assert found.encode(rows).tolist() == whole.encode(rows).tolist()
    assert found.values.to_pylist() == whole.values.to_pylist()
    assert (found.nulls_observed, found.oov_observed) == (3, 4)
    assert (np.diff(found.index.keys.astype(object)) >= 0).all()


def test_strings_with_equal_hashes_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def few_hashes(values: pa.Array) -> Any:
        return np.array([len(value) % 3 for value in values.to_pylist()], np.uint64)

    monkeypatch.setattr(key_index, "text_hashes", few_hashes)
    monkeypatch.setattr(key_index, "_RANGE_KEYS", 7)  # equal hashes in several ranges
    monkeypatch.setattr(key_index, "_KEPT_KEYS", 0)
    names = [f"{'x' * (n % 7)}{n}" for n in range(60)]
    whole = vocabulary(names, 2)
    found = through_files(tmp_path, whole, 500)
    rows = pa.array([*reversed(names), "x", "y", ""])
    assert found.encode(rows).tolist() == whole.encode(rows).tolist()


def test_a_lookup_that_is_there_stays_and_what_is_missing_is_told(
    tmp_path: Path, wording: Wording
) -> None:
    whole = vocabulary([5, 3, 9], 1)
    found = through_files(tmp_path, whole, 1000)
    write_index(str(tmp_path), "c", str(tmp_path / "index"), 1000)  # by another worker
    assert found.encode(pa.array([9, 5])).tolist() == [5, 3]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "index",
        "meta.c.parquet",
        "unique.c.parquet",
    ]
    (tmp_path / "index" / "keys").unlink()
    wording.refused(
        DataError,
        lambda: MappedVocabulary.open(str(tmp_path), "c", lambda file: tmp_path / "index" / file),
    )
    pq.write_table(pa.table({"d": [1]}), tmp_path / "unique.c.parquet")
    wording.refused(
        DataError,
        lambda: write_index(str(tmp_path), "c", str(tmp_path / "other"), 1000),
        file=str(tmp_path / "unique.c.parquet"),
    )
    assert not (tmp_path / "other").exists()


def test_pages_of_a_large_vocabulary_are_given_back(tmp_path: Path) -> None:
    """What a lookup looks at counts as the process's memory only while it does."""
    found = through_files(tmp_path, vocabulary(list(range(0, 2**18, 2)), 1), 1 << 30)
    wanted = pa.array(range(2**18))
    known, places = found.places_of(wanted)
    assert known.tolist() == [n % 2 == 0 for n in range(2**18)]
    assert places[known].tolist() == list(range(2**17))
    resident = {}
    name = None
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.partition(" ")[0]:
            name = Path(line.split(maxsplit=5)[5]).name if str(tmp_path) in line else None
        elif name and line.startswith("Rss:"):
            resident[name] = int(line.split()[1])
    assert (resident["keys"], resident["places"]) == (0, 0)
