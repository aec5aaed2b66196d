"""Conversions behind clicks, of known probabilities: what several tasks learn of each other.

A click's logit has an effect of each of many ids, which decide most. A conversion depends on one
number alone. Clicks are many and conversions few, so a tower of conversions alone sees too few of
most ids.
"""

import numpy as np
import pytest
import torch
from torch_checks import one_torch_thread

from distrain.jobs.spec import TrainSpec, parse_spec
from distrain.jobs.spec.targets import with_targets
from distrain.loader.batch import Batch
from distrain.metrics import BinaryMetrics
from distrain.models import build_model
from distrain.schema import ColumnSchema, Schema, Tags
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import PhaseClock

IDS = {"user": 3000, "item": 1500}
TABLE = Schema(
    (
        *(ColumnSchema(n, "int32", (Tags.CATEGORICAL,), cardinality=c) for n, c in IDS.items()),
        ColumnSchema("age", "float32", (Tags.CONTINUOUS,)),
    )
)
BOTH = {"click": {}, "buy": {}}
WAYS = {
    "single": ({"buy": {}}, None),
    "esmm": (BOTH, "esmm"),
    "mmoe": (BOTH, {"kind": "mmoe", "experts": 4, "hidden": [16]}),
}


def planted(rows, seed):
    """Rows, and their true logits of a click with a conversion."""
    effects = {name: np.random.default_rng(7).normal(size=count) for name, count in IDS.items()}
    rng = np.random.default_rng(seed)
    ids = {name: rng.integers(count, size=rows) for name, count in IDS.items()}
    age = torch.from_numpy(rng.normal(size=rows).astype(np.float32))
    click = torch.from_numpy(sum(1.2 * effects[name][ids[name]] for name in IDS) - 1.0).sigmoid()
    buy = (0.8 * age - 2.5).sigmoid()
    clicked, bought = (torch.from_numpy(rng.random(rows)) < chance for chance in (click, buy))
    labels = torch.stack([clicked, clicked & bought], 1).float()
    flat = torch.from_numpy(np.stack(list(ids.values()), 1).astype(np.int32))
    batch = Batch(flat, age[:, None], labels[:, 0], tuple(IDS), ("age",), labels, ("click", "buy"))
    return batch, torch.logit(click * buy)


def trained(rows, tasks, sharing):
    document = {"kind": "mlp", "embedding_dim": 8, "hidden": [32], "tasks": tasks}
    spec = parse_spec({"data": {"train": "t"}, "model": {**document, "sharing": sharing}})
    model = build_model(with_targets(TABLE, spec), spec.model, seed=1)
    step = TrainStep(model, TrainSpec.model_validate({"optimizer": {"kind": "adagrad"}}), 1)
    for start in range(0, rows.num_rows, 512):
        few = rows.part(slice(start, min(start + 512, rows.num_rows)))
        step(few, few.num_rows, 0.05, PhaseClock())
    return model.eval()


@pytest.mark.slow
@pytest.mark.release
def test_tasks_that_share_reach_most_of_what_a_single_tower_misses():
    (rows, _), (new, truth) = planted(300_000, seed=1), planted(100_000, seed=2)

    def auc(scores):
        metrics = BinaryMetrics()
        metrics.update(scores.double().numpy(), new.labels[:, 1].numpy())
        return metrics.compute().auc

    with one_torch_thread(), torch.no_grad():
        found = {}
        for name, way in WAYS.items():
            with torch.enable_grad():
                model = trained(rows, *way)
            found[name] = auc(model.scores(new)[-1])
    gap = auc(truth) - found["single"]
    assert gap > 0.03
    for name in ("esmm", "mmoe"):
        assert (found[name] - found["single"]) / gap > 0.9, found
