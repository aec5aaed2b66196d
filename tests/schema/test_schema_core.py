"""Schema and ColumnSchema: selection, errors, JSON."""

from functools import partial

import pytest

from distrain.errors import SchemaError
from distrain.schema import ColumnSchema, Schema, Tags, criteo_schema

SCHEMA = Schema(
    (
        ColumnSchema("user", tags=(Tags.CATEGORICAL, Tags.USER)),
        ColumnSchema("item", tags=(Tags.CATEGORICAL, "promoted")),
        ColumnSchema("price", "float32", (Tags.CONTINUOUS,)),
        ColumnSchema("clicked", tags=(Tags.TARGET,)),
    )
)


def test_selection_by_tag_keeps_schema_order():
    assert SCHEMA.select_by_tag(Tags.TARGET, "promoted").names == ("item", "clicked")
    assert SCHEMA.categorical.names == ("user", "item")
    assert SCHEMA.continuous.names == ("price",)
    assert SCHEMA.select_by_tag("session").names == ()


def test_removal(wording):
    assert SCHEMA.remove(["user", "price"]).names == ("item", "clicked")
    assert SCHEMA.remove_by_tag(Tags.CATEGORICAL).names == ("price", "clicked")
    wording.refused(SchemaError, lambda: SCHEMA.remove(["prices"]))


def test_an_unknown_name_offers_the_nearest_or_all(wording):
    wording.refused(SchemaError, lambda: SCHEMA["clickd"], lambda: SCHEMA["zzz"])


def test_with_columns_replaces_in_place_and_adds_at_the_end():
    new = SCHEMA.with_columns(ColumnSchema("late"), ColumnSchema("item", "int32"))
    assert new.names == ("user", "item", "price", "clicked", "late")
    assert new["item"].dtype == "int32"


def test_exactly_one_target(wording):
    assert SCHEMA.target.name == "clicked"
    wording.refused(
        SchemaError,
        lambda: SCHEMA.remove(["clicked"]).target,
        lambda: SCHEMA.with_columns(ColumnSchema("bought", tags=(Tags.TARGET,))).target,
    )


def test_names_are_unique(wording):
    wording.refused(SchemaError, lambda: Schema((ColumnSchema("a"), ColumnSchema("a"))))


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"name": "a", "dtype": "int128"},
        {"name": "a", "cardinality": 0},
        {"name": "a", "embedding_dim": -1},
        {"name": "a", "tags": "user"},
        {"name": "a", "value_count": (1, 2, 3)},
        {"name": "a", "value_count": (0, 2**63)},
        {"name": "a", "cardinality": 10**50},
    ],
)
def test_unusable_columns_are_refused(fields, wording):
    wording.refused(SchemaError, partial(ColumnSchema, **fields))


def test_tags_are_kept_once_and_in_order():
    column = ColumnSchema("a", tags=["user", Tags.ID, "user"])
    assert column.tags == ("user", "id")
    assert column.has_tag(Tags.USER)


def test_criteo():
    schema = criteo_schema({"C1": 10}, embedding_dim=16)
    assert schema.names[:2] == ("label", "I1")
    assert schema.target.name == "label"
    assert len(schema.categorical) == 26
    assert len(schema.continuous) == 13
    assert schema["C1"].cardinality == 10
    assert schema["C2"].cardinality is None
    assert schema["C2"].embedding_dim == 16
    assert Schema.from_json(schema.to_json()) == schema


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"columns": 3},
        {"columns": [3]},
        {"columns": [{"dtype": "int8"}]},
        {"columns": [{"name": "a", "cardinality": "9"}]},
        {"columns": [{"name": "a", "kind": 1}]},
    ],
)
def test_from_json_refuses_what_is_no_schema(document, wording):
    wording.refused(SchemaError, lambda: Schema.from_json(document))
