"""What a job spec accepts, and how it tells what it does not."""

import json
from itertools import count

import pydantic
import pytest
import yaml
from hypothesis import given, settings, strategies as st

from distrain.errors import SpecError
from distrain.spec import DlrmSpec, JobSpec, MlpSpec, TrainSpec, load_spec, parse_spec

SMALLEST = {"data": {"train": "day_0"}, "model": {"kind": "mlp"}}

KINDS = (
    "mlp, tabular, dlrm, dlrm_cross, dcn, dcn_v2, deepfm, wide_deep, two_tower, ncf, "
    "din, bst, sasrec, sasrec_retrieval, hstu, gdcn, masknet, autoint, xdeepfm, finalmlp, custom"
)


def refusal(document, *overrides):
    with pytest.raises(SpecError) as caught:
        parse_spec(document, overrides)
    return caught.value.message


def with_section(name, **fields):
    return {**SMALLEST, name: {**SMALLEST.get(name, {}), **fields}}


def test_defaults():
    spec = parse_spec(SMALLEST)
    assert spec.data.train == ("day_0",)
    assert spec.data.valid == ()
    assert isinstance(spec.model, MlpSpec)
    assert (spec.name, spec.version, spec.tags) == ("distrain", 1, {})
    assert (spec.train.lanes, spec.train.epochs, spec.train.max_steps) == (24, 1, None)
    assert (spec.train.optimizer.kind, spec.train.optimizer.lr) == ("adagrad", 0.01)
    assert (spec.resources.num_ranks, spec.resources.backend) == (1, "dask")
    assert (spec.deadlines.start_s, spec.deadlines.total_s) == (900.0, None)
    assert spec.evaluate.at_end
    assert parse_spec({**SMALLEST, "model": {"kind": "dlrm"}}).model == DlrmSpec()


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
    plain = spec.model_dump(mode="json")
    assert parse_spec(plain) == spec
    assert parse_spec(json.loads(json.dumps(plain, allow_nan=False))) == spec
    assert parse_spec(yaml.safe_load(yaml.safe_dump(plain))) == spec
    assert parse_spec(json.loads(spec.model_dump_json())) == spec
    assert "schema" in plain["data"]
    assert "schema_path" not in plain["data"]


def test_a_spec_is_frozen_at_every_level():
    spec = parse_spec(SMALLEST)
    for section, field in ((spec, "name"), (spec.train, "epochs"), (spec.train.optimizer, "lr")):
        with pytest.raises(pydantic.ValidationError, match="frozen"):
            setattr(section, field, 1)


@pytest.mark.parametrize(
    ("document", "path", "near", "allowed"),
    [
        ({**SMALLEST, "trian": {}}, "trian", "train", "resources"),
        (with_section("data", trian="x"), "data.trian", "train", "schema"),
        (with_section("data", shema="x"), "data.shema", "schema", "prefetch_batches"),
        (with_section("model", hiden=[1]), "model.hiden", "hidden", "embedding_dim"),
        (with_section("train", epoch=1), "train.epoch", "epochs", "lanes"),
        (with_section("train", optimizer={"lrr": 1}), "train.optimizer.lrr", "lr", "betas"),
        (with_section("train", schedule={"decy": 1}), "train.schedule.decy", "decay", "warmup"),
        (with_section("evaluate", at_ende=True), "evaluate.at_ende", "at_end", "every_steps"),
        (with_section("resources", nranks=1), "resources.nranks", "num_ranks", "backend"),
        (with_section("deadlines", start="1"), "deadlines.start", "start_s", "collective_s"),
        (with_section("embeddings", place=1), "embeddings.place", "placement", "placement"),
    ],
)
def test_an_unknown_key_names_its_path_the_nearest_key_and_all_keys(document, path, near, allowed):
    message = refusal(document)
    assert message.startswith(f"{path}: unknown key; did you mean {near!r}? (allowed: ")
    assert allowed in message
    assert "\n" not in message


def test_an_unknown_key_like_no_other_has_no_guess():
    assert refusal({**SMALLEST, "zzz": 1}).startswith("zzz: unknown key (allowed: version, name,")
    assert refusal({**SMALLEST, "": 1}).startswith("'': unknown key")
    assert refusal({**SMALLEST, "a\nb": 1}).startswith(r"'a\nb': unknown key")
    assert refusal({**SMALLEST, 5: 1}).startswith("5: unknown key")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "data: required, but missing\nmodel: required, but missing"),
        ({**SMALLEST, "data": {}}, "data.train: required, but missing"),
        (
            {**SMALLEST, "data": 5},
            "data: a mapping of keys is needed, such as {train: ..., schema: auto}, not 5",
        ),
        (
            {**SMALLEST, "train": None},
            "train: a mapping of keys is needed, such as {global_batch_size: 65536, epochs: 1}, "
            "not null",
        ),
        (
            {**SMALLEST, "tags": ["a"]},
            "tags: a mapping of keys is needed, such as {NAME: VALUE}, not ['a']",
        ),
        (
            {**SMALLEST, "tags": {"a": 1}},
            "tags.a: a text is needed (in quotes, if it looks like a number), not 1",
        ),
        (
            {**SMALLEST, "model": 5},
            "model: a mapping of keys is needed, such as {kind: mlp}, not 5",
        ),
        ({**SMALLEST, "model": {}}, f"model.kind: required, but missing (allowed: {KINDS})"),
        (with_section("model", kind="gpt"), f"model.kind: 'gpt' is no model (allowed: {KINDS})"),
        (with_section("model", kind=None), f"model.kind: null is no model (allowed: {KINDS})"),
        (with_section("model", hidden=[8, 0]), "model.hidden.1: input should be greater than 0"),
        (with_section("data", train=[]), "data.train: needs at least 1 item"),
        (with_section("data", train=None), "data.train: needs at least 1 item"),
        (with_section("data", train={"a": 1}), "data.train: a list is needed, not {'a': 1}"),
        (
            with_section("data", train=[5]),
            "data.train.0: a text is needed (in quotes, if it looks like a number), not 5",
        ),
        (with_section("train", epochs=0), "train.epochs: input should be greater than 0, not 0"),
        (with_section("train", precision="fp8"), "train.precision: input should be 'fp32'"),
        (with_section("train", lanes=2**20), "train.lanes: input should be less than or equal"),
        (with_section("train", seed=2**63), "train.seed: input should be less than"),
        (
            with_section("train", optimizer={"lr": float("inf")}),
            "a finite number is needed, not inf",
        ),
        (with_section("train", optimizer={"betas": [0.9]}), "betas.1: required, but missing"),
        (
            with_section("train", optimizer={"betas": [0.9, 1]}),
            "betas.1: input should be less than",
        ),
        (with_section("train", optimizer={"betas": [0, 0, 0]}), "betas: has more than 2 items"),
        (with_section("deadlines", start_s=0), "start_s: input should be greater than 0, not 0"),
        ({**SMALLEST, "name": "../x"}, "name: 1 to 63 letters, digits, dots, hyphens"),
        ({**SMALLEST, "name": "x\n"}, "name: 1 to 63 letters, digits, dots, hyphens"),
        (
            {**SMALLEST, "model": {"kind": "dlrm", "tasks": {"a.b": {"kind": "binary"}}}},
            "1 to 63 letters, digits, hyphens and underscores are needed",
        ),
        (with_section("evaluate", metrics={"own": "x"}), "package.module:NAME is needed, not 'x'"),
        ({**SMALLEST, "version": 2}, "version: input should be 1, not 2"),
    ],
)
def test_a_wrong_value_names_its_path_and_itself(document, message):
    assert message in refusal(document)


def test_a_wrong_value_is_shown_on_one_short_line():
    message = refusal(with_section("train", epochs="long\n" * 1000))
    assert "\n" not in message
    assert len(message) < 200
    huge = refusal(with_section("train", seed=10**5000))
    assert huge.endswith("not something too large to show")


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


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.epochs", "cannot use the override 'train.epochs'; write it as section.field=value"),
        ("=3", "cannot use the override '=3'"),
        ("train..epochs=3", "cannot use the override"),
        ("data.train.0=3", "cannot set data.train.0: train is not a section"),
        ("train.epochs=[1", "cannot set train.epochs to '[1': not YAML"),
        ("train.epochs=2026-13-45", "cannot set train.epochs to '2026-13-45': not YAML: month"),
        ("tags={a: 1, a: 2}", "names a twice"),
        ("train.lr=3", "train.lr: unknown key; did you mean 'optimizer.lr'?"),
        ("model.kind=dlmr", "model.kind: 'dlmr' is no model; did you mean 'dlrm'? (allowed: "),
        ("train.epoch=3", "train.epoch: unknown key; did you mean 'epochs'?"),
        ("train.early_stopping=true", "is needed, such as {metric: auc, patience: 3}, not True"),
        ("train.epochs=two", "train.epochs: a whole number is needed, not 'two'"),
        ("train.epochs=0", "train.epochs: input should be greater than 0, not 0"),
        ("train.cuda_graph=3", "train.cuda_graph: true or false or 'auto' is needed, not 3"),
        ("train.epochs=1.5", "train.epochs: a whole number is needed, not 1.5"),
        ("train.optimizer.lr=high", "train.optimizer.lr: a number is needed, not 'high'"),
        ("checkpoint.at_end=maybe", "checkpoint.at_end: true or false is needed, not 'maybe'"),
        ("train.epochs=", "train.epochs: a whole number is needed, not null"),
        ("train.epochs.x=1", "train.epochs: a whole number is needed, not {'x': 1}"),
    ],
)
def test_an_override_that_cannot_be_is_told(override, message):
    assert message in refusal(SMALLEST, override)


def test_all_mistakes_are_told_at_once(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(
        "queue: {priority: high}\n"
        "data: {valid: [], radar: auto}\n"
        "model: {kind: mlp, hidden: [0]}\n"
        "train: {epochs: -1}\n"
    )
    with pytest.raises(SpecError) as caught:
        load_spec(path, ["oops", "resources.num_ranks=none"])
    assert caught.value.where == {"file": str(path)}
    told = [line.split(":")[0] for line in caught.value.message.splitlines()]
    assert told == [
        "cannot use the override 'oops'; write it as section.field=value",
        "data.train",
        "data.radar",
        "model.hidden.0",
        "train.epochs",
        "resources.num_ranks",
        "queue.priority",
    ]


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


def test_a_written_number_of_lanes_stays_with_another_number_of_ranks():
    written = parse_spec(SMALLEST, ["resources.num_ranks=16"]).model_dump(mode="json")
    assert written["train"]["lanes"] == 48
    assert parse_spec(written, ["resources.num_ranks=8"]).train.lanes == 48
    assert parse_spec(written, ["resources.min_ranks=4"]).allowed_ranks == (16, 12, 8, 6, 4)
    assert "train.lanes 48" in refusal(written, "resources.num_ranks=32")


def test_lanes_that_the_ranks_do_not_divide_are_refused_with_the_number_to_use():
    assert refusal(SMALLEST, "resources.num_ranks=5", "train.lanes=24") == (
        "resources.num_ranks 5 does not divide train.lanes 24; with 24 lanes it may be "
        "1, 2, 3, 4, 6, 8, 12, 24; a new run with 5 ranks takes train.lanes 120 (or auto)"
    )
    assert "may be 1, 7" in refusal(SMALLEST, "resources.num_ranks=2", "train.lanes=7")
    assert "may be 1, 2" in refusal(SMALLEST, "resources.num_ranks=65535", "train.lanes=65536")
    assert "set train.lanes to 65535" in refusal(SMALLEST, "resources.num_ranks=65535")
    assert refusal(SMALLEST, "resources.num_ranks=70001").endswith("but 65536 are the most")
    assert "train.lanes" in refusal(SMALLEST, "train.lanes=many")


def test_the_schema_and_a_section_of_its_own_take_auto():
    lanes = JobSpec.model_json_schema()["$defs"]["TrainSpec"]["properties"]["lanes"]
    assert lanes["default"] == "auto"
    assert {"const": "auto"} in lanes["anyOf"]
    assert TrainSpec(lanes="auto") == TrainSpec()


def test_a_job_may_have_to_do_with_fewer_ranks_that_divide_the_lanes():
    spec = parse_spec(SMALLEST, ["resources={num_ranks: 12, min_ranks: 4}"])
    assert spec.allowed_ranks == (12, 8, 6, 4)
    assert parse_spec(SMALLEST, ["resources.num_ranks=8"]).allowed_ranks == (8,)
    assert refusal(SMALLEST, "resources={num_ranks: 2, min_ranks: 3}") == (
        "resources.min_ranks 3 is more than resources.num_ranks 2"
    )


def test_inline_is_one_rank():
    message = refusal(SMALLEST, "resources.backend=inline", "resources.num_ranks=2")
    assert message == "resources.backend inline trains one rank, but resources.num_ranks is 2"
    assert parse_spec(SMALLEST, ["resources.backend=inline"]).resources.backend == "inline"


@pytest.mark.parametrize("document", [None, [], "data", 3, [SMALLEST]])
def test_a_document_that_is_no_mapping_is_refused(document):
    with pytest.raises(SpecError, match="a job spec is a mapping of sections") as caught:
        parse_spec(document, source="job.yaml")
    assert caught.value.where == {"file": "job.yaml"}
    assert "model: {kind: dlrm}" in caught.value.hint


def test_endless_documents_are_refused():
    endless = {}
    endless["train"] = endless
    assert refusal({**SMALLEST, "train": endless}) == "the job spec is nested too deeply"
    endless_list = []
    endless_list.append(endless_list)
    assert "train: a mapping of keys is needed" in refusal({**SMALLEST, "train": endless_list})


def test_model_specs_know_their_own_keys_only():
    message = refusal({**SMALLEST, "model": {"kind": "dlrm", "hidden": [1]}})
    known = "kind, embedding_dim, bottom, top, number_pieces, tasks, sharing"
    assert message == (
        f"model.hidden: unknown key; did you mean 'sharing.hidden'? (allowed: {known})"
    )


def test_the_json_schema_can_be_published():
    schema = JobSpec.model_json_schema()
    assert set(schema["required"]) == {"data", "model"}
    for section in [schema, *schema["$defs"].values()]:
        for name, field in section["properties"].items():
            assert "$ref" in field or "discriminator" in field or field["description"], name


def test_tf32_is_refused_on_a_cpu_before_anything_starts():
    document = {"data": {"train": "a"}, "model": {"kind": "mlp"}, "train": {"precision": "tf32"}}
    assert parse_spec(document).train.precision == "tf32"
    with pytest.raises(SpecError, match=r"precision tf32 needs NVIDIA's GPUs, but .* is cpu"):
        parse_spec(document, ["resources.device=cpu"])
