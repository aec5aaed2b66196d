"""Tasks over one tensor, each against a loop written from its formula."""

import math

import pytest
import torch

from distrain.errors import ModelError
from distrain.models.blocks.layers import LogitsTemperatureScaler
from distrain.models.heads.multitask import MultiTask
from distrain.models.heads.tasks import (
    BinaryClassificationTask,
    MulticlassTask,
    RegressionTask,
)
from distrain.models.shapes import Flat


def naive_binary(logits, labels):
    probabilities = [1 / (1 + math.exp(-z)) for z in logits]
    pairs = zip(probabilities, labels, strict=True)
    return -sum(math.log(p if y else 1 - p) for p, y in pairs)


def naive_softmax(rows, labels):
    pairs = zip(rows, labels, strict=True)
    return -sum(z[int(y)] - math.log(sum(math.exp(v) for v in z)) for z, y in pairs)


def naive_huber(errors, delta):
    return sum(
        e * e / 2 if abs(e) <= delta else delta * (abs(e) - delta / 2) for e in map(float, errors)
    )


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


@pytest.mark.parametrize("rows", [0, 1, 9])
@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("temperature", [None, 2.0])
def test_binary(rows, outputs, temperature, batch, attached):
    pre = None if temperature is None else LogitsTemperatureScaler(temperature)
    task = BinaryClassificationTask("clicked", outputs, pre=pre)
    assert attached(task, Flat(3)) == Flat(outputs)
    x = torch.randn(rows, 3, dtype=torch.float64)
    z = [[v / (temperature or 1) for v in row] for row in linear(task.logit, x)]
    output = task(x)
    assert output.shape == ((rows,) if outputs == 1 else (rows, 2))
    logits = [row[0] if outputs == 1 else row[1] - row[0] for row in z]
    torch.testing.assert_close(task.logits(output).tolist(), logits)
    labels = batch(rows).label.tolist()
    expected = naive_binary(logits, labels)
    torch.testing.assert_close(float(task.loss(output, batch(rows))), float(expected))
    if outputs == 2:
        torch.testing.assert_close(float(naive_softmax(z, labels)), float(expected))


@pytest.mark.parametrize("rows", [0, 1, 9])
@pytest.mark.parametrize("temperature", [None, 0.5])
def test_multiclass(rows, temperature, batch, attached):
    pre = None if temperature is None else LogitsTemperatureScaler(temperature)
    task = MulticlassTask("genre", 4, pre=pre)
    assert attached(task, Flat(3)) == Flat(4)
    x = torch.randn(rows, 3, dtype=torch.float64)
    z = [[v / (temperature or 1) for v in row] for row in linear(task.logit, x)]
    output = task(x)
    assert output.shape == (rows, 4)
    expected = naive_softmax(z, batch(rows)["genre"].tolist())
    torch.testing.assert_close(float(task.loss(output, batch(rows))), float(expected))
    shares = [math.exp(row[1]) / sum(map(math.exp, row)) for row in z]
    odds = torch.tensor([math.log(p / (1 - p)) for p in shares], dtype=torch.float64)
    torch.testing.assert_close(task.logits(output), odds)


@pytest.mark.parametrize("rows", [0, 1, 9])
@pytest.mark.parametrize("kind", ["mse", "huber"])
def test_regression(rows, kind, batch, attached):
    task = RegressionTask("price", kind, delta=1.5)
    assert attached(task, Flat(3)) == Flat(1)
    x = torch.randn(rows, 3, dtype=torch.float64)
    output = task(x)
    assert output.shape == (rows,)
    torch.testing.assert_close(output.tolist(), [row[0] for row in linear(task.number, x)])
    errors = output - batch(rows)["price"]
    expected = sum(e * e for e in errors.tolist()) if kind == "mse" else naive_huber(errors, 1.5)
    torch.testing.assert_close(float(task.loss(output, batch(rows))), float(expected))
    assert task.logits(output) is output


def three_tasks():
    return {
        "items": BinaryClassificationTask("clicked"),
        "genre": MulticlassTask("genre", 4),
        "price": RegressionTask("price", "huber"),
    }


@pytest.mark.parametrize("rows", [0, 1, 9])
def test_multitask(rows, batch, attached):
    tasks = three_tasks()
    both = MultiTask(tasks, {"genre": 0.5, "price": 0})
    assert attached(both, Flat(3)) == Flat(6)
    x = torch.randn(rows, 3, dtype=torch.float64)
    output = both(x)
    assert output.shape == (rows, 6)
    for name, part in both.outputs(output).items():
        assert torch.equal(part, tasks[name](x))
    losses = {name: float(t.loss(t(x), batch(rows))) for name, t in tasks.items()}
    expected = losses["items"] + 0.5 * losses["genre"]
    torch.testing.assert_close(float(both.loss(output, batch(rows))), expected)
    assert torch.equal(both.logits(output), tasks["items"](x))


def test_multitask_of_one(batch, attached):
    only = BinaryClassificationTask()
    both = MultiTask({"click": only}, {"click": 2})
    assert attached(both, Flat(3)) == Flat(1)
    x = torch.randn(4, 3, dtype=torch.float64)
    assert both(x).shape == (4,)
    assert torch.equal(both.outputs(both(x))["click"], only(x))
    torch.testing.assert_close(both.loss(both(x), batch(4)), 2 * only.loss(only(x), batch(4)))


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


def test_wrong_tasks():
    with pytest.raises(ModelError, match="1 or 2 outputs, not 3"):
        BinaryClassificationTask(outputs=3)
    with pytest.raises(ModelError, match="takes 1 values a row, and deep gives"):
        BinaryClassificationTask(layer=False).attach(Flat(2, "deep"))
    with pytest.raises(ModelError, match="at least 2 classes, not 1"):
        MulticlassTask("genre", 1)
    with pytest.raises(ModelError, match="no loss 'mad'"):
        RegressionTask(kind="mad")
    with pytest.raises(ModelError, match="above 0, not 0"):
        RegressionTask(delta=0)
    with pytest.raises(ModelError, match="needs tasks"):
        MultiTask({})
    with pytest.raises(ModelError, match="cannot weigh 'price' by 2, 'genre' by -1") as caught:
        MultiTask({"genre": MulticlassTask("genre", 4)}, {"price": 2, "genre": -1})
    assert caught.value.where == {"tasks": "genre"}
