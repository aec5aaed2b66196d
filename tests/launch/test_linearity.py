"""Small tables with only linear effects get a linear model."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

import distrain
from distrain.cli.training.train import command as train
from distrain.jobs.spec import load_spec
from distrain.launch.linearity import is_linear
from distrain.launch.new_job import new_job
from distrain.launch.tables import TableRequest, job_of_table
from distrain.models import Blueprint, Embeddings, InputBlock
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.heads.tasks import RegressionTask
from distrain.prep.features.inference.user_choices import UserChoices
from distrain.schema import Schema

Floats = NDArray[np.float64]
ASKED = UserChoices(("target",))
NETWORK_RATE = 0.001


@pytest.mark.slow
@pytest.mark.parametrize(
    ("effect", "expected"),
    [
        (lambda x, a, b: x[0] - x[1], True),
        (lambda x, a, b: np.zeros_like(a), True),
        (lambda x, a, b: a + 0.5 * (b % 2), True),
        (lambda x, a, b: np.abs(2 * x[0]), False),
        (lambda x, a, b: x[0] * x[1], False),
        (lambda x, a, b: 2 * ((a + b) % 2), False),
    ],
)
@pytest.mark.parametrize("threshold", [None, 0.0])
def test_only_effects_beyond_a_sum_of_columns_need_more_than_a_linear_model(
    effect: Callable[..., Floats], expected: bool, threshold: float | None
) -> None:
    source = np.random.default_rng(0)
    x = source.normal(size=(3, 300))
    a, b = source.integers(0, 4, (2, 300)).astype(np.float64)
    target = effect(x, a, b) + source.normal(0, 0.5, 300)
    if threshold is not None:  # noise that keeps the probabilities away from 0 and 1
        noise = source.normal(0, 2 if expected else 0.5, 300)
        target = (target - target.mean() + noise > threshold).astype(np.float64)
    assert is_linear([a, b], [*x], target) == expected


def test_units_and_gaps_of_numbers_do_not_matter() -> None:
    source = np.random.default_rng(1)
    x = source.normal(size=(2, 300))
    target = np.abs(x[0]) + source.normal(0, 0.3, 300)
    numbers = [1e6 * x[0] + 5, x[1], np.full(300, 7.0), np.full(300, np.nan)]
    assert not is_linear([], numbers, target)
    assert is_linear([], numbers, x[0] + source.normal(0, 0.3, 300))


@pytest.mark.parametrize(
    ("rows", "model", "is_squared", "expected"),
    [
        (300, None, False, True),
        (300, None, True, False),
        (300, "mlp", False, False),
        (3_000, None, False, False),
    ],
)
def test_a_small_linear_table_gets_a_model_without_hidden_layers(
    tmp_path: Path, rows: int, model: str | None, is_squared: bool, expected: bool
) -> None:
    x = np.random.default_rng(2).normal(size=(2, rows))
    noise = np.random.default_rng(3).normal(size=rows)
    effect = np.square(x[0]) if is_squared else x[0]
    table = {"a": x[0], "b": x[1], "target": effect + noise}
    said: list[str] = []
    job = job_of_table(TableRequest(table, tmp_path, ASKED, model=model), said.append)
    assert (job.document["model"].get("hidden") == []) == expected
    assert (job.document["train"]["optimizer"]["lr"] > 0.001) == expected
    assert len(said) == expected
    again = new_job(next(tmp_path.glob("data-*")), model, said.append)
    assert again["model"] == job.document["model"]


def tiny(schema: Schema) -> Blueprint:
    return Blueprint(InputBlock(schema, Embeddings(4)), MLPBlock([4]), RegressionTask())


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    "choice",
    [
        {"model": {"hidden": [64]}},
        {"model": {"dropout": 0.1}},
        {"overrides": {"model.hidden": [64]}},
        {"overrides": {"model": {"kind": "mlp", "hidden": [64]}}},
        {"model_fn": tiny},
    ],
)
def test_training_settings_of_linear_models_are_not_used_for_other_models(
    tmp_path: Path, choice: dict[str, Any]
) -> None:
    choice["overrides"] = choice.get("overrides", {}) | {"train.max_steps": 1}
    run_dir = tmp_path / "run"
    distrain.fit(linear_table(), target="target", run_dir=run_dir, **choice)
    spec = load_spec(run_dir / "job.yaml")
    assert spec.train.optimizer.lr == NETWORK_RATE
    if "model_fn" not in choice:
        assert getattr(spec.model, "hidden", []) != []
        assert getattr(spec.model, "dropout", 0) > 0 or choice.get("model") is None


@pytest.mark.parametrize(
    ("words", "is_linear_model"),
    [
        ([], True),
        (["--set", "train.epochs=2"], True),
        (["--set", "model.hidden=[64]"], False),
        (["--set", "model={kind: mlp, hidden: [64]}"], False),
    ],
)
def test_an_option_that_sets_the_model_prevents_the_linear_one(
    tmp_path: Path, words: list[str], is_linear_model: bool
) -> None:
    pq.write_table(pa.table(linear_table()), tmp_path / "t.parquet")
    args = ["--target", "target", "--run-dir", str(tmp_path / "run"), "--dry-run", "--json"]
    done = CliRunner().invoke(train, [str(tmp_path / "t.parquet"), *args, *words])
    assert done.exit_code == 0, done.output
    spec = json.loads(done.stdout)
    assert (spec["model"]["hidden"] == []) == is_linear_model
    assert (spec["train"]["optimizer"]["lr"] > NETWORK_RATE) == is_linear_model


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_target_that_is_not_finite_is_not_linear(value: float) -> None:
    x = np.random.default_rng(5).normal(size=100)
    target = x.copy()
    target[7] = value
    assert not is_linear([], [x], target)


def linear_table() -> dict[str, Floats]:
    a, b, noise = np.random.default_rng(2).normal(size=(3, 300))
    return {"a": a, "b": b, "target": a + noise}


def test_rows_that_lack_a_column_are_left_to_training(tmp_path: Path) -> None:
    a, b, target = np.random.default_rng(4).normal(size=(3, 50))
    table = {"a": a, "b": b, "target": target}
    job_of_table(TableRequest(table, tmp_path, ASKED), str)
    data = next(tmp_path.glob("data-*"))
    for file in (data / "train").glob("*.parquet"):
        pq.write_table(pq.read_table(file).drop_columns(["a"]), file)
    assert new_job(data, None, str)["model"].get("hidden") != []
