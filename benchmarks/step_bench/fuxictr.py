"""Compares distrain's models with FuxiCTR's of equal shapes, alternating in one process.

`step.py --fuxictr PYTHON` runs it in a Python that has both. Each contender takes whole steps over
the same batches of 4,096 rows in memory: forward, binary cross-entropy, backward, Adam. 39 id
columns (Criteo's 26 columns, and the 13 numbers in buckets) have embeddings of 16 in tables of 1M
rows in total, followed by layers of 128 and 128. DCN-v2 has 3 cross layers parallel to these. DIN
has a history of up to 50 ids (lengths by a Zipf law) in each row, padded to 50 for FuxiCTR.

FuxiCTR's models are built from its own layers as in its model zoo. Its `train_step` clips the norm
of gradients, and its Adam updates all rows of the tables. distrain clips only if the job says so,
and updates only the rows of the batch. A third contender is FuxiCTR without clipping.
"""

import json
import re
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import numpy as np
import torch
from fuxictr.features import FeatureMap
from fuxictr.pytorch.layers import (
    CrossNetV2,
    DIN_Attention,
    FactorizationMachine,
    FeatureEmbedding,
    MLP_Block,
)
from fuxictr.pytorch.models import BaseModel
from torch import Tensor, nn

from benchmarks.loader_bench.data import draw_chunk
from distrain.jobs.spec import parse_spec
from distrain.loader.batch import Batch, Ragged
from distrain.models import build_model
from distrain.prep.synthetic.draw import INTEGERS
from distrain.schema import ColumnSchema, Schema, Tags
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import PhaseClock

SCALE = 0.022  # 1.0M rows of tables
BATCH, BATCHES, DIM, MOST, BUCKETS, LR = 4096, 4, 16, 50, 100, 0.001
HIDDEN, CROSSES, ATTENTION = [128, 128], 3, [64]
ITEM, GOAL = "C3", 1.3
MODELS: dict[str, dict[str, Any]] = {
    "dcn_v2": {"hidden": HIDDEN, "cross_depth": CROSSES, "structure": "parallel"},
    "deepfm": {"hidden": HIDDEN},
    "din": {"hidden": HIDDEN, "attention": ATTENTION, "activation": "relu", "max_length": MOST},
}


def columns() -> dict[str, Any]:
    """Return 65,536 rows of 39 id columns, and their labels."""
    table = draw_chunk(0, SCALE)
    held = {name: table[name].to_numpy() for name in table.column_names}
    for number in INTEGERS:
        edges = np.quantile(held[number.name], np.arange(1, BUCKETS) / BUCKETS)
        held[number.name] = np.searchsorted(np.unique(edges), held[number.name], "right")
    return {name: ids.astype(np.int32) for name, ids in held.items()}


def batches(held: dict[str, Any], with_lists: bool) -> Iterator[Batch]:
    """Yield the rows as batches of distrain's loader."""
    names = tuple(name for name in held if name != "label")
    chances = 1.0 / np.arange(1, MOST + 1)
    rng = np.random.default_rng(0)
    for first in range(0, BATCHES * BATCH, BATCH):
        rows = {name: ids[first : first + BATCH] for name, ids in held.items()}
        ids = torch.from_numpy(np.stack([rows[name] for name in names], axis=1))
        label = torch.from_numpy(rows["label"].astype(np.float32))
        lists = {}
        if with_lists:
            lengths = rng.choice(MOST, BATCH, p=chances / chances.sum()) + 1
            offsets = torch.from_numpy(np.append(0, lengths.cumsum()).astype(np.int32))
            seen = rng.choice(held[ITEM], int(lengths.sum()))
            lists["seen"] = Ragged(torch.from_numpy(seen), offsets)
        yield Batch(ids, torch.zeros(BATCH, 0), label, names, (), lists=lists)


def ours(kind: str, sizes: dict[str, int]) -> Callable[[Batch], object]:
    """Return a function that takes a training step of distrain."""
    made = [ColumnSchema("label", "float32", (Tags.TARGET,))]
    for name, size in sizes.items():
        domain = {"domain": ITEM} if name == ITEM else {}
        made.append(
            ColumnSchema(name, "int32", (Tags.CATEGORICAL,), cardinality=size, properties=domain)
        )
    if kind == "din":
        made.append(
            ColumnSchema(
                "seen", "int32", (Tags.CATEGORICAL,), cardinality=sizes[ITEM], is_list=True,
                is_ragged=True, properties={"event": "seen", "domain": ITEM},
            )
        )  # fmt: skip
    train = {"optimizer": {"kind": "adam", "lr": LR}}
    model = {"kind": kind, "embedding_dim": DIM, **MODELS[kind]}
    spec = parse_spec({"data": {"train": "t"}, "model": model, "train": train})
    step = TrainStep(build_model(Schema(tuple(made)), spec.model, seed=0), spec.train, 1)
    clock = PhaseClock()
    return lambda batch: step(batch, batch.num_rows, LR, clock)


class Peer(BaseModel):
    """A model of FuxiCTR's layers, trained by its own `train_step`."""

    def __init__(self, sizes: dict[str, int]):
        features = FeatureMap("rows", ".")
        features.features = OrderedDict(
            (name, {"type": "categorical", "source": "", "vocab_size": size})
            for name, size in sizes.items()
        )
        features.labels, features.default_emb_dim = ["label"], DIM
        features.num_fields = len(sizes)
        super().__init__(features, verbose=0, model_root=".", metrics=["AUC"])
        self._max_gradient_norm = 10.0
        self.embed = FeatureEmbedding(features, DIM)
        self.build(features, features.sum_emb_out_dim())
        self.compile("adam", "binary_crossentropy", LR)
        self.reset_parameters()

    def build(self, features: Any, width: int) -> None:
        """Make the layers after the embeddings."""
        raise NotImplementedError

    def logits(self, inputs: dict[str, Tensor]) -> Tensor:
        """Return the logits, `[rows, 1]`."""
        raise NotImplementedError

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the probabilities in the form of FuxiCTR's models."""
        return {"y_pred": self.output_activation(self.logits(inputs))}

    def unclipped_step(self, inputs: dict[str, Tensor]) -> None:
        """Do `train_step` without clipping."""
        self.optimizer.zero_grad()
        self.compute_loss(self.forward(inputs), self.get_labels(inputs)).backward()
        self.optimizer.step()


class DCNv2Peer(Peer):
    """FuxiCTR's DCNv2, parallel."""

    def build(self, features: Any, width: int) -> None:
        self.cross = CrossNetV2(width, CROSSES)
        self.deep = MLP_Block(width, hidden_units=HIDDEN)
        self.top = nn.Linear(width + HIDDEN[-1], 1)

    def logits(self, inputs: dict[str, Tensor]) -> Tensor:
        values = self.embed(self.get_inputs(inputs), flatten_emb=True)
        found: Tensor = self.top(torch.cat([self.cross(values), self.deep(values)], dim=-1))
        return found


class DeepFMPeer(Peer):
    """FuxiCTR's DeepFM."""

    def build(self, features: Any, width: int) -> None:
        self.machine = FactorizationMachine(features)
        self.deep = MLP_Block(width, output_dim=1, hidden_units=HIDDEN)

    def logits(self, inputs: dict[str, Tensor]) -> Tensor:
        ids = self.get_inputs(inputs)
        values = self.embed(ids)
        found: Tensor = self.machine(ids, values) + self.deep(values.flatten(start_dim=1))
        return found


class DINPeerOfColumns(Peer):
    """FuxiCTR's DIN, with one history and the other columns."""

    def build(self, features: Any, width: int) -> None:
        self.attention = DIN_Attention(DIM, ATTENTION)
        self.deep = MLP_Block(width + DIM, output_dim=1, hidden_units=HIDDEN)

    def logits(self, inputs: dict[str, Tensor]) -> Tensor:
        others = {name: ids for name, ids in inputs.items() if name not in ("seen", "mask")}
        values = self.embed(self.get_inputs(others), flatten_emb=True)
        place = DIM * list(self.feature_map.features).index(ITEM)
        target = values[:, place : place + DIM]
        seen = self.embed({ITEM: inputs["seen"]}, flatten_emb=True)
        pooled = self.attention(target, seen, inputs["mask"])
        found: Tensor = self.deep(torch.cat([values, pooled], dim=-1))
        return found


PEERS = {"dcn_v2": DCNv2Peer, "deepfm": DeepFMPeer, "din": DINPeerOfColumns}


def as_fuxictr(batch: Batch) -> dict[str, Tensor]:
    """Return the same rows as FuxiCTR's loader would: an int64 tensor for each column."""
    assert batch.label is not None
    inputs = {name: batch[name].long().contiguous() for name in batch.categorical_names}
    for lists in batch.lists.values():
        inputs["seen"] = lists.padded(MOST, 0).long()
        inputs["mask"] = torch.arange(MOST) < lists.lengths.long()[:, None]
    return inputs | {"label": batch.label}


def measured(kind: str, held: dict[str, Any], turns: int) -> dict[str, Any]:
    """Return the rows per CPU second of each contender, measured in turns."""
    sizes = {name: int(ids.max()) + 1 for name, ids in held.items() if name != "label"}
    rows = list(batches(held, kind == "din"))
    torch.manual_seed(0)
    clipped, unclipped = PEERS[kind](sizes).train(), PEERS[kind](sizes).train()
    theirs = [as_fuxictr(batch) for batch in rows]
    contenders: dict[str, tuple[Callable[[Any], object], list[Any]]] = {
        "distrain": (ours(kind, sizes), rows),
        "fuxictr": (clipped.train_step, theirs),
        "fuxictr_unclipped": (unclipped.unclipped_step, theirs),
    }
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(turns + 1):
        for name, (step, given) in contenders.items():
            began = time.process_time()
            for batch in given:
                step(batch)
            if turn:  # the first one warms up
                rates[name].append(len(given) * BATCH / (time.process_time() - began))
    own = rates.pop("distrain")
    found: dict[str, Any] = {"model": kind, "distrain": round(median(own))}
    for name, other in rates.items():
        found[name] = round(median(other))
        ratios = [a / b for a, b in zip(own, other, strict=True)]
        found[f"x_{name}"] = round(median(ratios), 2)
    return found


def main() -> None:
    turns, only = int(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    held = columns()
    print(f"{'rows per CPU second':20}{'distrain':>10}{'FuxiCTR':>10}{'times':>7}{'unclipped':>11}")
    found = []
    for kind in (kind for kind in MODELS if re.search(only, kind)):
        found.append(one := measured(kind, held, turns))
        print(
            f"{kind:20}{one['distrain']:>10,}{one['fuxictr']:>10,}{one['x_fuxictr']:>7}"
            f"{one['fuxictr_unclipped']:>11,} {one['x_fuxictr_unclipped']}",
            flush=True,
        )
    met = all(one["x_fuxictr"] >= GOAL for one in found)
    print(json.dumps({"benchmark": "fuxictr", "goal": GOAL, "models": found, "met": met}))
    sys.exit(not met)


if __name__ == "__main__":
    main()
