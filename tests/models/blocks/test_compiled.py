"""Every block in one graph: torch.compile without breaks, torch.export, no wait for a device."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from distrain.loader.batch import Batch
from distrain.models.blocks import Aggregate, Chain, ParallelBlock
from distrain.models.blocks.cross import CrossBlock
from distrain.models.blocks.filter import ContinuousFeatures, Filter
from distrain.models.blocks.hashed_cross import HashedCross
from distrain.models.blocks.interaction import DotProductInteraction, FMBlock
from distrain.models.blocks.layers import Dropout, L2Norm, LogitsTemperatureScaler
from distrain.models.blocks.mlp import FASTAI_ORDER, MLPBlock
from distrain.models.heads.multitask import MultiTask
from distrain.models.heads.retrieval import ItemRetrievalTask
from distrain.models.heads.tasks import BinaryClassificationTask, MulticlassTask, RegressionTask
from distrain.models.shapes import Features, Flat


class Network(torch.nn.Module):
    """Every block, and every head over `[rows, width]`; takes tensors, as exported programs do."""

    def __init__(self, columns):
        super().__init__()
        embeddings = Filter(part="", kind="categorical")
        body = ParallelBlock(
            {
                "wide": Filter(part="wide").connect(Aggregate("sum")),
                "picked": Filter("C1", "C3", "age", part=""),
                "fm": Filter(part="", kind="categorical").connect(FMBlock(per_dim=True)),
                "product": Filter(part="", kind="categorical").connect(Aggregate("product")),
                "v1": CrossBlock(2, "v1"),
                "v2": CrossBlock(2),
                "low_rank": CrossBlock(1, low_rank=2).connect(LogitsTemperatureScaler(2.0)),
                "dots": embeddings.connect(
                    ParallelBlock(Chain(), L2Norm(), aggregation=None), DotProductInteraction()
                ),
                "deep": ContinuousFeatures(normalisation="batch_norm").connect(
                    Dropout(0.1),
                    MLPBlock([4, 4], "gelu", normalisation="layer_norm", dropout=0.1),
                ),
            },
            aggregation=None,
        )
        mlp = MLPBlock([6, 5], normalisation="batch_norm", bias=False, order=FASTAI_ORDER)
        self.chain = body.connect(mlp).connect_with_residual(MLPBlock([5], "selu"), "tanh")
        self.task = MultiTask(
            {
                "click": BinaryClassificationTask(pre=LogitsTemperatureScaler(2.0)),
                "two": BinaryClassificationTask(outputs=2),
                "genre": MulticlassTask("genre", 3),
                "price": RegressionTask("price", "huber"),
            }
        )
        self.columns = columns
        self.task.attach(self.chain.attach(columns))

    def forward(self, wide, deep, continuous):
        return self.task(self.chain(Features((wide, deep), continuous)))


@pytest.fixture(scope="module")
def network(columns):
    torch.manual_seed(0)
    return Network(columns)


def tensors(features, rows):
    value = features(rows, torch.float32)
    return *value.embedded, value.continuous


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # the tracer's own
def test_compiles_without_breaks(network, features):
    """Gradients too; eagerly and as one graph, by torch's own tracer."""
    network.train()
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager", dynamic=False)
    found = []
    for run in (network, compiled):
        network.zero_grad()
        torch.manual_seed(0)
        given = [tensor.requires_grad_() for tensor in tensors(features, 6)]
        output = run(*given)
        output.square().sum().backward()
        found.append([output, *(t.grad for t in given), *(p.grad for p in network.parameters())])
    for eager, traced in zip(*found, strict=True):
        torch.testing.assert_close(eager, traced, rtol=1e-4, atol=1e-5)
    torch._dynamo.reset()


def test_mixed_precision(network, features):
    """Every block under autocast: close to float32, and finite gradients."""
    given = tensors(features, 64)
    network.eval()
    expected = network(*given)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(network(*given).float(), expected, rtol=0.05, atol=0.02)
        output = network.train()(*given)
    network.zero_grad()
    output.float().square().sum().backward()
    assert all(p.grad.isfinite().all() for p in network.parameters())


class _NoWaiting(TorchDispatchMode):
    """Refuses what copies a value from the device, or has a shape that depends on values."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name()
        assert name not in ("aten::_local_scalar_dense", "aten::item"), "waits for a value"
        assert torch.Tag.data_dependent_output not in func.tags, name
        assert torch.Tag.dynamic_output_shape not in func.tags, name
        return func(*args, **(kwargs or {}))


def test_nothing_waits_for_the_device(network, features):
    network.train()
    labels = torch.stack([torch.ones(5), torch.full((5,), 2.0), torch.randn(5)], dim=1)
    ids = torch.tensor([[1, 2], [3, 1], [0, 0], [2, 2], [1, 1]], dtype=torch.int32)
    names = "click", "genre", "price"
    batch = Batch(ids, torch.zeros(5, 0), labels[:, 0], ("a", "b"), (), labels, names)
    retrieval = ItemRetrievalTask(item_id="a", log_q="batch", temperature=0.5)
    towers = ParallelBlock({"user": MLPBlock([3]), "item": MLPBlock([3])}, aggregation=None)
    retrieval.attach(towers.attach(Flat(2)))
    with _NoWaiting():
        HashedCross(["a", "b"], 10).one_hot(ids.unbind(1))
        output = network(*tensors(features, 5))
        network.task.loss(output, batch).backward()
        network.task.logits(output)
        output = retrieval(towers(ids.float()))
        retrieval.loss(output, batch).backward()
        retrieval.logits(output)
