"""Which networks may have their batches cut into slices."""

import pytest
import torch
from click_models import model_over
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from distrain.jobs.spec import TrainSpec, parse_spec
from distrain.models import build_model
from distrain.models.blocks import Block, MLPBlock
from distrain.models.blocks.block import with_residual
from distrain.models.embeddings import EmbeddingCollection, TableColumn
from distrain.models.heads import BinaryClassificationTask, ItemRetrievalTask, MultiTask
from distrain.models.row_independence import rows_are_independent
from distrain.models.shapes import Flat
from distrain.schema import criteo_schema
from distrain.schema.criteo import CATEGORICAL
from distrain.train.step.step import TrainStep

SCHEMA = criteo_schema(dict.fromkeys(CATEGORICAL, 5))


class Centred(Block):
    """Takes the batch's mean away, and does not say so."""

    def build(self, given):
        return given

    def forward(self, value):
        return value - value.mean(0)


class Doubled(Centred):
    """Says that it looks at no other row."""

    rows_are_independent = True

    def forward(self, value):
        return 2 * value


def built(block, width=4):
    block.attach(Flat(width))
    return block


@pytest.mark.parametrize(
    ("kind", "options", "independent"),
    [
        ("mlp", {}, True),
        ("dlrm", {}, True),
        ("dcn", {}, True),
        ("dcn_v2", {}, True),
        ("deepfm", {}, True),
        ("wide_deep", {"crosses": [{"columns": ["C1", "C2"], "num_bins": 10}]}, True),
        ("tabular", {}, False),
    ],
)
def test_models_of_the_zoo(kind, options, independent):
    model = {"kind": kind, **({} if kind == "tabular" else {"embedding_dim": 4}), **options}
    spec = parse_spec({"data": {"train": "nowhere"}, "model": model})
    network = build_model(SCHEMA, spec.model, seed=0).dense
    assert rows_are_independent(network) == independent


@pytest.mark.parametrize(
    ("network", "independent"),
    [
        (built(MLPBlock([3])), True),
        (built(MLPBlock([3], normalisation="layer_norm")), True),
        (built(MLPBlock([3], normalisation="batch_norm")), False),
        (built(with_residual(MLPBlock([4]), "relu")), True),
        (built(with_residual(MLPBlock([4]), torch.relu)), False),  # a function: who knows
        (built(MLPBlock([3]).connect(Centred())), False),
        (built(MLPBlock([3]).connect(Doubled())), True),
        (ItemRetrievalTask(), False),
        (MultiTask({"click": BinaryClassificationTask(), "item": ItemRetrievalTask()}), False),
        (nn.Softmax(dim=0), False),
        (nn.MultiheadAttention(4, 1), False),
    ],
)
def test_parts(network, independent):
    assert rows_are_independent(network) == independent


class Tripled(Doubled):
    """Says nothing itself."""


@pytest.mark.parametrize(
    "hook",
    [
        lambda network: network.register_forward_hook(lambda module, given, made: made),
        lambda network: network.register_forward_pre_hook(lambda module, given: None),
        lambda network: network.register_full_backward_hook(lambda module, given, made: None),
        lambda network: network.register_full_backward_pre_hook(lambda module, made: None),
        lambda network: register_module_forward_hook(lambda module, given, made: None),
        lambda network: next(network.parameters()).register_hook(torch.sign),
        lambda network: next(network.parameters()).register_post_accumulate_grad_hook(print),
    ],
)
def test_a_hook_may_look_at_other_rows(hook):
    network = built(MLPBlock([3]))
    handle = hook(network)
    assert not rows_are_independent(network)
    handle.remove()
    assert rows_are_independent(network)


def test_what_an_object_or_a_class_replaces_is_not_known():
    network = built(MLPBlock([3]))
    network.forward = lambda value: value - value.mean(0)
    task = BinaryClassificationTask()
    task.loss = lambda output, batch: output.std()
    assert not rows_are_independent(network)
    assert not rows_are_independent(task)
    assert rows_are_independent(built(Doubled()))
    assert not rows_are_independent(built(Tripled()))


def test_a_step_cuts_no_batch_of_a_hooked_model():
    tables = EmbeddingCollection([TableColumn("a", 9, 2)])
    model = model_over(tables, MLPBlock([4]), ("x",))
    handle = next(model.dense.parameters()).register_post_accumulate_grad_hook(print)
    assert TrainStep(model, TrainSpec(), 1)._slicing.count == 1
    handle.remove()
    assert TrainStep(model, TrainSpec(), 1)._slicing.count is None
