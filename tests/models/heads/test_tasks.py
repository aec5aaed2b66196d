"""Tasks over one tensor, each against a loop written from its formula."""

import math

import pytest
import torch

from distrain.errors import ModelError
from distrain.loader.batch import Batch
from distrain.models.blocks.layers import LogitsTemperatureScaler
from distrain.models.heads.multitask import MultiTask
from distrain.models.heads.tasks import BinaryClassificationTask, MulticlassTask, RegressionTask
from distrain.models.shapes import Flat


def naive_binary(logits, labels):
    probabilities = [1 / (1 + math.exp(-z)) for z in logits]
    pairs = zip(probabilities, labels, strict=True)
    return -sum(math.log(p if y else 1 - p) for p, y in pairs)


def naive_softmax(rows, labels):
    pairs = zip(rows, labels, strict=True)
    return -sum(z[int(y)] - math.log(sum(math.exp(v) for v in z)) for z, y in pairs)


def linear(layer, x):
    return [
        [float((w * row).sum() + b) for w, b in zip(layer.weight, layer.bias, strict=True)]
        for row in x.detach()
    ]


@pytest.fixture(autouse=True)
def _no_graph_in_oracles():
    """The oracles read parameters; only gradients need a graph, and ask for one."""
    with torch.no_grad():
        yield


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("temperature", [None, 2.0])
def test_binary(outputs, temperature, batch, attached):
    pre = None if temperature is None else LogitsTemperatureScaler(temperature)
    task = BinaryClassificationTask("clicked", outputs, pre=pre)
    assert attached(task, Flat(3)) == Flat(outputs)
    x = torch.randn(9, 3, dtype=torch.float64)
    z = [[v / (temperature or 1) for v in row] for row in linear(task.logit, x)]
    output = task(x)
    assert output.shape == ((9,) if outputs == 1 else (9, 2))
    logits = [row[0] if outputs == 1 else row[1] - row[0] for row in z]
    torch.testing.assert_close(task.logits(output).tolist(), logits)
    labels = batch(9).label.tolist()
    expected = naive_binary(logits, labels)
    torch.testing.assert_close(float(task.loss(output, batch(9))), float(expected))
    if outputs == 2:
        torch.testing.assert_close(float(naive_softmax(z, labels)), float(expected))


@pytest.mark.parametrize("temperature", [None, 0.5])
def test_multiclass(temperature, batch, attached):
    pre = None if temperature is None else LogitsTemperatureScaler(temperature)
    task = MulticlassTask("genre", 4, pre=pre)
    assert attached(task, Flat(3)) == Flat(4)
    x = torch.randn(9, 3, dtype=torch.float64)
    z = [[v / (temperature or 1) for v in row] for row in linear(task.logit, x)]
    output = task(x)
    assert output.shape == (9, 4)
    expected = naive_softmax(z, batch(9)["genre"].tolist())
    torch.testing.assert_close(float(task.loss(output, batch(9))), float(expected))
    shares = [math.exp(row[1]) / sum(map(math.exp, row)) for row in z]
    odds = torch.tensor([math.log(p / (1 - p)) for p in shares], dtype=torch.float64)
    torch.testing.assert_close(task.logits(output), odds)


def three_tasks():
    return {
        "items": BinaryClassificationTask("clicked"),
        "genre": MulticlassTask("genre", 4),
        "price": RegressionTask("price", "huber"),
    }


@pytest.mark.parametrize(
    "task",
    [
        BinaryClassificationTask(pre=LogitsTemperatureScaler(2.0)),
        BinaryClassificationTask("clicked", 2),
        MulticlassTask("genre", 4),
        RegressionTask("price"),
        RegressionTask("price", "huber", delta=0.7),
        MultiTask(three_tasks(), {"genre": 0.3}),
    ],
    ids=lambda task: f"{type(task).__name__} {getattr(task, 'kind', '')}",
)
@torch.enable_grad()
def test_gradients_and_no_rows(task, batch, attached, check_gradients):
    attached(task, Flat(3))
    check_gradients(task, batch(5), torch.randn(5, 3, dtype=torch.float64))
    loss = task.loss(task(torch.zeros(0, 3, dtype=torch.float64)), batch(0))
    assert loss.detach() == 0
    loss.backward()
    assert all(torch.equal(p.grad, torch.zeros_like(p)) for p in task.parameters())


def test_tasks_that_cannot_be_made_are_refused(wording):
    wording.refused(
        ModelError,
        lambda: BinaryClassificationTask(outputs=3),
        lambda: BinaryClassificationTask(layer=False).attach(Flat(2, "deep")),
        lambda: MulticlassTask("genre", 1),
        lambda: RegressionTask(kind="mad"),
        lambda: RegressionTask(delta=0),
        lambda: RegressionTask(kind="poisson", std=2.0),
        lambda: MultiTask({}),
        lambda: MultiTask({"genre": MulticlassTask("genre", 4)}, {"price": 2, "genre": -1}),
    )


@pytest.mark.parametrize("own_weight", [None, "importance"])
def test_a_row_whose_label_is_unknown_counts_as_no_row(own_weight, attached):
    generator = torch.Generator().manual_seed(4)
    known = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0])
    price, importance = torch.randn(2, 5, generator=generator, dtype=torch.float64)
    labels = torch.stack([price, known, importance.abs()], dim=1)

    def rows(some):
        ids = torch.zeros(len(some), 1, dtype=torch.int32)
        names = "price", "priced", "importance"
        wide = torch.zeros(len(some), 0)
        return Batch(ids, wide, labels[some, 0], ("movie",), (), labels[some], names)

    task = RegressionTask("price", weight=own_weight)
    attached(task, Flat(3))
    x = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    everywhere = task.loss(task(x[known > 0]), rows(known > 0))
    weights = task.weight_sums(rows(known > 0))
    task.known = "priced"
    torch.testing.assert_close(task.loss(task(x), rows(known >= 0)), everywhere)
    expected = known.double().sum().reshape(1) if weights is None else weights
    torch.testing.assert_close(task.weight_sums(rows(known >= 0)), expected)
