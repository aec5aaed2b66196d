"""Options of training against torch, or against the same done by hand."""

import math

import pytest
import torch
from host_work import HostWork
from torch.nn import functional
from wording import Wording

from distrain.errors import SpecError
from distrain.jobs.spec import MlpSpec, TrainSpec
from distrain.jobs.spec.models.kinds import EmbeddingsSpec
from distrain.jobs.spec.training import OptimizerSpec
from distrain.loader.batch import Batch
from distrain.models import build_model
from distrain.models.blocks import MLPBlock
from distrain.models.embeddings import EmbeddingCollection, TableColumn
from distrain.models.heads import BinaryClassificationTask, MulticlassTask, RegressionTask
from distrain.models.shapes import Flat
from distrain.schema import ColumnSchema, Schema
from distrain.train.planning.tables_plan import inits_of
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import PhaseClock

SCHEMA = Schema(
    (
        ColumnSchema("label", "float32", ("target", "binary_classification")),
        ColumnSchema("user", "int32", ("categorical",), 9),
    )
)


def batch() -> Batch:
    ids = torch.arange(8, dtype=torch.int32)[:, None] % 9
    label = (torch.arange(8) % 3 == 0).float()
    return Batch(ids, torch.zeros(8, 0), label, ("user",), ())


def stepped(train: TrainSpec, table_lr: float | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """The table's and the dense part's values after a step."""
    model = build_model(SCHEMA, MlpSpec(hidden=(4,)), seed=1)
    step = TrainStep(model, train, 1)
    step(batch(), 8, 0.5, PhaseClock(), table_lr=table_lr)
    dense = torch.cat([p.detach().flatten() for p in model.dense.parameters()])
    return model.embeddings.table("user").clone(), dense


def test_tables_have_an_optimizer_and_a_rate_of_their_own() -> None:
    sgd, adagrad = OptimizerSpec(kind="sgd"), OptimizerSpec(kind="adagrad")
    of_sgd, of_adagrad = (stepped(TrainSpec(optimizer=one)) for one in (sgd, adagrad))
    table, dense = stepped(TrainSpec(optimizer=adagrad, table_optimizer=sgd))
    assert torch.equal(table, of_sgd[0])
    assert torch.equal(dense, of_adagrad[1])
    first = build_model(SCHEMA, MlpSpec(hidden=(4,)), seed=1).embeddings.table("user")
    table, dense = stepped(TrainSpec(optimizer=sgd), table_lr=0.25)
    assert torch.equal(dense, of_sgd[1])
    torch.testing.assert_close(table - first, (of_sgd[0] - first) / 2)


def test_groups_are_clipped_by_norms_of_their_own() -> None:
    sgd = TrainSpec(optimizer=OptimizerSpec(kind="sgd"), clip_grad_norm=0.01)
    model = build_model(SCHEMA, MlpSpec(hidden=(4,)), seed=1)
    before = torch.cat([p.detach().flatten() for p in model.dense.parameters()])
    first = model.embeddings.table("user").clone()
    table, dense = stepped(sgd.model_copy(update={"clip_groups": "apart"}))
    for moved in (table - first, dense - before):
        assert float(moved.norm()) == pytest.approx(0.5 * 0.01, rel=1e-3)


def test_initial_values_lie_within_the_given_bound_and_scale_with_it() -> None:
    def drawn(init: float | dict[str, float] | None) -> EmbeddingCollection:
        columns = [TableColumn("a", 100, 4), TableColumn("b", 25, 4)]
        return EmbeddingCollection(columns, generator=torch.Generator().manual_seed(3), init=init)

    usual = drawn(None)
    torch.testing.assert_close(drawn(0.01).table("a"), usual.table("a") / 10)
    some = drawn({"b": 0.0})
    assert torch.equal(some.table("a"), usual.table("a"))
    assert not some.table("b").any()


def test_a_shared_table_has_the_bound_of_any_of_its_columns(wording: Wording) -> None:
    columns = [TableColumn(name, 9, 4, table="item") for name in ("bought", "seen")]
    for name in ("bought", "seen"):
        bounds = inits_of(columns, EmbeddingsSpec(inits={name: 0.1}, init=0.5))
        assert bounds == {"bought": 0.1, "seen": 0.1}
    wording.refused(
        SpecError, lambda: inits_of(columns, EmbeddingsSpec(inits={"bought": 0.1, "seen": 0.2}))
    )


def test_predictions_begin_at_the_mean_as_with_such_a_bias() -> None:
    for task, start in (
        (BinaryClassificationTask(mean=0.2), math.log(0.2 / 0.8)),
        (RegressionTask(kind="poisson", mean=3.0), math.log(3.0)),
        (RegressionTask(mean=100.0), 100.0),
    ):
        task.attach(MLPBlock([]).attach(Flat(3)))
        for parameter in task.parameters():
            torch.nn.init.zeros_(parameter)
        torch.testing.assert_close(task(torch.randn(4, 3)), torch.full((4,), start))
    both = BinaryClassificationTask(mean=0.2, outputs=2)
    both.attach(Flat(3))
    value = torch.randn(4, 3)
    odds = both.logits(both(value)) - both.logits(
        torch.nn.functional.linear(value, both.logit.weight, both.logit.bias)
    )
    torch.testing.assert_close(odds, torch.full((4,), math.log(0.25)))
    both.to("meta")
    far = value.to("meta")
    with HostWork() as work:  # a recorded step copies no numbers from the host
        both(far)
    assert not work.copies


def test_a_regression_counts_in_its_unit() -> None:
    label, output = torch.tensor([10.0, 20.0, 90.0]), torch.tensor([12.0, 50.0, 30.0])
    for kind in ("mse", "mae", "huber"):
        task = RegressionTask(None, kind, delta=8.0, std=4.0)
        plain = RegressionTask(None, kind, delta=2.0)
        torch.testing.assert_close(
            task.compare(output, label, "sum"), plain.compare(output / 4, label / 4, "sum")
        )


def test_labels_are_smoothed_as_by_torch() -> None:
    label = torch.tensor([0.0, 1.0, 1.0])
    logits = torch.tensor([[0.3, -2.0], [1.5, 0.1], [0.0, 4.0]])
    expected = functional.cross_entropy(logits, label.long(), label_smoothing=0.2, reduction="sum")
    two = BinaryClassificationTask(outputs=2, label_smoothing=0.2)
    one = BinaryClassificationTask(label_smoothing=0.2)
    many = MulticlassTask(None, 2, label_smoothing=0.2)
    torch.testing.assert_close(two.compare(logits, label, "sum"), expected)
    torch.testing.assert_close(many.compare(logits, label, "sum"), expected)
    torch.testing.assert_close(one.compare(two.logits(logits), label, "sum"), expected)


def test_embeddings_are_dropped_in_training_alone() -> None:
    model = build_model(SCHEMA, MlpSpec(hidden=()), seed=1)
    model.dense.embedding_dropout = 0.5
    embedded = (torch.ones(1000, 1, 16),)
    (kept,) = model.dense.eval().features(embedded, torch.zeros(1000, 0)).embedded
    assert torch.equal(kept, embedded[0])
    (some,) = model.dense.train().features(embedded, torch.zeros(1000, 0)).embedded
    assert set(some.unique().tolist()) == {0.0, 2.0}
    assert float(some.mean()) == pytest.approx(1, abs=0.05)
