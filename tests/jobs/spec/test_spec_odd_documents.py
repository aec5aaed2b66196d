"""Whatever stands in a document, the answer is a JobSpec or a SpecError."""

import json

import pytest
import yaml
from hypothesis import given, settings, strategies as st

from distrain.errors import SpecError
from distrain.jobs.spec import JobSpec, parse_spec
from distrain.jobs.spec.load import parse_yaml

SECTIONS = tuple(JobSpec.model_fields)
FIELDS = (
    "train", "valid", "schema", "schema_path", "cache_dir", "kind", "embedding_dim", "hidden",
    "bottom", "top", "optimizer", "schedule", "lr", "betas", "eps", "warmup_steps", "lanes",
    "num_ranks", "min_ranks", "seed", "max_steps", "placement", "start_s", "at_end", "backend",
)  # fmt: skip
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(
        [0, 1, 5, 24, 2**31, 2**63, 10**400, "mlp", "dlrm", "inline", "1e3", "\ud800"]
    )
    | st.floats()
    | st.text(max_size=5)
)
KEYS = st.sampled_from(FIELDS) | st.text(max_size=5)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=10,
)
SECTION = VALUES | st.dictionaries(KEYS, VALUES, max_size=6)
MODEL = SECTION | st.builds(
    lambda kind, rest: {**rest, "kind": kind},
    st.sampled_from(["mlp", "dlrm"]),
    st.dictionaries(KEYS, VALUES, max_size=3),
)
DATA = SECTION | st.just({"train": "day_0"})
DOCUMENTS = st.builds(
    lambda data, model, rest: {**rest, "data": data, "model": model},
    DATA,
    MODEL,
    st.dictionaries(
        st.sampled_from(SECTIONS) | st.text(max_size=5) | st.integers(),
        SECTION,
        max_size=4,
    ),
)
PATHS = st.lists(st.sampled_from(SECTIONS + FIELDS), min_size=1, max_size=3).map(".".join)
OVERRIDES = st.text(max_size=8) | st.builds(
    lambda path, value: f"{path}={value}",
    PATHS,
    st.text(max_size=8)
    | st.sampled_from(["5", "[1, 2]", "{a: b}", "!!bool x", "2026-13-01", "&a [*a]"]),
)


def judge(document, overrides=()):
    try:
        spec = parse_spec(document, overrides)
    except SpecError as error:
        str(error).encode()  # can be printed
        return
    plain = json.loads(json.dumps(spec.model_dump(mode="json"), allow_nan=False))
    assert parse_spec(plain) == spec
    assert parse_spec(yaml.safe_load(yaml.safe_dump(plain))) == spec


@given(DOCUMENTS | VALUES)
@settings(deadline=None, max_examples=50)
def test_any_document_is_a_spec_or_a_spec_error(document):
    judge(document)


@given(st.lists(OVERRIDES, max_size=4))
@settings(deadline=None, max_examples=30)
def test_any_override_is_a_spec_or_a_spec_error(overrides):
    judge({"data": {"train": "day_0"}, "model": {"kind": "mlp"}}, overrides)


@given(st.sampled_from(SECTIONS), SECTION)
@settings(deadline=None, max_examples=30)
def test_any_value_in_one_section_of_a_good_spec(section, value):
    judge({"data": {"train": "day_0"}, "model": {"kind": "dlrm"}, section: value})


@pytest.mark.parametrize(
    "line", ["{{<<: [*a{0}, *a{0}]}}", "[*a{0}, *a{0}]", "{{x: *a{0}, y: *a{0}}}"]
)
def test_aliases_do_not_make_a_short_document_large(line):
    # Each line doubles the one before it: 60 lines would be 2**60 values.
    lines = [f"a{i}: &a{i} {line.format(i - 1)}" for i in range(1, 60)]
    with pytest.raises(ValueError, match="aliases"):
        parse_yaml("\n".join(["a0: &a0 {x: 1}", *lines]))
    with pytest.raises(ValueError, match="itself"):
        parse_yaml("a: &a {b: *a}")
    assert parse_yaml("a: &a {x: 1}\nb: {<<: *a, y: [*a, *a]}")["b"]["x"] == 1
