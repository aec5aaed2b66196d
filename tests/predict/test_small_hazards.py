"""Copies of exports, and threads that score at once."""

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from distrain.predict import score_file as files
from distrain.predict.serving.deltas import (
    FORMAT,
    MANIFEST,
    DamagedExport,
    apply_deltas,
    hashes_of,
    signed,
)


def test_no_deltas_make_a_copy_and_leave_the_base(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "model.onnx").write_bytes(b"weights")
    manifest = signed({"format": FORMAT, "files": hashes_of(base)})
    (base / MANIFEST).write_text(json.dumps(manifest))
    apply_deltas(tmp_path / "out", base, [])
    for folder in (base, tmp_path / "out"):
        assert (folder / "model.onnx").read_bytes() == b"weights"
        assert (folder / MANIFEST).exists()
    (base / "model.onnx").write_bytes(b"others")
    with pytest.raises(DamagedExport):
        apply_deltas(tmp_path / "again", base, [])
    assert not (tmp_path / "again").exists()


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
