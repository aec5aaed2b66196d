"""A step in a CUDA graph against the same steps one by one, on a GPU."""

import pytest
import torch
from click_models import model_over

from distrain.batch import Batch
from distrain.embeddings import EmbeddingCollection, TableColumn
from distrain.models.blocks.mlp import MLPBlock
from distrain.spec import TrainSpec
from distrain.train.graphed_step import GraphedStep
from distrain.train.phases import PhaseClock

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no NVIDIA GPU"),
]
COLUMNS = [TableColumn("a", 5000, 16), TableColumn("b", 3, 16), TableColumn("wide", 100, 40)]
NUMBERS = ("x", "y")


class OneByOne:
    """In a graph's place: runs the kernels instead of recording them."""

    def record(self, run):
        self.run = run

    def replay(self):
        return self.run()


def batches(count=8, rows=4096):
    generator = torch.Generator().manual_seed(2)
    for _ in range(count):
        ids = [torch.randint(0, c.cardinality, (rows,), generator=generator) for c in COLUMNS]
        yield Batch(
            torch.stack(ids).to(torch.int32).cuda().T,
            torch.randn(2, rows, generator=generator).cuda().T,
            torch.randint(0, 2, (rows,), generator=generator).float().cuda(),
            tuple(column.name for column in COLUMNS),
            NUMBERS,
        )


def train(kind, make_graph):
    tables = EmbeddingCollection(COLUMNS, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(1)
    model = model_over(tables, MLPBlock([64, 64]), NUMBERS).to("cuda")
    spec = TrainSpec.model_validate({"optimizer": {"kind": kind}})
    step = GraphedStep(model, spec, 1, 4096, make_graph)
    told = []
    for number, batch in enumerate(batches()):
        told += [t.clone() for t in step(batch, 4096, 0.1 / (1 + number), PhaseClock())]
    return [*told, *model.embeddings.weights, *model.dense.parameters()]


@pytest.mark.parametrize("kind", ["sgd", "adagrad", "rowwise_adagrad", "adam"])
def test_replays_equal_steps_one_by_one_bitwise(kind):
    graphed, plain = train(kind, None), train(kind, OneByOne)
    assert all(torch.equal(a, b) for a, b in zip(graphed, plain, strict=True))


def test_repeated_runs_agree_bitwise():
    assert all(
        torch.equal(a, b) for a, b in zip(train("adam", None), train("adam", None), strict=True)
    )
