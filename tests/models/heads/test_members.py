"""Members of an MLP: the mean of networks that share layers, against those networks one by one."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from distrain.jobs.spec import MlpSpec
from distrain.jobs.spec.tasks import TaskSpec
from distrain.models import build_model
from distrain.models.blocks.members import MemberMLP
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.heads.members import MemberTask
from distrain.models.heads.scores import mean_scores, one_against_rest
from distrain.models.heads.tasks import BinaryClassificationTask, MulticlassTask, RegressionTask
from distrain.models.saved_model import load_model, save_model
from distrain.models.shapes import Flat, Vectors

TASKS = {
    "binary": lambda: BinaryClassificationTask("clicked", mean=0.3),
    "two logits": lambda: BinaryClassificationTask("clicked", 2),
    "classes": lambda: MulticlassTask("genre", 4),
    "regression": lambda: RegressionTask("price", mean=2.0, std=3.0),
}


def members_of(block: MemberMLP, rows: torch.Tensor) -> list[torch.Tensor]:
    """The output of each member, computed alone."""
    pairs = zip(block.of_inputs, block.of_outputs, strict=True)
    return [block.mlp(rows * before) * after for before, after in pairs]


@pytest.mark.parametrize("rows", [0, 1, 9])
@pytest.mark.parametrize("kind", TASKS)
def test_the_whole_is_the_mean_of_members_computed_alone(kind, rows, batch, attached):
    block, task = MemberMLP(MLPBlock([6, 5]), 3), MemberTask(TASKS[kind]())
    assert attached(block, Flat(4)) == Vectors(3, 5)
    attached(task, block.output_shape)
    nn.init.normal_(block.of_outputs)
    x, labels = torch.randn(rows, 4, dtype=torch.float64), batch(rows)
    output, alone = task(block(x)), [task.task(one) for one in members_of(block, x)]
    losses = [task.task.loss(one, labels) for one in alone]
    torch.testing.assert_close(task.loss(output, labels), sum(losses) / 3)
    torch.testing.assert_close(task.losses(output, labels).sum(), sum(losses) / 3)
    expected = mean_scores(task.targets, [task.task.scores(one) for one in alone])
    torch.testing.assert_close(task.scores(output), expected)
    torch.testing.assert_close(task.logits(output), one_against_rest(expected[0]))
    assert task.logits(output).shape == (rows,)
    assert task.targets == task.task.targets


def test_gradients_of_members_are_those_of_finite_differences(batch, attached, check_gradients):
    task = MemberTask(TASKS["binary"]())
    attached(task, Vectors(3, 2))
    check_gradients(task, batch(4), torch.randn(4, 3, 2, dtype=torch.float64))


def test_one_member_is_the_mlp_itself_and_more_begin_apart(schema_and_batch):
    schema, batch = schema_and_batch(2, 3, 6)
    plain, one = (build_model(schema, spec, seed=1) for spec in (MlpSpec(), MlpSpec(members=1)))
    assert torch.equal(plain(batch), one(batch))
    several = build_model(schema, MlpSpec(members=4), seed=1)
    of_members = several.output(batch)
    assert of_members.shape == (6, 4)
    assert len(of_members[0].unique()) == 4


def test_members_are_saved_with_several_tasks_and_weights(schema_and_batch, tmp_path):
    schema, batch = schema_and_batch(2, 3, 6)
    tasks = {"clicked": TaskSpec(kind="binary"), "again": TaskSpec(kind="binary", target="clicked")}
    spec = MlpSpec(hidden=(8,), members=3, number_pieces=2, tasks=tasks)
    model = build_model(schema, spec, seed=1)
    save_model(tmp_path / "model", model, spec, schema)
    loaded = load_model(tmp_path / "model")
    for got, expected in zip(loaded.model.scores(batch), model.scores(batch), strict=True):
        assert torch.equal(got, expected)
    weights = torch.tensor([0.0, 1.0, 2.0, 1.0, 0.0, 3.0])
    labels = {"labels": batch.label[:, None], "label_names": ("clicked",)}
    weighted, output = replace(batch, weight=weights, **labels), model.output(batch)
    kept = replace(weighted, labels=weighted.labels[weights > 0], weight=weights[weights > 0])
    with_zero, without = (
        model.task.losses(output, weighted),
        model.task.losses(output[weights > 0], kept),
    )
    torch.testing.assert_close(with_zero, without)
    assert model.task.weight_sums(weighted).tolist() == [7.0, 7.0]
