"""What tasks learn of each other, on data whose best scores are known."""

import pytest
import torch
from planted_conversions import planted, trained
from torch_checks import one_torch_thread

from distrain.metrics import BinaryMetrics


def auc(scores, labels):
    metrics = BinaryMetrics()
    metrics.update(scores.double().numpy(), labels.numpy())
    return metrics.compute().auc


@pytest.mark.slow
def test_tasks_that_share_reach_most_of_what_a_single_tower_misses():
    rows, new = planted(300_000, seed=1), planted(100_000, seed=2)
    bought = new.batch.labels[:, 1]
    best = auc(torch.logit(new.truth), bought)
    both = {"click": {}, "buy": {}}
    ways = {
        "single": ({"buy": {}}, None),
        "esmm": (both, "esmm"),
        "mmoe": (both, {"kind": "mmoe", "experts": 4, "hidden": [16]}),
    }
    found = {}
    with one_torch_thread():
        for name, (tasks, sharing) in ways.items():
            model = trained(rows, tasks, sharing, epochs=1)
            with torch.no_grad():
                found[name] = auc(model.scores(new.batch)[-1], bought)
    gap = best - found["single"]
    assert gap > 0.03
    for name in ("esmm", "mmoe"):
        assert (found[name] - found["single"]) / gap > 0.9, found
