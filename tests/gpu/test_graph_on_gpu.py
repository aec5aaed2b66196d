"""A step in a CUDA graph against the same steps one by one, on a GPU."""

import pytest
import torch
from click_models import batches_for, model_over
from devices import no_waiting

from distrain.jobs.spec import TrainSpec
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.embeddings import EmbeddingCollection, TableColumn
from distrain.train.step.averages import averaged
from distrain.train.step.device_metrics import DeviceMetrics
from distrain.train.step.graphed_step import GraphedStep
from distrain.train.step.recorder import WARM_UP_STEPS
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import PhaseClock

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no NVIDIA GPU"),
]
COLUMNS = [TableColumn("a", 5000, 16), TableColumn("b", 3, 16), TableColumn("wide", 100, 40)]
NUMBERS = ("x", "y")
ROWS = 4096


def batches(count):
    return batches_for(COLUMNS, NUMBERS, ROWS, count, "cuda")


class OneByOne:
    """In a graph's place: runs the kernels instead of recording them."""

    def record(self, run):
        self.run = run

    def replay(self):
        return self.run()

    def release(self):
        """Nothing is held."""


BODIES = {
    "mlp": lambda: MLPBlock([64, 64]),
    # Its statistics are buffers, which a replay must move on.
    "batch norm": lambda: MLPBlock([64], normalisation="batch_norm"),
    # What is drawn comes from the generator's state, which a replay moves on.
    "dropout": lambda: MLPBlock([64], dropout=0.3),
}


def new_model(body="mlp"):
    tables = EmbeddingCollection(COLUMNS, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(1)
    return model_over(tables, BODIES[body](), NUMBERS).to("cuda")


def new_step(kind, make_graph, body="mlp", **train):
    graph = {"optimizer": {"kind": kind}, "cuda_graph": True}
    spec = TrainSpec.model_validate({**graph, **train})
    step = GraphedStep(new_model(body), spec, 1, ROWS, make_graph)
    plain, weighted = metrics = [DeviceMetrics(torch.device("cuda")) for _ in range(2)]

    def count(scores, batch):
        plain.update(scores[0], batch.label)
        weighted.update(scores[0], batch.label, scores[0].abs())

    step.count_by(count)
    return step, metrics


def train(step, metrics=(), count=8):
    told = []
    for number, batch in enumerate(batches(count)):
        (logits,), loss = step(batch, ROWS, 0.1 / (1 + number), PhaseClock())
        told += [logits.clone(), loss.clone()]
    counted = [each.copy_of_state() for each in metrics]
    held = [*step.model.embeddings.weights, *step.model.dense.state_dict().values()]
    with averaged(step):
        averages = [weight.clone() for weight in step.model.parameters()]
    return [*counted, *told, *held, *averages]


@pytest.mark.parametrize("uses_triton", [False, True])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize(
    "also", [{}, {"precision": "bf16"}, {"clip_grad_norm": 0.1}, {"ema": 0.001}], ids=str
)
@pytest.mark.parametrize("kind", ["sgd", "adagrad", "rowwise_adagrad", "adam"])
def test_replays_equal_steps_one_by_one_bitwise(kind, also, body, uses_triton, monkeypatch):
    monkeypatch.setenv("DISTRAIN_TRITON", str(int(uses_triton)))
    graphed, plain = (train(*new_step(kind, make, body, **also)) for make in (None, OneByOne))
    assert all(torch.equal(a, b) for a, b in zip(graphed, plain, strict=True))


class Asks(MLPBlock):
    """Reads a value back in its forward pass, which no graph can hold."""

    def forward(self, value):
        result = super().forward(value)
        return result if result.sum().item() < 1e9 else -result


def test_a_step_that_asks_the_device_runs_one_by_one(caplog, monkeypatch):
    for name, block in (("asks", Asks), ("plain", MLPBlock)):
        monkeypatch.setitem(BODIES, name, lambda block=block: block([64, 64], dropout=0.3))
    spec = TrainSpec.model_validate({"optimizer": {"kind": "sgd"}})
    told = []
    for body, make in (("asks", None), ("plain", OneByOne)):
        step = GraphedStep(new_model(body), spec, 1, ROWS, make)
        told.append(train(step))
    assert all(torch.equal(a, b) for a, b in zip(*told, strict=True))
    assert "cannot be recorded" in caplog.text


@pytest.mark.parametrize("kind", ["sgd", "adagrad", "rowwise_adagrad", "adam"])
def test_replays_follow_the_eager_step(kind):
    """Which adds in another order; so a larger eps keeps noise around zero from being a step."""
    section = {"optimizer": {"kind": kind, "eps": 1e-4}}
    ours = train(*new_step(kind, None, **section))
    theirs = train(TrainStep(new_model(), TrainSpec.model_validate(section), 1))
    for a, b in zip(ours[2:], theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("uses_triton", [False, True])
@pytest.mark.parametrize("kind", ["sgd", "adagrad", "rowwise_adagrad", "adam"])
def test_neither_warm_up_nor_replays_make_the_host_wait(kind, uses_triton, monkeypatch):
    monkeypatch.setenv("DISTRAIN_TRITON", str(int(uses_triton)))
    step, _ = new_step(kind, None)
    every = list(batches(WARM_UP_STEPS + 3))
    clock = PhaseClock()
    step(every[0], ROWS, 0.1, clock)  # libraries set themselves up
    with no_waiting("cuda"):
        for batch in every[1:WARM_UP_STEPS]:
            step(batch, ROWS, 0.1, clock)
    step(every[WARM_UP_STEPS], ROWS, 0.1, clock)  # records
    with no_waiting("cuda"):
        for batch in every[WARM_UP_STEPS + 1 :]:
            step(batch, ROWS, 0.1, clock)
