"""Weights that the last update spoilt: no loss has seen them, validation does."""

from pathlib import Path

import pytest
import torch
from damaged import tell
from small_jobs import make_spec

from distrain.launch.inline import run_inline
from distrain.models import load_model
from distrain.models.saved_model import save_model


def test_validation_after_the_last_step_tells_a_non_finite_loss(
    prepared: Path, tmp_path: Path
) -> None:
    spec = make_spec(
        prepared,
        "resources={backend: inline, num_ranks: 1}",
        "train.max_steps=1",
        "train.optimizer={kind: sgd, lr: 1.0e+38}",
    )
    view = run_inline(spec, tmp_path, "job", lambda _: None)
    assert view.reason == "NonFiniteLoss"
    assert "step 1 on rank 0" in (view.message or "")
    assert not (tmp_path / "model").exists()


def test_evaluating_a_model_of_nans_is_an_error_on_one_screen(
    prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = make_spec(prepared, "resources={backend: inline, num_ranks: 1}")
    run_inline(spec, tmp_path, "job", lambda _: None)
    saved = load_model(tmp_path / "model")
    torch.nn.init.constant_(next(saved.model.dense.parameters()), float("nan"))
    save_model(tmp_path / "spoilt", saved.model, saved.spec, saved.schema)
    done = tell(capsys, "evaluate", tmp_path / "spoilt", prepared / "valid")
    assert done.exit_code == 1
    assert "the model cannot score these rows" in done.stderr
    assert "Traceback" not in done.stderr
