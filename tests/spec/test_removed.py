"""What specs could say once: refused in new ones, translated in those of runs that exist."""

import pytest
from pydantic import ValidationError

from distrain.embeddings import PLACEMENTS
from distrain.errors import SpecError
from distrain.spec import EmbeddingsSpec, JobSpec, different_fields, parse_spec

JOB = {"data": {"train": "t"}, "model": {"kind": "mlp"}}
OLD = JOB | {
    "train": {"dense_sync": "ddp", "epochs": 2},
    "embeddings": {
        "placement": "two_level",
        "group_size": 4,
        "tables": {"C1": "two_level", "C2": "row_wise"},
    },
}
SENTENCES = (
    "train.dense_sync: ddp is no longer there; leave it out",
    "embeddings.group_size: 4 is no longer there; leave it out",
    "embeddings.placement: two_level is no longer there; write auto, row_wise or replicated",
    "embeddings.tables.C1: two_level is no longer there; write auto, row_wise or replicated",
)


def test_new_specs_are_refused_with_what_to_write_instead_beside_other_mistakes():
    with pytest.raises(SpecError) as caught:
        parse_spec(OLD, ["train.epoch=3"])
    for sentence in (*SENTENCES, "train.epoch: unknown key"):
        assert sentence in str(caught.value)
    with pytest.raises(ValidationError, match="dense_sync: ddp is no longer there"):
        JobSpec.model_validate(OLD)


def test_what_meant_what_is_done_today_is_read():
    said = JOB | {"train": {"dense_sync": "flat"}, "embeddings": {"group_size": None}}
    assert parse_spec(said) == JobSpec.model_validate(said) == parse_spec(JOB)


def test_specs_of_runs_are_translated_and_resumed():
    spec = parse_spec(OLD, of_run=True)
    assert spec == parse_spec(
        JOB | {"train": {"epochs": 2}, "embeddings": {"tables": {"C2": "row_wise"}}}
    )
    assert different_fields(OLD, spec) == []
    with pytest.raises(SpecError, match="dense_sync: ddp is no longer there"):
        parse_spec(OLD, ["train.dense_sync=ddp"], of_run=True)


def test_the_placements_of_a_spec_are_those_of_the_tables():
    field = EmbeddingsSpec.model_json_schema()["properties"]["placement"]
    assert field["enum"] == ["auto", *PLACEMENTS]
