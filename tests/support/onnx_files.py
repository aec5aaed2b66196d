"""What an exported ONNX graph gives."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch


def graph_logits(folder: Path, inputs: Sequence[torch.Tensor]) -> Any:
    """The logits of a folder's graph for inputs in the order that it is described with."""
    session = pytest.importorskip("onnxruntime").InferenceSession(
        folder / "model.onnx", providers=["CPUExecutionProvider"]
    )
    names = [one["name"] for one in json.loads((folder / "inputs.json").read_text())["inputs"]]
    assert [given.name for given in session.get_inputs()] == names
    arrays = [np.ascontiguousarray(tensor.numpy()) for tensor in inputs]
    return session.run(["logits"], dict(zip(names, arrays, strict=True)))[0]
