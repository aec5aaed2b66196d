"""Reading and writing schema files: our own schemas, odd files, errors."""

import json

import pytest
from hypothesis import given, settings, strategies as st

from distrain.errors import OutputError, SchemaError
from distrain.schema import ColumnSchema, Schema, Tags, criteo_schema
from distrain.schema.column import DTYPES
from distrain.schema.files import find_schema

ENDINGS = ["pbtxt", "json"]


def round_trip(schema, tmp_path, ending):
    path = tmp_path / f"schema.{ending}"
    schema.save(path)
    return Schema.load(path)


def written(tmp_path, text, name="schema.pbtxt"):
    path = tmp_path / name
    path.write_text(text)
    return path


COUNTS = st.none() | st.integers(0, 2**40)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1e9, 1e9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=5,
)
# Half of the keys are those that the mapping gives a meaning.
MEANT = ["domain", "min", "max", "presence", "comment", "string_domain", "embedding_sizes"]
MEANT += ["is_list", "dtype_item_size", "unknown_fields", "distrain", "@type"]
PROPERTY_NAMES = st.text(max_size=6) | st.sampled_from(MEANT)
COLUMNS = st.builds(
    ColumnSchema,
    name=st.text(min_size=1, max_size=8),
    dtype=st.none() | st.sampled_from(DTYPES),
    tags=st.lists(st.sampled_from([*Tags]) | st.text(max_size=5), max_size=3),
    cardinality=st.none() | st.integers(1, 2**60),
    embedding_dim=st.none() | st.integers(1, 2000),
    is_list=st.booleans(),
    is_ragged=st.booleans(),
    value_count=st.none() | st.tuples(COUNTS, COUNTS),
    properties=st.dictionaries(PROPERTY_NAMES, JSON_VALUES, max_size=3)
    | st.fixed_dictionaries(
        {},
        optional={
            "domain": st.text(max_size=4),
            "min": st.integers(-5, 5) | st.floats(-5, 5),
            "max": st.integers(-5, 5) | st.floats(-5, 5),
            "string_domain": st.lists(st.text(max_size=3), max_size=2),
            "presence": st.just({"min_fraction": 0.5, "min_count": 2}),
            "comment": st.lists(st.text(max_size=5) | st.just(' {"distrain": 1}'), max_size=2),
        },
    ),
)
SCHEMAS = st.builds(Schema, st.lists(COLUMNS, max_size=3, unique_by=lambda c: c.name))


@pytest.mark.parametrize("ending", ENDINGS)
@settings(deadline=None, max_examples=20)
@given(schema=SCHEMAS)
def test_any_schema_survives_a_file(ending, schema, tmp_path_factory):
    assert round_trip(schema, tmp_path_factory.mktemp("s"), ending) == schema


@settings(deadline=None, max_examples=40)
@given(SCHEMAS)
def test_any_schema_survives_our_json(schema):
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_preset_is_written_in_merlins_own_fields(ending, tmp_path):
    schema = criteo_schema(dict.fromkeys([f"C{i}" for i in range(1, 27)], 100), embedding_dim=8)
    schema.save(tmp_path / f"schema.{ending}")
    assert Schema.load(tmp_path / f"schema.{ending}") == schema
    assert '"distrain"' not in (tmp_path / f"schema.{ending}").read_text()


def test_the_text_is_merlins(tmp_path):
    column = ColumnSchema("C1", "int32", (Tags.CATEGORICAL,), cardinality=9, embedding_dim=4)
    Schema((column,)).save(tmp_path / "schema.pbtxt")
    assert (tmp_path / "schema.pbtxt").read_text() == (
        "feature {\n"
        '  name: "C1"\n'
        "  type: INT\n"
        "  int_domain {\n"
        '    name: "C1"\n'
        "    max: 8\n"
        "    is_categorical: true\n"
        "  }\n"
        "  annotation {\n"
        '    tag: "categorical"\n'
        "    extra_metadata {\n"
        '      type_url: "type.googleapis.com/google.protobuf.Struct"\n'
        r'      value: "\n\034\n\017dtype_item_size\022\t\021\000\000\000\000\000\000@@'
        r"\nG\n\017embedding_sizes\0224*2\n\030\n\013cardinality\022\t\021\000\000\000\000\000\000\"@"
        r"\n\026\n\tdimension\022\t\021\000\000\000\000\000\000\020@"
        r'\n\r\n\007is_list\022\002 \000\n\017\n\tis_ragged\022\002 \000"'
        "\n    }\n  }\n}\n"
    )


def test_the_json_is_merlins(tmp_path):
    column = ColumnSchema("a", "int32", cardinality=9, is_list=True, value_count=(1, 4))
    Schema((column,)).save(tmp_path / "schema.json")
    (feature,) = json.loads((tmp_path / "schema.json").read_text())["feature"]
    assert feature["valueCount"] == {"min": "1", "max": "4"}
    assert feature["intDomain"] == {"name": "a", "max": "8", "isCategorical": False}
    assert feature["annotation"]["extraMetadata"][0]["dtype_item_size"] == 32


def test_our_own_json_is_read_too(tmp_path):
    path = written(tmp_path, json.dumps(criteo_schema().to_json()), "schema.json")
    assert Schema.load(path) == criteo_schema()


@pytest.mark.parametrize(
    ("feature", "expected"),
    [
        ("", ColumnSchema("a")),
        ("type: 2", ColumnSchema("a", "int64")),
        ("type: FLOAT", ColumnSchema("a", "float64")),
        (
            "type: INT int_domain { max: 4 is_categorical: true }",
            ColumnSchema("a", "int64", ("categorical",), cardinality=5),
        ),
        (
            'int_domain { min: -3 max: -1 } annotation { tag: "categorical" }',
            ColumnSchema("a", tags=("categorical",), properties={"min": -3, "max": -1}),
        ),
        (
            "shape { dim { size: 3 } }",
            ColumnSchema("a", is_list=True, value_count=(3, 3)),
        ),
        (
            "shape { dim { size: 1 } }",
            ColumnSchema("a", properties={"unknown_fields": {"shape": {"dim": [{"size": 1}]}}}),
        ),
        (
            "value_count { max: 0 }",
            ColumnSchema("a", value_count=(None, None)),
        ),
        (
            'lifecycle_stage: BETA in_environment: "X" in_environment: "Y" '
            "float_domain { min: 1e1f disallow_nan: true } type: STRUCT",
            ColumnSchema(
                "a",
                properties={
                    "min": 10,
                    "unknown_fields": {
                        "type": "STRUCT",
                        "lifecycle_stage": "BETA",
                        "in_environment": ["X", "Y"],
                        "float_domain.disallow_nan": True,
                    },
                },
            ),
        ),
        ('domain: "elsewhere"', ColumnSchema("a", properties={"domain": "elsewhere"})),
        ('domain: "ages"', ColumnSchema("a", properties={"domain": "ages", "min": 18})),
        (
            r'annotation { comment: "{\"x\": 1.0}" comment: "by hand" }',
            ColumnSchema("a", properties={"x": 1, "comment": ["by hand"]}),
        ),
    ],
)
def test_other_dialects(feature, expected, tmp_path):
    text = f'feature {{ name: "a" {feature} }} int_domain {{ name: "ages" min: 18 }}'
    schema = Schema.load(written(tmp_path, text))
    assert schema.columns == (expected,)
    assert round_trip(schema, tmp_path, "json") == schema
    assert round_trip(schema, tmp_path, "pbtxt") == schema


def test_json_as_protobuf_prints_it(tmp_path):
    packed = {"@type": "type.googleapis.com/google.protobuf.Struct", "value": {"start_index": 1.0}}
    document = {
        "feature": [
            {
                "name": "a",
                "type": "FLOAT",
                "floatDomain": {"min": "-Infinity", "max": 3, "disallowNan": True},
                "domain": None,
                "annotation": {"extraMetadata": [packed]},
                "lifecycleStage": "BETA",
            }
        ]
    }
    schema = Schema.load(written(tmp_path, json.dumps(document), "schema.json"))
    assert schema["a"].properties == {
        "min": float("-inf"),
        "max": 3,
        "start_index": 1,
        "unknown_fields": {"lifecycle_stage": "BETA", "float_domain.disallow_nan": True},
    }
    assert round_trip(schema, tmp_path, "json") == schema


def test_a_feature_that_stands_twice_the_same_way_counts_once_aloud(tmp_path, caplog):
    twice = 'feature { name: "a" type: INT } feature { name: "b" } feature { type: INT name: "a" }'
    schema = Schema.load(written(tmp_path, twice))
    assert schema.names == ("a", "b")
    assert schema["a"].dtype == "int64"
    assert "columns listed twice with equal definitions count once: a" in caplog.text


def test_entries_about_no_column_are_left_out_aloud(tmp_path, caplog):
    text = 'feature { name: "a" } dataset_constraints { min_examples_count: 1 }'
    assert Schema.load(written(tmp_path, text)).names == ("a",)
    assert "ignored entries that describe no column: dataset_constraints" in caplog.text


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("feature {\n  name: \n}", {"line": 3}),
        ('feature {\n name: "a"\n type: "INT"\n}', {"line": 3}),
        ('feature {\n name: "a"\n name: "b"\n}', {"line": 3}),
        ("feature {\n name: a }", {"line": 2}),
        (r'feature { name: "\377" }', {"line": 1}),
        ("\nfeature {\n type: INT\n}", {"line": 2}),
        ("feature: 3", {"line": 1}),
        ("feature {\n int_domain {\n  max: 1.5\n }}", {"line": 3}),
        ("feature {\n int_domain { is_categorical: 1 }}", {"line": 2}),
        ("feature { value_count { min { } } }", {"line": 1}),
        ("feature {\n float_domain {\n\n max: x }}", {"line": 4}),
        (
            'feature { annotation {\n extra_metadata { value: "\\n" } } }',
            {"line": 2},
        ),
        (
            'feature { annotation {\n extra_metadata { type_url: "x/Y" } } }',
            {"line": 2},
        ),
        (
            r'feature { name: "a" annotation { comment: "{\"distrain\": \"[\"}" } }',
            {"line": 1, "column": "a"},
        ),
        (
            'feature { name: "a" }\nfeature { name: "a" type: INT }',
            {"line": 2},
        ),
        (
            f'feature {{ name: "{"x" * 1001}" }}',
            {"line": 1},
        ),
        ("a {" * 5000, {}),
    ],
)
def test_errors_name_file_and_line(text, where, tmp_path, wording):
    path = written(tmp_path, text)
    caught = wording.refused(SchemaError, lambda: Schema.load(path))
    assert caught.where == {"file": path, **where}


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{\n"feature": [', {"line": 2, "character": 13}),
        ("[]", {}),
        ("{}", {}),
        ('{"columns": [{"nam": "a"}]}', {}),
        ('{"feature": [7]}', {"feature": "number 1"}),
        (
            '{"feature": [{"name": "a"}, {"name": "b", "annotation": {"tag": "x"}}]}',
            {"feature": "number 2, 'b'"},
        ),
        (
            '{"feature": [{"name": "b", "intDomain": {"max": "x"}}]}',
            {"feature": "number 1, 'b'"},
        ),
        (
            '{"feature": [{"name": "b", "intDomain": {"max": true}}]}',
            {"feature": "number 1, 'b'"},
        ),
        (
            '{"feature": [{"name": "b", "annotation": {"extraMetadata": [3]}}]}',
            {"feature": "number 1, 'b'"},
        ),
        ("[" * 100_000, {}),
    ],
)
def test_json_errors_name_file_and_feature(text, where, tmp_path, wording):
    path = written(tmp_path, text, "schema.json")
    caught = wording.refused(SchemaError, lambda: Schema.load(path))
    assert caught.where == {"file": path, **where}


def test_files_that_cannot_be_read(tmp_path, wording):
    wording.refused(
        SchemaError, lambda: Schema.load(tmp_path / "none.json"), file=tmp_path / "none.json"
    )
    wording.refused(SchemaError, lambda: Schema.load(tmp_path / "nowhere"))
    written(tmp_path, "", "schema.yaml")
    wording.refused(SchemaError, lambda: Schema.load(tmp_path / "schema.yaml"))
    (tmp_path / "folder.json").mkdir()
    wording.refused(SchemaError, lambda: Schema.load(tmp_path / "folder.json"))
    (tmp_path / "latin.pbtxt").write_bytes(b"# ok\n# \xe9\n")
    wording.refused(SchemaError, lambda: Schema.load(tmp_path / "latin.pbtxt"), line=2)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(
    "column",
    [
        ColumnSchema("a", properties={"x": {1, 2}}),
        ColumnSchema("a", properties={"x": float("nan")}),
        ColumnSchema("a", properties={"x": "\ud800"}),
    ],
    ids=["set", "nan", "surrogate"],
)
def test_what_has_no_form_is_refused_and_nothing_is_written(column, ending, tmp_path, wording):
    wording.refused(SchemaError, lambda: Schema((column,)).save(tmp_path / f"schema.{ending}"))
    assert list(tmp_path.iterdir()) == []


def test_saving_where_it_cannot_be(tmp_path, wording):
    wording.refused(
        SchemaError,
        lambda: Schema().save(tmp_path / "schema.txt"),
        lambda: Schema((ColumnSchema("\ud800"),)).save(tmp_path / "schema.pbtxt"),
    )
    written(tmp_path, "", "file")
    wording.refused(OutputError, lambda: Schema().save(tmp_path / "file" / "schema.json"))


def test_the_schema_of_a_folder(tmp_path, wording):
    wording.refused(SchemaError, lambda: find_schema(tmp_path), folder=tmp_path)
    wording.refused(SchemaError, lambda: find_schema(tmp_path / "none"))
    for name in (".merlin/schema.json", "schema.json", "schema.pbtxt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        written(tmp_path, "", name)
        assert find_schema(tmp_path) == tmp_path / name
