"""The section that places tables."""

import pytest

from distrain.errors import SpecError
from distrain.jobs.spec import parse_spec
from distrain.jobs.spec.models.kinds import EmbeddingsSpec
from distrain.models.embeddings.columns import PLACEMENTS


def section(**fields):
    document = {"data": {"train": "t"}, "model": {"kind": "mlp"}, "embeddings": fields}
    return parse_spec(document).embeddings


def test_what_was_valid_before_is_valid_still():
    assert section() == section(placement="auto")
    assert section(placement="replicated").placement == "replicated"


def test_tables_storage_and_memory():
    found = section(tables={"C1": "host_cached"}, storage="bf16", memory_gib=1.5)
    assert (found.tables, found.storage, found.memory_gib) == ({"C1": "host_cached"}, "bf16", 1.5)


def test_combiners_of_lists():
    assert (section().combiner, section().combiners) == ("mean", {})
    found = section(combiner="sum", combiners={"tags": "mean"})
    assert (found.combiner, found.combiners) == ("sum", {"tags": "mean"})


def test_mistakes_are_named_with_what_is_allowed(wording):
    for fields in (
        {"placement": "rowwise"},
        {"tables": {"C1": "auto"}},
        {"tables": ["C1"]},
        {"combiner": "max"},
        {"combiners": {"tags": "max"}},
        {"storage": "fp16"},
        {"memory_gib": 0},
    ):
        with pytest.raises(SpecError) as caught:
            section(**fields)
        assert caught.value.message.startswith(f"embeddings.{next(iter(fields))}")
        wording(caught.value)


def test_the_placements_of_a_spec_are_those_of_the_tables():
    field = EmbeddingsSpec.model_json_schema()["properties"]["placement"]
    assert field["enum"] == ["auto", *PLACEMENTS]
