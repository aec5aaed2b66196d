"""What of some weights goes where, and what is said of the rest."""

from dataclasses import replace

import pytest
from vocabulary_files import known

from distrain.models.embeddings import EmbeddingCollection, TableColumn
from distrain.models.embeddings.canonical_state import canonical_weights
from distrain.models.embeddings.columns import table_places
from distrain.train.data.vocabularies import Vocabularies
from distrain.train.warm_start.matching import Side, match

COLUMNS = (
    TableColumn("a", 5, 4),
    TableColumn("b", 7, 2),
    TableColumn("bought", 9, 4, table="item"),
    TableColumn("seen", 9, 4, "mean", table="item"),
    TableColumn("wide/a", 5, 1),
)
DENSE = {"dense.weight": (3, 2), "dense.bias": (3,)}


def side(columns=COLUMNS, dense=DENSE, files=None, hashed=()):
    return Side(columns, dense, Vocabularies(files or {}), frozenset(hashed))


def resized(name, rows):
    return [replace(c, cardinality=rows) if c.name == name else c for c in COLUMNS]


def by(found):
    return {matched.target.name: matched.by for matched in found.tables}


def test_places_are_those_of_the_canonical_tensors():
    tables = EmbeddingCollection(COLUMNS)
    tensors = {f"embeddings.{n}": t for n, t in canonical_weights(tables).items()}
    places = table_places(COLUMNS)
    assert sorted(place.name for place in places) == ["a", "b", "item", "wide/a"]
    for place in places:
        rows = tensors[place.tensor].read(slice(place.first, place.first + place.cardinality))
        assert rows.equal(tables.table(place.columns[0]))


def test_the_state_of_a_parameter_that_is_not_taken_is_not_taken() -> None:
    state = {f"dense_optimizer.{name}.step": () for name in ("weight", "bias")}
    wider = DENSE | {"dense.weight": (3, 4)}
    found = match(side(dense=DENSE | state), side(dense=wider | state))
    assert list(found.dense) == ["dense.bias", "dense_optimizer.bias.step"]
    assert found.problems == ["dense.weight was [3, 2] and is [3, 4]"]


def test_unknown_vocabularies_may_grow_but_not_shrink():
    assert match(side(), side(resized("a", 6))).problems == []
    found = match(side(), side(resized("b", 6)))
    (problem,) = found.problems
    assert problem.startswith("table b: it had 7 rows and has 6")
    assert "distrain prep --workflow" in problem
    assert by(found)["b"] == "fresh"


def test_a_table_that_grew_is_of_another_preparation_where_one_vocabulary_is_known(tmp_path):
    files = known(tmp_path / "known", "a", [3, 4])
    for old, new in ((None, files), (files, None)):
        found = match(side(files=old), side(resized("a", 6), files=new))
        (problem,) = found.problems
        assert problem.startswith("table a: it had 5 rows and has 6")
        assert by(found)["a"] == "fresh"
        assert match(side(files=old), side(files=new)).problems == []


def test_known_vocabularies_decide(tmp_path):
    old, new = known(tmp_path / "old", "a", [3, 4]), known(tmp_path / "new", "a", [4, 3])
    found = match(side(files=old), side(files=new))
    assert found.problems == []
    assert by(found) == {"a": "value", "b": "id", "item": "id", "wide/a": "value"}
    copied = known(tmp_path / "copied", "a", [3, 4])
    assert by(match(side(files=old), side(files=copied)))["a"] == "id"
    # Smaller tables are no matter where values tell.
    assert match(side(files=old), side(resized("a", 4), files=new)).problems == []


def test_a_vocabulary_that_has_changed_since_is_none(tmp_path):
    old, new = known(tmp_path / "old", "a", [3, 4]), known(tmp_path / "new", "a", [4, 3])
    known(tmp_path / "old", "a", [1, 2])
    found = match(side(files=old), side(files=new))
    assert [problem.partition(":")[0] for problem in found.problems] == ["table wide/a", "table a"]
    assert f"no longer in {tmp_path / 'old'}" in found.problems[0]


def test_hashed_crosses_move_with_their_columns(tmp_path):
    crossed = (*COLUMNS, TableColumn("a_x_b", 50, 2))
    files = {"hashed": ["a_x_b"]}
    assert match(side(crossed), side(crossed, **files)).problems == []
    larger = [*COLUMNS, TableColumn("a_x_b", 60, 2)]
    (problem,) = match(side(crossed), side(larger, **files)).problems
    assert "its ids are hashes modulo that number" in problem
    old, new = known(tmp_path / "old", "a", [3, 4]), known(tmp_path / "new", "a", [4, 3])
    found = match(side(crossed, files=old), side(crossed, files=new, **files))
    assert by(found)["a_x_b"] == "fresh"
    assert found.problems == [
        "table a_x_b: its ids are hashes of other columns' ids, and those of a have moved"
    ]


def test_hashed_crosses_are_not_taken_where_the_ids_of_a_column_left_out_have_moved(tmp_path):
    crossed = (*COLUMNS, TableColumn("a_x_b", 50, 2))
    old, new = known(tmp_path / "old", "a", [3, 4]), known(tmp_path / "new", "a", [4, 3])
    # A column that is only crossed has no table of its own.
    only = crossed[1:-2] + crossed[-1:]
    found = match(side(only, files=old), side(only, files=new, hashed=["a_x_b"]))
    assert by(found)["a_x_b"] == "fresh"
    # One that cannot be taken, for its vocabulary is gone or its width is another.
    narrow = [replace(c, dim=8) if c.name == "a" else c for c in crossed]
    found = match(side(crossed, files=old), side(narrow, files=new, hashed=["a_x_b"]))
    assert by(found)["a_x_b"] == "fresh"
    known(tmp_path / "old", "a", [1, 2])
    found = match(side(crossed, files=old), side(crossed, files=new, hashed=["a_x_b"]))
    assert by(found)["a_x_b"] == "fresh"
    shorter = [replace(c, cardinality=6) if c.name == "b" else c for c in crossed]
    found = match(side(crossed), side(shorter, hashed=["a_x_b"]))
    assert by(found)["a_x_b"] == "fresh"
    assert found.problems[-1].endswith("those of b have moved")


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (COLUMNS[1:], "table a: the model has none of its columns (a)"),
        ((*COLUMNS, TableColumn("new", 3, 4)), "table new: there was no table of its columns"),
        (
            [replace(c, dim=8) if c.name == "a" else c for c in COLUMNS],
            "table a: its embeddings had the width 4 and have 8",
        ),
        (
            (replace(COLUMNS[0], cardinality=9, table="item"), *COLUMNS[1:]),
            "table item: its columns share it, and had tables of their own: a, item",
        ),
    ],
)
def test_other_tables_are_told(columns, told):
    problems = match(side(), side(columns)).problems
    assert any(problem.startswith(told) for problem in problems), problems


def test_all_that_does_not_fit_is_told():
    dense = {"dense.weight": (3, 4), "dense.other": (1,)}
    found = match(side(), side(COLUMNS[1:], dense))
    assert found.problems == [
        "table a: the model has none of its columns (a)",
        "dense.bias was [3] and is not there",
        "dense.other was not there and is [1]",
        "dense.weight was [3, 2] and is [3, 4]",
    ]
    assert not found.dense
