"""Every named model with tasks of each kind: built, trained a step, saved and loaded."""

from dataclasses import replace
from itertools import cycle

import pytest
import torch

from distrain.errors import ModelError, SpecError
from distrain.jobs.spec import TrainSpec, parse_spec
from distrain.jobs.spec.targets import with_targets
from distrain.loader.batch import Batch
from distrain.models import build_model, load_model
from distrain.models.heads import (
    BinaryClassificationTask,
    MulticlassTask,
    MultiTask,
    RegressionTask,
)
from distrain.models.heads.named_head import weigh
from distrain.models.saved_model import save_model
from distrain.schema import ColumnSchema, Schema, Tags
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import PhaseClock

USER, ITEM = (
    (Tags.CATEGORICAL, Tags.USER, Tags.USER_ID),
    (Tags.CATEGORICAL, Tags.ITEM, Tags.ITEM_ID),
)
TABLE = Schema(
    (
        ColumnSchema("clicked", "float32", (Tags.TARGET,)),
        ColumnSchema("user", "int32", USER, cardinality=9),
        ColumnSchema("item", "int32", ITEM, cardinality=7),
        ColumnSchema("hour", "int32", (Tags.CATEGORICAL,), cardinality=24),
        ColumnSchema("age", "float32", (Tags.CONTINUOUS,)),
        ColumnSchema("rank", "float32", (Tags.CONTINUOUS,)),
    )
)
TASKS = {
    "click": {"target": "clicked", "hidden": [4]},
    "genre": {"kind": "multiclass", "classes": 3, "loss_weight": 0.5},
    "seconds": {"kind": "regression", "loss": "poisson"},
}
CROSSES = [{"columns": ["user", "hour"], "num_bins": 11}]
MODELS = {
    "mlp": {},
    "tabular": {},
    "dlrm": {},
    "dlrm_cross": {"crosses": CROSSES},
    "dcn": {},
    "dcn_v2": {},
    "deepfm": {},
    "wide_deep": {"crosses": CROSSES},
    "ncf": {},
}


def spec_of(kind, tasks=None, **options):
    model = {"kind": kind, **MODELS[kind], **({} if tasks is None else {"tasks": tasks}), **options}
    return parse_spec({"data": {"train": "t"}, "model": model})


def build(spec, table=TABLE):
    schema = with_targets(table, spec)
    return build_model(schema, spec.model, seed=3), schema


def batch_for(model, schema, rows=12):
    generator = torch.Generator().manual_seed(1)
    names = model.inputs.categorical_names
    ids = [torch.randint(schema[name].cardinality, (rows,), generator=generator) for name in names]
    targets = schema.select_by_tag(Tags.TARGET).names
    labels = torch.randint(2, (rows, len(targets)), generator=generator).float()
    numbers = model.continuous_names
    return Batch(
        torch.stack(ids, 1).int(),
        torch.randn(rows, len(numbers), generator=generator),
        labels[:, 0],
        names,
        numbers,
        labels,
        targets,
    )


# What shares sees only the width of what a model gives: each way with three models.
@pytest.mark.parametrize(
    ("kind", "sharing"), [*zip(MODELS, cycle(["shared_bottom", "mmoe", "ple"]), strict=False)]
)
def test_a_named_model_learns_tasks_of_all_kinds(kind, sharing, tmp_path):
    spec = spec_of(kind, TASKS, sharing=sharing)
    model, schema = build(spec)
    batch = batch_for(model, schema)
    step = TrainStep(model, TrainSpec.model_validate({"optimizer": {"kind": "adam"}}), 1)
    losses = [float(step(batch, 12, 0.01, PhaseClock())[1]) for _ in range(15)]
    assert losses[-1] < 0.97 * losses[0]
    scores = model.eval().scores(batch)
    assert [tuple(score.shape) for score in scores] == [(12,), (12, 3), (12,)]
    assert (scores[2] > 0).all()
    save_model(tmp_path / "model", model, spec.model, schema)
    again = load_model(tmp_path / "model").model.eval()
    assert again.task.targets == model.task.targets
    for one, other in zip(again.scores(batch), scores, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("task", [{}, {"kind": "regression"}], ids=str)
def test_the_loss_weight_of_a_task_alone_counts(task):
    losses = {}
    for factor in (1.0, 0.25):
        tasks = {"clicked": {"loss_weight": factor, **task}}
        model, schema = build(spec_of("mlp", tasks))
        step = TrainStep(model, TrainSpec(), 1)
        losses[factor] = float(step(batch_for(model, schema), 12, 0.01, PhaseClock())[1])
    assert losses[0.25] == pytest.approx(0.25 * losses[1.0])


@pytest.mark.parametrize("others", [{}, {"seconds": {"kind": "regression"}}], ids=len)
def test_a_tasks_weight_may_be_that_of_all(others):
    tasks = {"click": {"target": "clicked", "weight": "w"}, **others}
    spec = parse_spec(
        {"data": {"train": "t", "weight": "w"}, "model": {"kind": "mlp", "tasks": tasks}}
    )
    model, schema = build(spec)
    assert {target.weight for target in model.task.targets} == {None}
    weighted = replace(batch_for(model, schema), weight=torch.arange(12.0))
    assert float(TrainStep(model, TrainSpec(), 1)(weighted, 12, 0.01, PhaseClock())[1]) > 0


@pytest.mark.parametrize("kind", ["mlp", "wide_deep", "ncf"])
def test_one_binary_task_is_the_model_as_it_was(kind):
    plain, schema = build(spec_of(kind))
    named, _ = build(spec_of(kind, {"click": {"target": "clicked"}}))
    assert plain.task.targets[0].name == "clicked"
    assert named.task.targets[0].name == "click"
    ours, theirs = named.state_dict(), plain.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    batch = batch_for(plain, schema)
    assert torch.equal(named.eval()(batch), plain.eval()(batch))


def test_kinds_follow_the_tags_of_the_targets():
    tagged = (
        ColumnSchema("seconds", "float32", (Tags.TARGET, Tags.REGRESSION)),
        ColumnSchema("genre", "int32", (Tags.TARGET, Tags.MULTI_CLASS_CLASSIFICATION), 3),
    )
    alone, _ = build(spec_of("deepfm"), TABLE.remove(["clicked"]).with_columns(tagged[0]))
    assert isinstance(alone.task, RegressionTask)
    both, _ = build(spec_of("mlp"), TABLE.with_columns(*tagged))
    assert isinstance(both.task, MultiTask)
    kinds = [type(task) for task in both.task.tasks]
    assert kinds == [BinaryClassificationTask, RegressionTask, MulticlassTask]
    assert both.task.names == ("clicked", "seconds", "genre")


def test_what_cannot_be_built_is_refused(wording):
    two = {"click": {"target": "clicked"}, "genre": TASKS["genre"]}
    order = {"kind": "esmm", "order": ["click"]}
    both = {"buy": {}, "click": {"target": "clicked"}}
    wording.refused(
        ModelError,
        lambda: build(spec_of("mlp", sharing="mmoe")),
        lambda: build(spec_of("mlp", two, sharing="esmm")),
        lambda: build(spec_of("mlp", both, sharing=order)),
    )


def test_weights_by_class_are_for_tasks_and_targets(wording):
    model, schema = build(spec_of("mlp", TASKS))
    weigh(model.task, schema, {"clicked": {1: 3.0}, "genre": {0: 0.0, 2: 2.0}})
    click, genre, _ = model.task.tasks
    assert click.class_weight.tolist() == [1, 3]
    assert genre.class_weight.tolist() == [0, 1, 2]
    assert "class_weight" not in "".join(model.state_dict())
    wording.refused(SpecError, lambda: weigh(model.task, schema, {"nosuch": {1: 3.0}}))
    wording.refused(
        ModelError,
        lambda: weigh(model.task, schema, {"click": {2: 3.0}}),
        lambda: weigh(model.task, schema, {"seconds": {1: 3.0}}),
    )


def test_the_order_of_esmm_can_be_named():
    order = {"kind": "esmm", "order": ["click", "buy"]}
    model, _ = build(spec_of("mlp", {"buy": {}, "click": {"target": "clicked"}}, sharing=order))
    assert [target.name for target in model.task.targets] == ["click", "buy"]
