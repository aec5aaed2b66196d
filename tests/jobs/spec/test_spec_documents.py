"""What a job spec accepts, and how it tells what it does not."""

import json
import re
from itertools import count

import pydantic
import pytest
import yaml
from hypothesis import given, settings, strategies as st

from distrain.errors import SpecError
from distrain.jobs.spec import JobSpec, TrainSpec, load_spec, parse_spec

SMALLEST = {"data": {"train": "day_0"}, "model": {"kind": "mlp"}}


def refusal(document, *overrides):
    """The error's text, without the lists of what is allowed, which grow."""
    with pytest.raises(SpecError) as caught:
        parse_spec(document, overrides)
    return re.sub(r" \(allowed: [^)]*\)", " (allowed: ...)", caught.value.message)


def with_section(name, **fields):
    return {**SMALLEST, name: {**SMALLEST.get(name, {}), **fields}}


@pytest.mark.parametrize(
    "document",
    [
        SMALLEST,
        {
            "version": 1,
            "name": "dlrm-nightly",
            "tags": {"team": "ads", "17": "x"},
            "data": {"train": ["a", "b*"], "valid": "c", "schema": "s.json", "drop_last": True},
            "model": {"kind": "dlrm", "embedding_dim": 4, "bottom": [8, 4], "top": [2]},
            "train": {
                "optimizer": {"kind": "adam", "lr": 1e-3, "eps": 1e-8, "betas": [0.5, 0.25]},
                "schedule": {"warmup_steps": 5, "decay": "cosine", "decay_start_step": 9},
                "seed": 2**63 - 1,
                "max_steps": 10,
            },
            "evaluate": {"every_steps": 5, "at_end": False},
            "resources": {"num_ranks": 8, "device": "cpu"},
            "deadlines": {"start_s": 1.5, "total_s": 10},
        },
    ],
    ids=["smallest", "full"],
)
def test_a_spec_survives_json_and_yaml(document):
    spec = parse_spec(document)
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        spec.train.optimizer.lr = 1
    plain = spec.model_dump(mode="json")
    assert parse_spec(plain) == spec
    assert parse_spec(json.loads(json.dumps(plain, allow_nan=False))) == spec
    assert parse_spec(yaml.safe_load(yaml.safe_dump(plain))) == spec
    assert parse_spec(json.loads(spec.model_dump_json())) == spec
    assert "schema" in plain["data"]
    assert "schema_path" not in plain["data"]


def test_overrides_set_values_read_as_yaml_in_sections_old_and_new():
    spec = parse_spec(
        SMALLEST,
        [
            "train.optimizer.lr=1e-3",
            "data.train=[a, b]",
            "evaluate.at_end=no",
            "tags.team=ads",
            " model.hidden =[8]",
            "name=a",
            "name=b",
            "data.schema=a=b",
            "train.max_steps=null",
        ],
    )
    assert spec.train.optimizer.lr == 0.001
    assert spec.data.train == ("a", "b")
    assert spec.evaluate.at_end is False
    assert (spec.tags, spec.model.hidden, spec.name) == ({"team": "ads"}, (8,), "b")
    assert (spec.data.schema_path, spec.train.max_steps) == ("a=b", None)
    assert SMALLEST == {"data": {"train": "day_0"}, "model": {"kind": "mlp"}}


@settings(max_examples=20, deadline=None)
@given(ranks=st.integers(1, 2730), named=st.booleans())
def test_auto_lanes_are_the_smallest_multiple_of_24_that_the_ranks_divide(ranks, named):
    auto = ["train.lanes=auto"] if named else []
    spec = parse_spec(SMALLEST, [f"resources.num_ranks={ranks}", *auto])
    fits = (lanes for lanes in count(24, 24) if lanes % ranks == 0)
    assert spec.train.lanes == next(fits)
    assert spec == parse_spec(SMALLEST, [f"resources.num_ranks={ranks}"])
    for short in (False, True):
        assert parse_spec(spec.model_dump(mode="json", exclude_unset=short)) == spec


@pytest.mark.parametrize("option", [{"compile": True}, {"compile": "max"}, {"route_ahead": 2}])
def test_options_of_earlier_versions_without_effect_are_ignored(option):
    assert parse_spec(with_section("train", **option)) == parse_spec(SMALLEST)


def test_the_option_workflow_of_earlier_versions_may_only_be_null() -> None:
    assert parse_spec(with_section("data", workflow=None)) == parse_spec(SMALLEST)
    with pytest.raises(SpecError) as caught:
        parse_spec(with_section("data", workflow="criteo/workflow"))
    assert "distrain prep" in caught.value.message


def test_the_schema_and_a_section_of_its_own_take_auto():
    lanes = JobSpec.model_json_schema()["$defs"]["TrainSpec"]["properties"]["lanes"]
    assert lanes["default"] == "auto"
    assert {"const": "auto"} in lanes["anyOf"]
    assert TrainSpec(lanes="auto") == TrainSpec()


def test_the_json_schema_can_be_published():
    schema = JobSpec.model_json_schema()
    assert set(schema["required"]) == {"data", "model"}
    for section in [schema, *schema["$defs"].values()]:
        for name, field in section["properties"].items():
            assert "$ref" in field or "discriminator" in field or field["description"], name


UNKNOWN_KEYS = {
    "trian": {**SMALLEST, "trian": {}},
    "data.trian": with_section("data", trian="x"),
    "model.hiden": with_section("model", hiden=[1]),
    "train.epoch": with_section("train", epoch=1),
    "train.optimizer.lrr": with_section("train", optimizer={"lrr": 1}),
    "resources.nranks": with_section("resources", nranks=1),
    "zzz": {**SMALLEST, "zzz": 1},
    "''": {**SMALLEST, "": 1},
    r"'a\nb'": {**SMALLEST, "a\nb": 1},
    "5": {**SMALLEST, 5: 1},
}
WRONG_VALUES = {
    "data": {},
    "data.train": {**SMALLEST, "data": {}},
    "data.train.0": with_section("data", train=[5]),
    "train": {**SMALLEST, "train": None},
    "tags": {**SMALLEST, "tags": ["a"]},
    "tags.a": {**SMALLEST, "tags": {"a": 1}},
    "model": {**SMALLEST, "model": 5},
    "model.kind": {**SMALLEST, "model": {}},
    "model.hidden.1": with_section("model", hidden=[8, 0]),
    "train.epochs": with_section("train", epochs=0),
    "train.lanes": with_section("train", lanes=2**20),
    "train.seed": with_section("train", seed=10**5000),
    "train.optimizer.lr": with_section("train", optimizer={"lr": float("inf")}),
    "train.optimizer.betas.1": with_section("train", optimizer={"betas": [0.9, 1]}),
    "train.optimizer.betas": with_section("train", optimizer={"betas": [0, 0, 0]}),
    "name": {**SMALLEST, "name": "x\n"},
    "evaluate.metrics.own": with_section("evaluate", metrics={"own": "x"}),
    "version": {**SMALLEST, "version": 2},
}
LIST = []
LIST.append(LIST)
ENDLESS = {}
ENDLESS["train"] = ENDLESS
WRONG_OVERRIDES = (
    "train.epochs", "=3", "train..epochs=3", "data.train.0=3", "train.epochs=[1",
    "train.epochs=2026-13-45", "tags={a: 1, a: 2}", "train.lr=3", "model.kind=dlmr",
    "train.early_stopping=true", "train.epochs=two", "train.cuda_graph=3", "train.epochs=1.5",
    "train.optimizer.lr=high", "checkpoint.at_end=maybe", "train.epochs=", "train.epochs.x=1",
    "tags.commit=12e7",
)  # fmt: skip
COMBINATIONS = (
    ("resources.num_ranks=5", "train.lanes=24"),
    ("resources.num_ranks=2", "train.lanes=7"),
    ("resources.num_ranks=65535",),
    ("resources.num_ranks=70001",),
    ("train.lanes=many",),
    ("resources={num_ranks: 2, min_ranks: 3}",),
    ("resources.backend=inline", "resources.num_ranks=2"),
    ("resources.device=cpu", "train.precision=tf32"),
)


def test_an_unknown_key_names_its_path_and_the_nearest_key(wording):
    for path, document in UNKNOWN_KEYS.items():
        message = refusal(document)
        assert message.startswith(f"{path}: "), path
        assert "\n" not in message
        wording(message)
    assert "'sharing.hidden'" in refusal({**SMALLEST, "model": {"kind": "dlrm", "hidden": [1]}})


def test_a_wrong_value_names_its_path_and_itself(wording):
    for path, document in WRONG_VALUES.items():
        message = refusal(document)
        assert f"{path}: " in message, message
        assert len(message) < 400
        wording(message)
    for endless in (ENDLESS, LIST):
        wording(refusal({**SMALLEST, "train": endless}))


@pytest.mark.parametrize("override", WRONG_OVERRIDES)
def test_an_override_that_cannot_be_is_named(override, wording):
    message = refusal(SMALLEST, override)
    assert override.partition("=")[0].partition(".")[0] in message
    wording(message)


def test_fields_that_do_not_go_together_are_named(wording):
    for overrides in COMBINATIONS:
        wording(refusal(SMALLEST, *overrides))
    assert parse_spec(SMALLEST, ["resources.backend=inline"]).resources.backend == "inline"


def test_all_mistakes_are_reported_together(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("data: {valid: [], radar: auto}\nmodel: {kind: mlp, hidden: [0]}\n")
    with pytest.raises(SpecError) as caught:
        load_spec(path, ["oops", "resources.num_ranks=none"])
    assert caught.value.where == {"file": str(path)}
    told = [line.split(":")[0] for line in caught.value.message.splitlines()]
    expected = ["data.train", "data.radar", "model.hidden.0", "resources.num_ranks"]
    assert ("'oops'" in told[0], told[1:]) == (True, expected)
    for document in (None, [], "data", 3, [SMALLEST]):
        with pytest.raises(SpecError) as caught:
            parse_spec(document, source="job.yaml")
        assert caught.value.where == {"file": "job.yaml"}


def test_a_written_number_of_lanes_stays_with_another_number_of_ranks():
    written = parse_spec(SMALLEST, ["resources.num_ranks=16"]).model_dump(mode="json")
    assert written["train"]["lanes"] == 48
    assert parse_spec(written, ["resources.num_ranks=8"]).train.lanes == 48
    assert parse_spec(written, ["resources.min_ranks=4"]).allowed_ranks == (16, 12, 8, 6, 4)
    assert parse_spec(SMALLEST, ["resources.num_ranks=8"]).allowed_ranks == (8,)
    assert "train.lanes 48" in refusal(written, "resources.num_ranks=32")
