from dataclasses import replace

import numpy as np
import pytest
import torch
from devices import no_waiting

from distrain.errors import DataError
from distrain.loader.batch import Batch
from distrain.metrics import BinaryMetrics, multiclass
from distrain.metrics.bins import LOGIT_LIMIT, NUM_BINS
from distrain.models.heads import RegressionTask, Target
from distrain.train.step import device_metrics
from distrain.train.step.device_metrics import COPIES_ON_GPU, DeviceMetrics, DeviceTargets

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
    assert found.sums == pytest.approx(wanted.sums, rel=1e-12)


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
    on_device, on_host = DeviceMetrics(device), BinaryMetrics()
    for start in range(0, len(logits), 65_536):
        rows = slice(start, start + 65_536)
        on_device.update(logits[rows].to(device), labels[rows].to(device))
        on_host.update(logits[rows].double().numpy(), labels[rows].numpy())
    assert_same(on_device.read_and_reset(), on_host)


def test_logits_of_many_classes_are_counted_some_rows_at_a_time(monkeypatch):
    random = np.random.default_rng(5)
    logits, labels = torch.from_numpy(random.normal(size=(50, 7))), torch.arange(50) % 7
    weights = torch.from_numpy(random.random(50))
    states = []
    for at_once in (21, 2**20):
        monkeypatch.setattr(multiclass, "_LOGITS_AT_ONCE", at_once)
        assert multiclass.rows_at_once(7) == at_once // 7
        metrics = DeviceMetrics(torch.device("cpu"), "multiclass", 7)
        metrics.update(logits, labels, weights)
        states.append(metrics.read_and_reset())
    for state in states:
        assert state.rows == 50
        np.testing.assert_allclose(state.parts().sums, states[-1].parts().sums, rtol=1e-12)


@pytest.mark.parametrize("rows", [0, 1, 16, 50, 1000])
def test_copies_of_the_bins_hold_the_counts_of_one(rows, monkeypatch):
    """As on a GPU: additions to one address, of logits that are alike, wait for each other."""
    cpu, random = torch.device("cpu"), torch.Generator().manual_seed(1)
    one = DeviceMetrics(cpu)
    monkeypatch.setattr(device_metrics, "_copies_on", lambda device: COPIES_ON_GPU)
    spread, restored = DeviceMetrics(cpu), DeviceMetrics(cpu)

    def update(weights=None):
        logits = torch.randn(rows, generator=random) * 0.01
        logits[rows // 2 :] *= 300
        logits[-1:] = float("nan") if rows == 50 else 0.0
        labels = torch.randint(0, 2, (rows,), generator=random)
        for metrics in (one, spread):
            metrics.update(logits, labels, weights)

    def assert_equal():
        assert spread.rows == one.rows
        assert torch.equal(spread.copy_of_state(), one.copy_of_state())

    update()
    assert (spread._copies.sum(1) > 0).sum() == min(rows - (rows == 50), 16)
    assert restored.add_state(spread.copy_of_state())
    for _ in range(2):
        update()
        assert_equal()
    if rows != 50:
        assert spread.take().read().to_json() == one.take().read().to_json()
        assert restored.rows == rows
    update()
    update(torch.rand(rows, generator=random))  # the counts become float64
    update()
    assert_equal()


def test_shapes_must_agree(wording):
    metrics = DeviceMetrics(torch.device("cpu"))
    wording.refused(ValueError, lambda: metrics.update(torch.zeros(2, 1), torch.zeros(2)))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
def test_an_update_never_waits_for_the_gpu():
    metrics = DeviceMetrics(torch.device("cuda"))
    logits, labels = torch.zeros(8, device="cuda"), torch.zeros(8, device="cuda")
    with no_waiting("cuda"):
        metrics.update(logits, labels)
    assert metrics.read_and_reset().rows == 8


KINDS = {
    "regression": lambda random, rows: random.gamma(2, 3, rows),
    "multiclass": lambda random, rows: random.integers(0, 7, rows),
    "binary": lambda random, rows: random.integers(0, 2, rows),
}


def rows_of_kind(kind, rows=5000):
    random = np.random.default_rng(5)
    labels = KINDS[kind](random, rows).astype(np.float32)
    scores = random.normal(0, 3, (rows, 7) if kind == "multiclass" else rows)
    weights = random.choice(np.float32([0, 0.5, 1, 2.75]), rows)
    return scores.astype(np.float32), labels, weights


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("weighted", [False, True])
def test_parts_of_rows_are_counted_like_all_at_once_on_every_device(device, kind, weighted):
    *rows, weights = rows_of_kind(kind)
    rows += [weights] if weighted else []
    on_device = DeviceMetrics(device, kind, 7)
    if kind == "binary":
        on_host = BinaryMetrics()
        on_host.update(*rows)
    else:  # `test_target_metrics.py` compares these with scikit-learn
        at_once = DeviceMetrics(torch.device("cpu"), kind, 7)
        at_once.update(*map(torch.from_numpy, rows))
        on_host = at_once.read_and_reset()
    for part in np.array_split(np.arange(len(weights)), 3):
        on_device.update(*(torch.from_numpy(values[part]).to(device) for values in rows))
    restored = DeviceMetrics(device, kind, 7)
    assert restored.add_state(on_device.copy_of_state().cpu())
    assert restored.rows == len(weights)
    for state in (on_device.read_and_reset(), restored.read_and_reset()):
        ours, theirs = state.parts(), on_host.parts()
        assert (ours.bins == theirs.bins).all()
        assert ours.sums == pytest.approx(theirs.sums, rel=1e-12)
        assert (ours.counts is None) == (theirs.counts is None)
        assert ours.counts is None or (ours.counts == theirs.counts).all()
    assert on_device.read_and_reset().rows == 0


def test_weights_may_come_after_rows_without_any():
    logits, labels, weights = map(torch.from_numpy, rows_of_kind("binary"))
    bare, weighted = (DeviceMetrics(torch.device("cpu")) for _ in range(2))
    bare.update(logits, labels)
    weighted.update(logits, labels, weights)
    states = bare.copy_of_state(), weighted.copy_of_state()
    assert len(states[0]) < len(states[1])
    for order in (states, states[::-1]):
        both = DeviceMetrics(torch.device("cpu"))
        assert all(both.add_state(state) for state in order)
        found = both.read_and_reset()
        assert found.rows == 2 * len(logits)
        assert found.parts().bins.sum() == len(logits) + float(weights.sum())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("kind", "scores", "labels"),
    [
        ("binary", [0.0, float("nan"), float("inf"), 1.0, 2.0], [0.0, 1.0, 1.0, 1.0, 3.0]),
        ("regression", [0.0, np.inf], [1.0, 1.0]),
        ("regression", [0.0, 0.0], [1.0, np.nan]),
        ("multiclass", [[0.0, 0.0], [0.0, np.nan]], [1.0, 0.0]),
        ("multiclass", [[0.0, 0.0], [0.0, 0.0]], [1.0, 2.0]),
        ("multiclass", [[0.0, 0.0], [0.0, 0.0]], [1.0, 0.5]),
    ],
)
def test_rows_that_no_state_takes_are_told_once_when_the_state_is_read(
    kind, scores, labels, device, wording
):
    metrics = DeviceMetrics(device, kind)
    metrics.update(torch.tensor(scores, device=device), torch.tensor(labels, device=device))
    wording.refused(ValueError, metrics.read_and_reset)
    assert metrics.read_and_reset().rows == 0
    weighted = DeviceMetrics(torch.device("cpu"))
    weighted.update(torch.zeros(2), torch.zeros(2), torch.tensor([1.0, -1.0]))
    wording.refused(ValueError, weighted.read_and_reset)


def test_targets_are_saved_side_by_side_and_read_as_one_state():
    targets = (Target("price", "p", "regression"), Target("genre", "g", "multiclass", 7))
    targets += (Target("click", None),)
    batch = Batch(torch.zeros(3, 0), torch.zeros(3, 0), torch.tensor([0.0, 1.0, 1.0]), (), ())
    columns = torch.tensor([[0.0, 1.0, 3.0], [1.0, 2.0, 6.0], [1.0, 4.0, 0.0]])
    batch = replace(batch, labels=columns, label_names=("c", "p", "g"))
    scores = (torch.tensor([1.0, 2.0, 3.0]), torch.eye(7)[:3], torch.zeros(3))
    metrics, restored = (DeviceTargets(targets, torch.device("cpu")) for _ in range(2))
    metrics.update(scores, batch)
    saved = metrics.tensors()
    assert list(saved) == ["metrics", "metrics.1", "metrics.2"]
    restored.add_tensors(saved)
    restored.add_tensors({"metrics": saved["metrics.2"]})  # of a time when all were binary
    assert restored.rows == 3
    found = metrics.read_and_reset()
    assert (found.main_name, list(found.states)) == ("click", ["price", "genre", "click"])
    assert found.figures()["price"]["mae"] == pytest.approx(1 / 3)
    assert restored.read_and_reset().to_json() == found.to_json()


def test_counts_below_0_are_told(wording):
    ids, numbers = torch.zeros(2, 0, dtype=torch.int32), torch.zeros(2, 0)
    batch = Batch(ids, numbers, torch.tensor([2.0, -1.0]), (), ())
    for kind in ("mse", "poisson"):
        metrics = DeviceTargets(RegressionTask(kind=kind).targets, torch.device("cpu"))
        metrics.update([torch.ones(2)], batch)
        if kind == "mse":
            assert metrics.read_and_reset().to_json()
        else:
            assert "poisson" in (wording.refused(DataError, metrics.read_and_reset).hint or "")
