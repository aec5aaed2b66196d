import subprocess
import sys

import numpy as np
import pytest
import torch
from devices import no_waiting
from hypothesis import given, settings, strategies as st

from distrain.metrics import BinaryMetrics
from distrain.metrics.bins import LOGIT_LIMIT, NUM_BINS
from distrain.train.step.device_metrics import DeviceBinaryMetrics

DEVICES = [
    torch.device("cpu"),
    pytest.param(
        torch.device("cuda"),
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here"),
        ],
    ),
]


def assert_same(found: BinaryMetrics, wanted: BinaryMetrics) -> None:
    assert (found.negatives == wanted.negatives).all()
    assert (found.positives == wanted.positives).all()
    assert found.log_loss_sum == pytest.approx(wanted.log_loss_sum, rel=1e-12)
    assert found.prediction_sum == pytest.approx(wanted.prediction_sum, rel=1e-12)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_torch_and_numpy_find_the_same_state(device, dtype):
    random = np.random.default_rng(3)
    edges = np.arange(NUM_BINS + 1) * (2 * LOGIT_LIMIT / NUM_BINS) - LOGIT_LIMIT
    below, above = np.nextafter(edges, -99), np.nextafter(edges, 99)
    near = np.concatenate([edges, below, above, np.nextafter(edges.astype(np.float32), 99)])
    logits = torch.from_numpy(
        np.concatenate([near, random.normal(-3, 4, 50_000), [1e30, -1e30, -0.0]])
    ).to(dtype)
    labels = torch.from_numpy(random.integers(0, 2, len(logits))).float()
    on_device, on_host = DeviceBinaryMetrics(device), BinaryMetrics()
    for start in range(0, len(logits), 65_536):
        rows = slice(start, start + 65_536)
        on_device.update(logits[rows].to(device), labels[rows].to(device))
        on_host.update(logits[rows].double().numpy(), labels[rows].numpy())
    assert_same(on_device.read_and_reset(), on_host)


@given(st.lists(st.tuples(st.floats(width=32, allow_nan=False, allow_infinity=False))))
@settings(deadline=None, max_examples=50)
def test_any_float32_falls_into_the_same_bin(rows):
    logits = np.array([row[0] for row in rows], np.float32)
    labels = np.arange(len(logits)) % 2
    on_device, on_host = DeviceBinaryMetrics(torch.device("cpu")), BinaryMetrics()
    on_device.update(torch.from_numpy(logits), torch.from_numpy(labels))
    on_host.update(logits, labels)
    assert_same(on_device.read_and_reset(), on_host)


@pytest.mark.parametrize("device", DEVICES)
def test_reading_empties_the_state(device):
    metrics = DeviceBinaryMetrics(device)
    metrics.update(torch.zeros(4, device=device), torch.ones(4, device=device))
    first = metrics.read_and_reset()
    metrics.update(torch.zeros(0, device=device), torch.zeros(0, device=device))
    assert metrics.read_and_reset().rows == 0
    assert first.rows == first.compute().positives == 4


@pytest.mark.parametrize("device", DEVICES)
def test_unusable_rows_are_told_once_when_the_state_is_read(device):
    metrics = DeviceBinaryMetrics(device)
    logits = torch.tensor([0.0, float("nan"), float("inf"), 1.0, 2.0], device=device)
    labels = torch.tensor([0.0, 1.0, 1.0, 1.0, 3.0], device=device)
    metrics.update(logits, labels)
    with pytest.raises(ValueError, match="3 of 5 rows have a logit that is not finite"):
        metrics.read_and_reset()
    assert metrics.read_and_reset().rows == 0


def test_shapes_must_agree():
    metrics = DeviceBinaryMetrics(torch.device("cpu"))
    with pytest.raises(ValueError, match=r"logits \[2, 1\] and labels \[2\]"):
        metrics.update(torch.zeros(2, 1), torch.zeros(2))


def test_an_update_needs_no_gradient_and_leaves_its_inputs_alone():
    logits = torch.tensor([0.5, -0.5], requires_grad=True)
    labels = torch.tensor([1.0, 0.0])
    metrics = DeviceBinaryMetrics(torch.device("cpu"))
    metrics.update(logits, labels)
    assert logits.tolist() == [0.5, -0.5]
    assert labels.tolist() == [1.0, 0.0]
    assert metrics.read_and_reset().rows == 2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
def test_an_update_never_waits_for_the_gpu():
    metrics = DeviceBinaryMetrics(torch.device("cuda"))
    logits, labels = torch.zeros(8, device="cuda"), torch.zeros(8, device="cuda")
    with no_waiting("cuda"):
        metrics.update(logits, labels)
    assert metrics.read_and_reset().rows == 8


def test_the_numpy_state_loads_no_torch():
    code = "import sys, distrain.metrics; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
