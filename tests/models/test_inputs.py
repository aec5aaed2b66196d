"""What a model looks up of a batch, and under which names it sees it."""

from dataclasses import replace
from functools import partial

import torch

from distrain.errors import SchemaError
from distrain.jobs.spec import MlpSpec
from distrain.loader.batch import Batch, Ragged
from distrain.models import Blueprint, Embeddings, InputBlock, build_model
from distrain.models.blocks.hashed_cross import HashedCross
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.heads.tasks import BinaryClassificationTask
from distrain.schema import ColumnSchema, Schema, Tags


def categorical(name, cardinality, **options):
    return ColumnSchema(name, "int32", (Tags.CATEGORICAL,), cardinality=cardinality, **options)


SCHEMA = Schema(
    (
        categorical("shop", 7),
        categorical("item", 40),
        categorical("seen", 40, is_list=True, is_ragged=True, properties={"domain": "item"}),
        ColumnSchema("price", "float32", (Tags.CONTINUOUS,)),
        ColumnSchema("click", "int32", (Tags.TARGET, Tags.BINARY)),
    )
)


def batch(rows=6):
    generator = torch.Generator().manual_seed(0)
    ids = torch.stack([torch.randint(0, top, (rows,), generator=generator) for top in (7, 40)])
    offsets = torch.arange(0, 2 * rows + 1, 2, dtype=torch.int32)
    seen = torch.randint(0, 40, (2 * rows,), generator=generator, dtype=torch.int32)
    return Batch(
        ids.int().t(),
        torch.randn(rows, 1, generator=generator),
        torch.zeros(rows),
        ("shop", "item"),
        ("price",),
        lists={"seen": Ragged(seen, offsets)},
    )


def test_ids_are_handed_on_as_they_lie_where_nothing_is_derived():
    found = batch()
    ids, lists = InputBlock(SCHEMA).table_ids(found)
    assert ids is found.categorical
    assert lists is found.lists


def test_a_second_part_looks_the_same_ids_up_in_tables_of_its_own():
    cross = HashedCross(("shop", "item"), 11)
    wide = Embeddings(1, part="wide", names=["shop", "seen"], crosses=[cross])
    inputs = InputBlock(SCHEMA, Embeddings(4), wide)
    assert [(c.name, c.dim) for c in inputs.columns] == [
        ("shop", 4),
        ("item", 4),
        ("seen", 4),
        ("wide/shop", 1),
        ("wide/seen", 1),
        (f"wide/{cross.name}", 1),
    ]
    found = batch()
    ids, lists = inputs.table_ids(found)
    expected = [found["shop"], found["item"], found["shop"]]
    expected.append(cross.ids([found["shop"], found["item"]]).int())
    assert torch.equal(ids, torch.stack(expected, dim=1))
    assert ids.dtype == torch.int32
    assert {name: id(column) for name, column in lists.items()} == {
        "seen": id(found.lists["seen"]),
        "wide/seen": id(found.lists["seen"]),
    }
    one, four = inputs.shape.groups
    assert (one.dim, [c.table for c in one.columns]) == (
        1,
        ["wide/shop", "wide/seen", f"wide/{cross.name}"],
    )
    assert (four.dim, [c.table for c in four.columns]) == (4, ["shop", "item", "seen"])


def test_columns_of_one_domain_share_a_table_in_each_part():
    inputs = InputBlock(SCHEMA, Embeddings(4), Embeddings(1, part="wide", names=["item", "seen"]))
    tables = {column.name: column.table_name for column in inputs.columns}
    assert tables == {
        "shop": "shop",
        "item": "item",
        "seen": "item",
        "wide/item": "wide/item",
        "wide/seen": "wide/item",
    }
    blueprint = Blueprint(inputs, MLPBlock([3]), BinaryClassificationTask())
    model = blueprint.build(seed=0)
    assert [tuple(weight.shape) for weight in model.embeddings.weights] == [(40, 1), (47, 4)]
    assert model(batch()).shape == (6,)


def test_a_model_may_leave_the_continuous_columns_alone():
    inputs = InputBlock(SCHEMA, Embeddings(4), continuous=False)
    assert inputs.shape.width == 12
    model = Blueprint(inputs, MLPBlock([3]), BinaryClassificationTask()).build(seed=0)
    assert model(batch()).shape == (6,)


def test_columns_that_are_not_the_models_are_refused(schema_and_batch, wording):
    parts = (
        Embeddings(names=["shop", "price"]),
        Embeddings(crosses=[HashedCross(("shop", "seen"), 5)]),
        Embeddings(combiners={"shop": "sum"}),
    )
    wording.refused(SchemaError, *(partial(InputBlock, SCHEMA, part) for part in parts))
    schema, rows = schema_and_batch(3, 2, 4)
    model = build_model(schema, MlpSpec(), seed=0)
    wording.refused(
        SchemaError,
        lambda: model(replace(rows, categorical_names=("c1", "c0", "c2"))),
        lambda: model(replace(rows, continuous_names=("x0",))),
    )
