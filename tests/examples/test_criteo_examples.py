"""Each Criteo example in its quick form, as a process of its own, tells what it learnt."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from run_examples import run_example

FASTAI = Path(sys.prefix) / "fastai"
ROWS, VALID_ROWS, CLICK_RATE = 100_000, 25_000, 0.25

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows that the first example makes serve the others."""
    return tmp_path_factory.mktemp("examples")


def run(script: str, work: Path, **environment: str) -> dict[str, Any]:
    """The figures in the example's last line."""
    printed = run_example(script, "--quick", "--work", work, **environment)
    figures: dict[str, Any] = json.loads(printed.splitlines()[-1])
    # Guessing gives 0.5, give or take 0.004.
    assert 0.65 < figures["auc"] < figures["best_auc"] + 0.01
    assert figures["rows_per_s"] > 0
    assert Path(figures["model"]).exists()
    return figures


def test_the_mlp_is_trained_saved_and_scored(work: Path) -> None:
    figures = run("criteo_mlp.py", work)
    assert figures["rows"] == 2 * ROWS
    assert figures["auc"] == pytest.approx(figures["auc_in_training"], abs=1e-6)


@pytest.mark.release
@pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="Keras is not installed")
def test_keras_trains_on_the_loader(work: Path) -> None:
    assert run("criteo_keras.py", work)["rows"] == 2 * (ROWS + VALID_ROWS)


@pytest.mark.release
def test_fastai_trains_on_the_loader(work: Path) -> None:
    if importlib.util.find_spec("fastai") is None and not (FASTAI / "fastai").is_dir():
        pytest.skip("fastai is neither installed nor in .venv/fastai: run `make .venv/.fastai`")
    figures = run("criteo_fastai.py", work, PYTHONPATH=str(FASTAI))
    assert figures["rows"] == ROWS + VALID_ROWS
    assert figures["average_precision"] > CLICK_RATE + 0.1  # guessing gives the click rate
