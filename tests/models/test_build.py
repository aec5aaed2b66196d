"""From schema and spec to a model."""

from dataclasses import replace

import pytest
import torch

from distrain.errors import ModelError, SchemaError
from distrain.jobs.spec import DlrmSpec, MlpSpec
from distrain.jobs.spec.models.interactions import AutoIntSpec
from distrain.models import build_model
from distrain.models.inputs import infer_embedding_dim
from distrain.schema import ColumnSchema, Schema, Tags

SPECS = [MlpSpec(embedding_dim=None, hidden=()), DlrmSpec()]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_same_seed_same_parameters(small_schema, spec):
    one, same, other = (build_model(small_schema(), spec, seed=s).state_dict() for s in (1, 1, 2))
    assert one
    for name, values in one.items():
        assert torch.equal(values, same[name])
        assert not torch.equal(values, other[name])


def test_global_random_state_is_neither_read_nor_changed(small_schema):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = build_model(small_schema(), MlpSpec(), seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    two = build_model(small_schema(), MlpSpec(), seed=3)
    assert torch.equal(one.task.logit.weight, two.task.logit.weight)


def test_a_categorical_target_is_no_input(small_schema):
    label = ColumnSchema("clicked", "int32", (Tags.TARGET, Tags.CATEGORICAL))
    model = build_model(small_schema().with_columns(label), MlpSpec(), seed=0)
    assert model.embeddings.names == ("c0", "c1", "c2")
    assert model.continuous_names == ("x0", "x1")


def test_widths_come_from_spec_then_schema_then_cardinality(small_schema):
    own = ColumnSchema("c1", "int32", (Tags.CATEGORICAL,), cardinality=12, embedding_dim=7)
    schema = small_schema().with_columns(own)
    fixed = build_model(schema, MlpSpec(embedding_dim=5), seed=0)
    assert [c.dim for c in fixed.embeddings.columns] == [5, 5, 5]
    free = build_model(schema, MlpSpec(embedding_dim=None), seed=0)
    expected = [infer_embedding_dim(5), 7, infer_embedding_dim(19)]
    assert [c.dim for c in free.embeddings.columns] == expected
    assert free.task.logit.in_features == 128
    assert free.dense.body.layers[0].in_features == sum(expected) + 2


def test_too_few_columns_are_refused(small_schema, wording):
    unknown = small_schema().with_columns(
        ColumnSchema("c1", tags=(Tags.CATEGORICAL,)), ColumnSchema("new", tags=(Tags.CATEGORICAL,))
    )
    wording.refused(
        SchemaError,
        lambda: build_model(unknown, MlpSpec(), seed=0),
        lambda: build_model(Schema((small_schema()["clicked"],)), MlpSpec(), seed=0),
    )
    wording.refused(
        ModelError,
        lambda: build_model(small_schema(1, 0), DlrmSpec(), seed=0),
        lambda: build_model(small_schema(0, 2), DlrmSpec(), seed=0),
        lambda: build_model(small_schema(0, 2), AutoIntSpec(), seed=0),
    )


def test_dlrm_has_the_notebooks_layers(small_schema):
    dense = build_model(small_schema(26, 13), DlrmSpec(), seed=0).dense
    shapes = {n: tuple(p.shape) for n, p in dense.named_parameters() if n.endswith("weight")}
    assert list(shapes.values()) == [
        *[(128, 13), (64, 128), (16, 64)],
        *[(64, 16 + 27 * 26 // 2), (128, 64), (256, 128)],
        (1, 256),
    ]
    unprojected = build_model(small_schema(26, 13), DlrmSpec(embedding_dim=64), seed=0).dense
    assert unprojected.body.projection is None


@pytest.mark.parametrize("tasks", [{}, {"clicked": {}}])
def test_a_row_whose_only_label_is_unknown_has_no_weight(small_schema, tasks):
    columns = small_schema(1, 1).columns
    known = replace(columns[0], properties={"known": "clicked_known"})
    beside = ColumnSchema("clicked_known", "float32", (Tags.TASK_WEIGHT,))
    model = build_model(Schema((known, *columns[1:], beside)), MlpSpec(tasks=tasks), seed=0)
    assert [target.known for target in model.task.targets] == ["clicked_known"]
