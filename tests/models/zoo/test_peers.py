"""Models against independent implementations, on copied weights.

`make .venv/.peers` installs them into a folder of their own, which only these tests look into.
"""

import importlib
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from distrain.jobs.spec import DcnV2Spec, DlrmSpec
from distrain.jobs.spec.models.kinds import TabularSpec
from distrain.models import build_model

PEERS, FASTAI = Path(sys.prefix) / "peers", Path(sys.prefix) / "fastai"
ROWS, DIM, HIDDEN = 30, 4, (7, 5)

# The formulas that `test_formulas.py` writes out are theirs.
pytestmark = [pytest.mark.slow, pytest.mark.release]


@pytest.fixture
def peer(monkeypatch):
    """Imports a module of the peers' folder."""

    def import_it(name):
        if not (PEERS / name.partition(".")[0]).is_dir():
            pytest.skip(f"{name} is not in .venv/peers: run `make .venv/.peers`")
        os.environ["KERAS_BACKEND"] = "torch"
        monkeypatch.syspath_prepend(PEERS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the peers' own imports
            return importlib.import_module(name)

    return import_it


@pytest.fixture
def built(schema_and_batch):
    """Builds a model with weights that are not neutral anywhere; gives it and a batch."""

    def build(spec, num_continuous=0):
        schema, batch = schema_and_batch(4, num_continuous, ROWS)
        model = build_model(schema, spec, seed=2).eval()
        torch.manual_seed(0)
        with torch.no_grad():
            for weight in (*model.dense.parameters(), *model.embeddings.weights):
                weight.add_(torch.randn(weight.shape) * 0.3)
        return model, batch

    return build


def linears(module):
    return [layer for layer in module.modules() if isinstance(layer, torch.nn.Linear)]


def sizes_of(model, batch):
    return [model.embeddings.table(name).shape[0] for name in batch.categorical_names]


def keras_dense(keras, layers, x, activation="relu"):
    """Linear layers as Keras computes them."""
    for layer in layers:
        dense = keras.layers.Dense(layer.out_features, activation=activation)
        dense.build(x.shape)
        dense.set_weights([layer.weight.T.numpy(), layer.bias.numpy()])
        x = dense(x)
    return x


def embedded(model, batch):
    names = batch.categorical_names
    return [model.embeddings.table(name)[batch[name].long()] for name in names]


@torch.no_grad()
def test_dlrm_is_that_of_keras_rs(built, peer):
    model, batch = built(DlrmSpec(embedding_dim=DIM, bottom=(6, DIM), top=HIDDEN), 3)
    keras_rs = peer("keras_rs")
    import keras

    block = model.dense.body
    deep = keras_dense(keras, linears(block.bottom), batch.continuous)
    pairs = keras_rs.layers.DotInteraction()([deep, *embedded(model, batch)])
    top = keras_dense(keras, linears(block.top), torch.cat([deep, pairs], dim=1))
    logits = keras_dense(keras, [model.task.logit], top, activation=None)
    torch.testing.assert_close(model(batch), logits[:, 0])


@torch.no_grad()
@pytest.mark.parametrize("low_rank", [None, 3])
def test_dcn_v2_is_that_of_keras_rs(built, peer, low_rank):
    model, batch = built(DcnV2Spec(embedding_dim=DIM, hidden=HIDDEN, low_rank=low_rank), 3)
    keras_rs = peer("keras_rs")
    import keras

    cross, deep = model.dense.body
    x0 = x = torch.cat([*embedded(model, batch), batch.continuous], dim=1)
    for layer in cross.layers:
        theirs = keras_rs.layers.FeatureCross(projection_dim=low_rank)
        theirs(x0, x)  # makes its weights
        down = [] if low_rank is None else [layer.down.weight.T.numpy()]
        theirs.set_weights([*down, layer.up.weight.T.numpy(), layer.up.bias.numpy()])
        x = theirs(x0, x)
    top = keras_dense(keras, linears(deep), x)
    logits = keras_dense(keras, [model.task.logit], top, activation=None)
    torch.testing.assert_close(model(batch), logits[:, 0])


FASTAI_SIDE = """
import sys, warnings
import torch
warnings.simplefilter("ignore")
from fastai.tabular.model import TabularModel
case = torch.load(sys.argv[1], weights_only=True)
model = TabularModel(case["sizes"], case["continuous"].shape[1], 2, case["hidden"])
model.load_state_dict(case["weights"])
model.train(case["training"])
torch.save(model(case["ids"], case["continuous"]).detach(), sys.argv[2])
"""


@pytest.mark.parametrize("training", [True, False])
@torch.no_grad()
def test_tabular_is_fastais(built, tmp_path, training):
    # In a process of its own: fastai brings pandas, which pyarrow loads wherever it finds it.
    if not (FASTAI / "fastai").is_dir():
        pytest.skip("fastai is not in .venv/fastai: run `make .venv/.fastai`")
    model, batch = built(TabularSpec(embedding_dim=DIM, hidden=HIDDEN), 3)
    branches, layers = model.dense.body
    weights = {f"embeds.{i}.weight": model.embeddings.table(f"c{i}") for i in range(4)}
    norms = [m for m in model.dense.modules() if isinstance(m, torch.nn.BatchNorm1d)]
    norms[0].running_var.uniform_(0.5, 2.0)
    of_layers = [*linears(layers), model.task.logit]
    weights |= {f"bn_cont.{k}": v for k, v in branches["continuous"].norm.state_dict().items()}
    for number, layer in enumerate(of_layers):
        weights |= {f"layers.{number}.0.{k}": v for k, v in layer.state_dict().items()}
        norm = norms[1 + number].state_dict() if number < len(HIDDEN) else {}
        weights |= {f"layers.{number}.2.{k}": v for k, v in norm.items()}
    case = {
        "sizes": list(zip(sizes_of(model, batch), [DIM] * 4, strict=True)),
        "hidden": list(HIDDEN),
        "ids": batch.categorical.long(),
        "continuous": batch.continuous,
        "training": training,
        "weights": {name: values.clone() for name, values in weights.items()},
    }
    torch.save(case, tmp_path / "case.pt")
    done = subprocess.run(
        [sys.executable, "-c", FASTAI_SIDE, tmp_path / "case.pt", tmp_path / "output.pt"],
        env=os.environ | {"PYTHONPATH": str(FASTAI)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    theirs = torch.load(tmp_path / "output.pt", weights_only=True)
    torch.testing.assert_close(model.train(training).output(batch), theirs)
