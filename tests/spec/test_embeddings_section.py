"""The section that places tables."""

import pytest

from distrain.errors import SpecError
from distrain.spec import parse_spec


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


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"placement": "rowwise"}, "embeddings.placement: .*'row_wise'.*not 'rowwise'"),
        ({"tables": {"C1": "auto"}}, "embeddings.tables.C1: .*'replicated'.*not 'auto'"),
        ({"tables": ["C1"]}, "embeddings.tables: a mapping of keys is needed"),
        ({"combiner": "max"}, "embeddings.combiner: .*'sum'.*not 'max'"),
        ({"combiners": {"tags": "max"}}, "embeddings.combiners.tags: .*'sum'.*not 'max'"),
        ({"storage": "fp16"}, "embeddings.storage: .*'bf16'.*not 'fp16'"),
        ({"memory_gib": 0}, "embeddings.memory_gib: .*greater than 0"),
        ({"table": {}}, "embeddings.table: unknown key; did you mean 'tables'"),
    ],
)
def test_mistakes_are_told_with_what_is_allowed(fields, message):
    with pytest.raises(SpecError, match=message):
        section(**fields)
