"""Where Triton is installed and cannot compile, torch does the work."""

import sys
from types import SimpleNamespace

import torch

from distrain.models.embeddings.kernels import fixed_shape as fixed


def test_a_warning_tells_why_torch_does_the_work(monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("Failed to find C compiler.\nPlease specify via CC")

    name = "distrain.models.embeddings.kernels.on_triton"
    broken = SimpleNamespace(sources_of=fail)
    monkeypatch.setitem(sys.modules, name, broken)
    monkeypatch.setattr("distrain.models.embeddings.kernels.on_triton", broken, raising=False)
    assert not fixed._compiles.__wrapped__(torch.device("cpu"))
    (record,) = caplog.records
    assert "Failed to find C compiler." in record.getMessage()
    assert "DISTRAIN_TRITON=0" in record.getMessage()
