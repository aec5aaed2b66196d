"""Ids of one vocabulary in another, against a plain dictionary."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from distrain.errors import DataError
from distrain.jobs.spec import parse_spec
from distrain.prep.vocabulary import Vocabulary
from distrain.schema import ColumnSchema, Schema, Tags
from distrain.train.data.inputs import find_vocabularies
from distrain.train.data.vocabularies import Vocabularies, new_ids

INTEGERS = st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, max_size=30)
STRINGS = st.lists(st.text(max_size=5), unique=True, max_size=30)


def vocabulary(values, num_oov=1, kind=None):
    kind = kind or (pa.string() if values and isinstance(values[0], str) else pa.int64())
    return Vocabulary(pa.array(values, kind), pa.array([1] * len(values), pa.int64()), num_oov)


@given(
    st.one_of(st.tuples(INTEGERS, INTEGERS), st.tuples(STRINGS, STRINGS)),
    st.data(),
    st.sampled_from([(1, 1), (3, 3), (1, 3)]),
)
def test_each_value_is_found_as_in_a_dictionary(values, data, buckets):
    ours, others = values
    kind = pa.string() if any(isinstance(v, str) for v in ours + others) else pa.int64()
    # Some of the old values, in any order, among others.
    kept = data.draw(st.permutations(ours[::2]))
    values_now = list(dict.fromkeys([*others, *kept]))
    old, new = vocabulary(ours, buckets[0], kind), vocabulary(values_now, buckets[1], kind)
    places = {value: 2 + buckets[1] + place for place, value in enumerate(values_now)}
    out_of = range(2, 2 + buckets[0]) if buckets[0] == buckets[1] else [-1] * buckets[0]
    wanted = [0, 1, *out_of, *(places.get(value, -1) for value in ours)]
    ids = new_ids(old, new)
    assert ids.tolist() == wanted
    assert ids.dtype == np.int32


def test_numbers_are_not_looked_up_among_words(wording):
    wording.refused(DataError, lambda: new_ids(vocabulary([1]), vocabulary(["1"])))


@pytest.mark.parametrize("buckets", [1, 3])
@pytest.mark.parametrize("kinds", ["old is long", "new is long", "both are long"])
def test_words_too_long_together_for_short_offsets_are_words(kinds, buckets):
    was, now = (
        pa.large_string() if kinds.startswith((which, "both")) else pa.string()
        for which in ("old", "new")
    )
    old = vocabulary(["x", "y", "z"], buckets, was)
    new = vocabulary(["z", "q", "x"], buckets, now)
    first = 2 + buckets
    assert new_ids(old, new)[first:].tolist() == [first + 2, -1, first]
    # Those that are not known fall into the same buckets, too.
    short = pa.array(["y", "z", None], pa.string())
    assert (
        new.encode(short.cast(was)).tolist()
        == vocabulary(["z", "q", "x"], buckets).encode(short).tolist()
    )


def test_files_are_found_beside_the_schema_and_known_again(tmp_path):
    features = [
        ColumnSchema(name, "int32", (Tags.CATEGORICAL,), 5, properties=properties)
        for name, properties in (("C1", {}), ("last", {"domain": "item"}), ("C3", {}))
    ]
    schema = Schema((ColumnSchema("label", "float32", (Tags.TARGET,)), *features))
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "part.parquet").write_bytes(b"rows")
    schema.save(tmp_path / "schema.pbtxt")
    categories = tmp_path / "workflow" / "categories"
    categories.mkdir(parents=True)
    for name in ("C1", "item"):
        vocabulary([7, 5]).save(categories, name)
    spec = parse_spec({"data": {"train": str(tmp_path / "train")}, "model": {"kind": "mlp"}})
    found = find_vocabularies(spec.data, schema)
    assert found.files.keys() == {"C1", "last"}, "nothing is known of C3"
    assert found.files["last"].name == "item"
    (tmp_path / "workflow" / "workflow.json").write_text('{"groups": []}')
    among_rows = tmp_path / "train" / ".merlin" / "schema.json"
    among_rows.parent.mkdir()
    schema.save(among_rows)
    assert find_vocabularies(spec.data, schema) == found
    again = Vocabularies.from_json(found.to_json())
    assert again == found
    assert again.files["C1"].is_unchanged
    assert again.files["C1"].read().values.to_pylist() == [7, 5]
    vocabulary([5, 7]).save(categories, "C1")
    assert not again.files["C1"].is_unchanged
    assert find_vocabularies(spec.data, schema) != found
    for other in (None, 3, "text", {"C1": 3}, {"C1": ["a"]}):
        assert Vocabularies.from_json({"vocabularies": other}) == Vocabularies({})
        assert Vocabularies.from_json({"workflow": other}) == Vocabularies({})
