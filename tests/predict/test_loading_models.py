"""Threads that score at once load a model once."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from distrain.predict import score_file as files


def test_threads_that_need_a_model_at_once_load_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loads, all_ask = [], threading.Barrier(4)

    def open_model(path: str) -> Any:
        loads.append(path)
        threading.Event().wait(0.05)  # the time in which others come
        return SimpleNamespace(model=torch.nn.Linear(1, 1))

    monkeypatch.setattr(files, "open_model", open_model)
    files._model.cache_clear()

    def ask() -> None:
        all_ask.wait()
        files.model_for_worker("a model that is not there", "cpu")

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    files._model.cache_clear()
    assert len(loads) == 1
