"""A model is loaded once: by threads that score at once, and by checks and scoring."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from small_jobs import CARDINALITIES, draw_rows

from distrain.jobs.spec import MlpSpec
from distrain.models import build_model
from distrain.models.saved_model import save_model
from distrain.predict import prediction, score_file as files
from distrain.predict.load_model import open_model as load
from distrain.predict.prediction import PredictRequest, check_request, predict
from distrain.schema import criteo_schema


def test_threads_that_need_a_model_at_once_load_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loads, all_ask = [], threading.Barrier(4)

    def open_model(path: str) -> Any:
        loads.append(path)
        threading.Event().wait(0.05)  # the time in which others come
        return SimpleNamespace(model=torch.nn.Linear(1, 1))

    monkeypatch.setattr(files, "open_model", open_model)
    files._model.cache_clear()

    def ask(_: int) -> None:
        all_ask.wait()
        files.model_for_worker("a model that is not there", "cpu")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(ask, range(4)))
    files._model.cache_clear()
    assert len(loads) == 1


def test_checked_rows_are_scored_without_further_checks_with_the_model_of_the_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(draw_rows(50, seed=1), tmp_path / "rows.parquet")
    schema, spec = criteo_schema(CARDINALITIES), MlpSpec(embedding_dim=2, hidden=(4,))
    save_model(tmp_path / "model", build_model(schema, spec, seed=0), spec, schema)
    loads = list[str]()
    monkeypatch.setattr(files, "open_model", lambda path: loads.append(path) or load(path))
    files._model.cache_clear()
    rows = (str(tmp_path / "rows.parquet"),)
    request = PredictRequest(tmp_path / "model", rows, tmp_path / "scores", device="cpu")
    checked = check_request(request)
    monkeypatch.setattr(prediction, "open_prepared", None)
    assert predict(request, None, checked=checked).rows == 50
    assert len(loads) == 1
