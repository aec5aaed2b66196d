"""Event models and weighted metrics on a GPU: nothing waits, and nothing varies."""

import pytest
import torch
from devices import no_waiting, on_gpu
from event_rows import SCHEMA, event_batch

from distrain.jobs.spec import TrainSpec, parse_spec
from distrain.models import build_model
from distrain.train.step.device_metrics import DeviceMetrics
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import PhaseClock


@on_gpu
@pytest.mark.parametrize("kind", ["din", "bst", "sasrec", "hstu"])
def test_a_steady_step_over_events_never_makes_the_host_wait(device, kind):
    section = {"kind": kind, "embedding_dim": 4, "max_length": 3, "hidden": [5]}
    model = build_model(
        SCHEMA, parse_spec({"data": {"train": "t"}, "model": section}).model, seed=1
    ).to(device)
    step = TrainStep(model, TrainSpec(cuda_graph=False), 1)
    batch = event_batch(200).to(torch.device(device))
    routes = [model.embeddings.route(*model.table_ids(batch)) for _ in range(4)]
    for route in routes[:2]:
        step(batch, 200, 0.1, PhaseClock(), route)
    with no_waiting(device):
        for route in routes[2:]:
            step(batch, 200, 0.1, PhaseClock(), route)


@on_gpu
def test_metrics_of_weighted_rows_are_the_same_in_each_run(device):
    """With most rows in few bins, where atomic additions would come in any order."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randint(0, 3, (65_536,), generator=generator).float()
    labels = torch.randint(0, 2, (65_536,), generator=generator).float()
    weights = torch.rand(65_536, generator=generator)
    found = []
    for there in (device, device, "cpu"):
        metrics = DeviceMetrics(torch.device(there))
        for _ in range(3):
            metrics.update(logits.to(there), labels.to(there), weights.to(there))
        found.append(metrics.copy_of_state().cpu())
    first, second, on_cpu = found
    assert torch.equal(first, second)
    size = DeviceMetrics(torch.device("cpu"))._bins.numel()
    sums, expected = (values[:size].view(torch.float64) for values in (first, on_cpu))
    torch.testing.assert_close(sums, expected)
