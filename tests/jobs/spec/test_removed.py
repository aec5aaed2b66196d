"""What specs could say once: refused in new ones, translated in those of runs that exist."""

import pytest
from pydantic import ValidationError

from distrain.errors import SpecError
from distrain.jobs.spec import JobSpec, parse_spec
from distrain.jobs.spec.models.kinds import EmbeddingsSpec
from distrain.jobs.spec.resuming import different_fields
from distrain.models.embeddings.columns import PLACEMENTS

JOB = {"data": {"train": "t"}, "model": {"kind": "mlp"}}
OLD = JOB | {
    "train": {"dense_sync": "ddp", "epochs": 2},
    "embeddings": {
        "placement": "two_level",
        "group_size": 4,
        "tables": {"C1": "two_level", "C2": "row_wise"},
    },
}


def test_what_meant_what_is_done_today_is_read():
    said = JOB | {"train": {"dense_sync": "flat"}, "embeddings": {"group_size": None}}
    assert parse_spec(said) == JobSpec.model_validate(said) == parse_spec(JOB)


def test_specs_of_runs_are_translated_and_resumed():
    spec = parse_spec(OLD, of_run=True)
    assert spec == parse_spec(
        JOB | {"train": {"epochs": 2}, "embeddings": {"tables": {"C2": "row_wise"}}}
    )
    assert different_fields(OLD, spec) == []
    with pytest.raises(SpecError):
        parse_spec(OLD, ["train.dense_sync=ddp"], of_run=True)


def test_the_placements_of_a_spec_are_those_of_the_tables():
    field = EmbeddingsSpec.model_json_schema()["properties"]["placement"]
    assert field["enum"] == ["auto", *PLACEMENTS]


def test_new_specs_are_refused_with_what_to_write_instead_beside_other_mistakes(wording):
    with pytest.raises(SpecError) as caught:
        parse_spec(OLD, ["train.optimiser=3"])
    lines = caught.value.message.splitlines()
    places = ("train.dense_sync", "embeddings.group_size", "embeddings.placement",
              "embeddings.tables.C1", "train.optimiser")  # fmt: skip
    assert sorted(line.partition(":")[0] for line in lines) == sorted(places)
    wording("\n".join(line for line in lines if "allowed" not in line))
    with pytest.raises(ValidationError):
        JobSpec.model_validate(OLD)
