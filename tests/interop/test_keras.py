"""Keras gets the loader's batches, epoch by epoch, and trains on them."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from interop_tables import ALL, ROWS, SCHEMA, epoch_of, loader_threads, run_example
from wording import Wording

from distrain import Dataset, Loader
from distrain.errors import SpecError

os.environ["KERAS_BACKEND"] = "torch"
keras = pytest.importorskip("keras")
from distrain.interop.keras import KerasDataset  # noqa: E402

BATCH_ROWS = 300
STEPS = 8  # the last one has 250 rows


def fed(table: Path, schema: Any = SCHEMA, shuffle: str = "chunk", **options: Any) -> Any:
    loader = Loader(Dataset(table, schema), batch_size=BATCH_ROWS, seed=3, shuffle=shuffle)
    return KerasDataset(loader, **options)


def linear_model(*names: str, **compiled: Any) -> Any:
    """A logistic regression over some numbers, by their names."""
    inputs = {name: keras.Input((1,), name=name) for name in names}
    both = keras.layers.Concatenate()(list(inputs.values()))
    model = keras.Model(inputs, keras.layers.Dense(1, "sigmoid", kernel_initializer="zeros")(both))
    model.compile("sgd", "binary_crossentropy", **compiled)
    return model


class Recorder(keras.Model):
    """Keeps what `fit` and `evaluate` give to a step."""

    def __init__(self) -> None:
        super().__init__()
        self.trained: list[Any] = []
        self.tested: list[Any] = []
        self.stop_after = 0

    def call(self, inputs: Any) -> Any:
        return inputs["I1"]

    def train_step(self, data: Any) -> dict[str, float]:
        self.trained.append(data)
        self.stop_training = len(self.trained) == self.stop_after
        return {"loss": 0.0}

    def test_step(self, data: Any) -> dict[str, float]:
        self.tested.append(data)
        return {"loss": 0.0}


def recorder() -> Any:
    model = Recorder()
    model.compile()
    return model


def equal(item: Any, batch: Any) -> bool:
    inputs, label = item
    names = (*batch.categorical_names, *batch.continuous_names)
    return list(inputs) == list(names) and bool(
        all(inputs[name].dtype == batch[name].dtype for name in names)
        and all(torch.equal(inputs[name], batch[name]) for name in names)
        and torch.equal(label, batch.label)
    )


def test_fit_gets_the_loader_s_batches_bit_for_bit(table: Path) -> None:
    train, valid, model = fed(table), fed(table, shuffle="none"), recorder()
    train.set_epoch(5)
    model.fit(train, validation_data=valid, epochs=2, verbose=0)
    given = Loader(Dataset(table, SCHEMA), batch_size=BATCH_ROWS, seed=3)
    # Keras looked at a batch of epoch 5 before it began.
    expected = [*epoch_of(given, 6), *epoch_of(given, 7)]
    assert len(model.trained) == 2 * STEPS == 2 * len(train)
    assert all(map(equal, model.trained, expected))
    in_order = Loader(Dataset(table, SCHEMA), batch_size=BATCH_ROWS, shuffle="none")
    assert len(model.tested) == 2 * STEPS
    assert all(map(equal, model.tested, 2 * epoch_of(in_order, 0)))


def test_an_epoch_that_is_cut_off_leaves_no_thread(table: Path) -> None:
    train, model = fed(table), recorder()
    model.stop_after = 2
    model.fit(train, epochs=2, verbose=0)
    assert len(model.trained) == 2
    train.close()
    assert loader_threads() == []
    model.fit(train, epochs=1, verbose=0)  # goes on with a whole epoch
    assert sorted(torch.cat([x["row"] for x, _ in model.trained[2:]]).tolist()) == list(range(ROWS))


def test_weights_count(table: Path) -> None:
    weighted = ALL.select(["label", "I1", "weight"])
    model = linear_model("I1")
    model.set_weights([np.ones((1, 1), np.float32), np.zeros(1, np.float32)])
    data = fed(table, weighted, shuffle="none")
    (batch,) = Loader(Dataset(table, weighted), batch_size=ROWS, shuffle="none")
    assert batch.weight is not None
    scores = torch.sigmoid(batch["I1"])
    losses = torch.nn.functional.binary_cross_entropy(scores, batch.label, reduction="none")
    expected = (losses * batch.weight).sum() / ROWS  # Keras divides by rows, not by weights
    assert model.evaluate(data, verbose=0) == pytest.approx(float(expected), rel=1e-5)
    assert float(expected) != pytest.approx(float(losses.mean()), rel=1e-3)


def test_another_backend_is_refused(
    table: Path, monkeypatch: pytest.MonkeyPatch, wording: Wording
) -> None:
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    wording.refused(SpecError, lambda: fed(table))


@pytest.mark.slow
@pytest.mark.usefixtures("in_prepared")
def test_the_page_s_example_runs() -> None:
    names = run_example("keras")
    assert len(names["model"].history.history["val_auc"]) == 2
