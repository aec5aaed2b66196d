"""Conversions behind clicks, of known probabilities: what several tasks can learn of each other.

A click's logit has an effect of each of many ids, which hold most of what can be known. A click's
conversion has a probability of one number alone. Clicks are many and conversions few, so who learns
p(click and conversion) from conversions alone sees too few of most ids.
"""

from typing import Any, NamedTuple

import numpy as np
import torch

from distrain.batch import Batch
from distrain.models import ClickModel, build_model
from distrain.schema import ColumnSchema, Schema, Tags
from distrain.spec import TrainSpec, parse_spec, with_targets
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import PhaseClock

IDS = {"user": 3000, "item": 1500}
TABLE = Schema(
    (
        *(ColumnSchema(n, "int32", (Tags.CATEGORICAL,), cardinality=c) for n, c in IDS.items()),
        ColumnSchema("age", "float32", (Tags.CONTINUOUS,)),
    )
)


class Rows(NamedTuple):
    batch: Batch
    truth: torch.Tensor  # p(click and conversion), `[rows]`


def planted(rows: int, seed: int) -> Rows:
    effects = {name: np.random.default_rng(7).normal(size=count) for name, count in IDS.items()}
    rng = np.random.default_rng(seed)
    ids = {name: rng.integers(count, size=rows) for name, count in IDS.items()}
    age = rng.normal(size=rows)
    click = _share(sum(1.2 * effects[name][ids[name]] for name in IDS) - 1.0)
    bought = _share(0.8 * age - 2.5)
    clicked = rng.random(rows) < click
    labels = np.stack([clicked, clicked & (rng.random(rows) < bought)], 1)
    batch = Batch(
        torch.from_numpy(np.stack(list(ids.values()), 1).astype(np.int32)),
        torch.from_numpy(age.astype(np.float32))[:, None],
        torch.from_numpy(labels[:, 0].astype(np.float32)),
        tuple(IDS),
        ("age",),
        torch.from_numpy(labels.astype(np.float32)),
        ("click", "buy"),
    )
    return Rows(batch, torch.from_numpy(click * bought))


def _share(logits: Any) -> Any:
    return 1 / (1 + np.exp(-logits))


def trained(rows: Rows, tasks: dict[str, Any], sharing: Any, epochs: int) -> ClickModel:
    """An MLP with these tasks, after some epochs of Adagrad over the rows in their order."""
    document = {"kind": "mlp", "embedding_dim": 8, "hidden": [32], "tasks": tasks}
    model = {**document, "sharing": sharing}
    spec = parse_spec({"data": {"train": "t"}, "model": model})
    built = build_model(with_targets(TABLE, spec), spec.model, seed=1)
    train = TrainSpec.model_validate({"optimizer": {"kind": "adagrad", "lr": 0.05}})
    step, clock = TrainStep(built, train, 1), PhaseClock()
    for _ in range(epochs):
        for start in range(0, rows.batch.num_rows, 512):
            few = rows.batch.part(slice(start, min(start + 512, rows.batch.num_rows)))
            step(few, few.num_rows, 0.05, clock)
    return built.eval()
