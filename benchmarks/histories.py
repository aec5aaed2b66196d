"""Measure the cost of histories: making them, and training on them.

    python benchmarks/histories.py [--quick] [--events MILLIONS ...] [--only make|train|memory]

  make     `distrain prep` of a log with `history: {keep: 50}`, one worker, `--memory-mib 500`: CPU
           time per event and peak memory of the largest process, for logs of rising length
  train    rows per CPU second of whole steps (forward, backward, Adam) of `din` and `sasrec`,
           compared with FuxiCTR's DIN and a SASRec in plain torch, which both pad each row to 50
           events; with history lengths by a Zipf law from 1 to 50, and with 50 events in every row
  memory   the bytes per event that a step of each sequence model keeps for its backward pass, for a
           batch with one row of 1,000 events and for a batch with at most 20 events in a row

Embeddings are 32 wide, one thread. The peer of `din` uses FuxiCTR's `DIN_Attention` if it is
installed, and otherwise a copy of it (2.3.10, Apache-2.0): an MLP of 64 over `[q, k, q - k, q * k]`
of each position and a mask; then an MLP over item and sum. The peer of `sasrec` has the layers of
arXiv:1808.09781, built from `nn.TransformerEncoderLayer`. Contenders take turns; the ratio is the
median of the turns' ratios.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor, nn

from distrain.jobs.spec import TrainSpec, parse_spec
from distrain.loader.batch import Batch, Ragged
from distrain.models import build_model
from distrain.schema import ColumnSchema, Schema, Tags
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import PhaseClock

ROWS, MOST, DIM, ITEMS, HIDDEN = 512, 50, 32, 10_000, 64
GOALS = {"peak_mib_16m": 1024, "cpu_growth": 1.15, "din": 1.0, "sasrec": 1.0, "bytes_growth": 1.5}
LIST: dict[str, Any] = {
    "is_list": True,
    "is_ragged": True,
    "properties": {"event": "seen", "domain": "item"},
}
SCHEMA = Schema(
    (
        ColumnSchema("label", "float32", (Tags.TARGET,)),
        ColumnSchema("item", "int32", (Tags.CATEGORICAL,), cardinality=ITEMS),
        ColumnSchema("seen_item", "int32", (Tags.CATEGORICAL,), cardinality=ITEMS, **LIST),
    )
)
DOCUMENT = """
target: label
columns: {user: {kind: categorical}, item: {kind: categorical}}
history: {by: user, order: time, keep: 50, of: [item, time]}
"""


def make(events: int, folder: Path) -> dict[str, float]:
    """Prepare a log; return microseconds of CPU per event, and MiB of the largest process."""
    rng = np.random.default_rng(0)
    (folder / "log").mkdir(parents=True)
    (folder / "features.yaml").write_text(DOCUMENT)
    for number, rows in enumerate([1_000_000] * (events // 1_000_000)):
        seconds = np.sort(rng.integers(0, 10**6, rows))
        columns = {
            "label": rng.integers(0, 2, rows).astype(np.float32),
            "user": rng.integers(0, events // 40, rows),
            "item": rng.integers(0, 50_000, rows),
            "time": pa.array(seconds + 10**6 * number, pa.timestamp("s")),
        }
        pq.write_table(pa.table(columns), folder / "log" / f"{number:03d}.parquet")
    given = ["--features", "features.yaml", "--out", "out", "--workers", "1", "--memory-mib", "500"]
    command = [sys.executable, "-m", "distrain", "--quiet", "prep", "log", *given]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"distrain prep ended with exit code {process.returncode}")
    cpu_us = (usage.ru_utime + usage.ru_stime) / events * 1e6
    return {"events": events, "cpu_us": round(cpu_us, 2), "peak_mib": usage.ru_maxrss // 1024}


def draw(seed: int, rows: int, most: int, longest: int = 0, power: float = 1.0) -> Batch:
    """Return a batch of rows with 1 to `most` events each.

    The chance of n events is proportional to `n ** -power`. The first row has `longest` events,
    unless that is 0.
    """
    rng = np.random.default_rng(seed)
    chances = 1.0 / np.arange(1, most + 1) ** power
    lengths = rng.choice(most, rows, p=chances / chances.sum()) + 1
    lengths[0] = longest or lengths[0]
    offsets = torch.from_numpy(np.concatenate([[0], lengths.cumsum()]).astype(np.int32))
    ids = torch.from_numpy(rng.integers(0, ITEMS, int(lengths.sum()) + rows).astype(np.int32))
    label = torch.from_numpy(rng.integers(0, 2, rows).astype(np.float32))
    lists = {"seen_item": Ragged(ids[rows:], offsets)}
    return Batch(ids[:rows, None], torch.zeros(rows, 0), label, ("item",), (), lists=lists)


def ours(kind: str, max_length: int = MOST) -> Callable[[Batch], object]:
    """Return a function that takes a training step of distrain."""
    more = {"attention": [HIDDEN], "activation": "relu"} if kind == "din" else {"layers": 2}
    model = {"kind": kind, "embedding_dim": DIM, "max_length": max_length, "hidden": [HIDDEN]}
    spec = parse_spec({"data": {"train": "t"}, "model": model | more})
    made = build_model(SCHEMA, spec.model, seed=0)
    step = TrainStep(made, TrainSpec(optimizer={"kind": "adam", "lr": 0.001}), 1)
    clock = PhaseClock()
    return lambda batch: step(batch, batch.num_rows, 0.001, clock)


class CopiedAttention(nn.Module):
    """The same computation as FuxiCTR's `DIN_Attention`, for machines without FuxiCTR."""

    def __init__(self) -> None:
        super().__init__()
        self.weigh = nn.Sequential(nn.Linear(4 * DIM, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))

    def forward(self, target: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        query = target[:, None].expand_as(keys)
        pairs = torch.cat([query, keys, query - keys, query * keys], dim=2)
        weights = self.weigh(pairs)[..., 0] * mask.float()
        pooled: Tensor = (weights[..., None] * keys).sum(1)
        return pooled


class DINPeer(nn.Module):
    """FuxiCTR's attention, followed by an MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(ITEMS + 1, DIM, padding_idx=ITEMS)
        self.attention: nn.Module = CopiedAttention()
        if find_spec("fuxictr"):
            from fuxictr.pytorch.layers import DIN_Attention

            self.attention = DIN_Attention(DIM, [HIDDEN])
        self.top = nn.Sequential(nn.Linear(2 * DIM, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))

    def forward(self, item: Tensor, seen: Tensor, _: Tensor) -> Tensor:
        target = self.table(item)
        pooled = self.attention(target, self.table(seen), seen != ITEMS)
        logits: Tensor = self.top(torch.cat([target, pooled], dim=1))[:, 0]
        return logits


class SASRecPeer(nn.Module):
    """SASRec from torch's layers with padding; an MLP takes the last state and the target."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(ITEMS + 1, DIM, padding_idx=ITEMS)
        self.positions = nn.Embedding(MOST, DIM)
        layer = nn.TransformerEncoderLayer(DIM, 1, DIM, 0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, nn.LayerNorm(DIM), False)
        self.top = nn.Sequential(nn.Linear(3 * DIM, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))
        self.mask = nn.Transformer.generate_square_subsequent_mask(MOST)

    def forward(self, item: Tensor, seen: Tensor, lengths: Tensor) -> Tensor:
        target = self.table(item)
        tokens = self.table(seen) + self.positions.weight
        states = self.layers(tokens, mask=self.mask, is_causal=True)
        state = states[torch.arange(len(item)), lengths - 1]
        logits: Tensor = self.top(torch.cat([target, state, state * target], dim=1))[:, 0]
        return logits


def peer(model: nn.Module) -> Callable[[Batch], object]:
    """Return a function that takes a step of plain torch on rows padded to `MOST` events."""
    optimizer = torch.optim.Adam(model.parameters(), 0.001, fused=True)

    def step(batch: Batch) -> None:
        seen = batch.lists["seen_item"]
        assert batch.label is not None
        logits = model(batch["item"].long(), seen.padded(MOST, ITEMS).long(), seen.lengths.long())
        loss = nn.functional.binary_cross_entropy_with_logits(logits, batch.label)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def train(turns: int) -> list[dict[str, float | str]]:
    """Return the rows per CPU second of each contender, measured in turns."""
    told: list[dict[str, float | str]] = []
    contenders = {"din": DINPeer, "sasrec": SASRecPeer}
    for lengths, (kind, other) in product(("zipf", "full"), contenders.items()):
        power = 1.0 if lengths == "zipf" else -100.0  # nearly all rows have the maximum
        batches = [draw(seed, ROWS, MOST, power=power) for seed in range(8)]
        torch.manual_seed(0)
        steps = {"distrain": ours(kind), "torch": peer(other())}
        rates: dict[str, list[float]] = {name: [] for name in steps}
        for turn in range(turns + 1):
            for name, step in steps.items():
                began = time.process_time()
                for batch in batches:
                    step(batch)
                if turn:  # the first one warms up
                    rates[name].append(len(batches) * ROWS / (time.process_time() - began))
        ratio = median(a / b for a, b in zip(*rates.values(), strict=True))
        beside = "fuxictr" if kind == "din" and find_spec("fuxictr") else "torch"
        told.append(
            {"model": kind, "beside": beside, "lengths": lengths, "ratio": round(ratio, 2)}
            | {f"{name}_rows_per_cpu_s": round(median(found)) for name, found in rates.items()}
        )
    return told


def memory() -> list[dict[str, float | str]]:
    """Return the bytes per event that each model keeps for the backward pass."""
    told: list[dict[str, float | str]] = []
    for kind in ("din", "bst", "sasrec", "hstu"):
        step, per_event = ours(kind, 1000), []
        for longest in (20, 1000):
            batch = draw(0, 4096, 20, longest)
            kept: dict[int, int] = {}

            def keep(tensor: Tensor, kept: dict[int, int] = kept) -> Tensor:
                kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
                return tensor

            with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
                step(batch)
            per_event.append(sum(kept.values()) / len(batch.lists["seen_item"].values))
        few, many = map(round, per_event)
        told.append({"model": kind, "none_above_20": few, "one_of_1000": many})
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="logs of 1M and 2M, fewer turns")
    parser.add_argument("--events", type=int, nargs="+", help="lengths of the logs, in millions")
    parser.add_argument("--only", choices=("make", "train", "memory"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    result: dict[str, object] = {"goals": GOALS}
    met: dict[str, bool] = {}
    if given.only in (None, "train"):
        result["train"] = rows = train(5 if given.quick else 21)
        for kind in ("din", "sasrec"):
            ratios = [float(row["ratio"]) for row in rows if row["model"] == kind]
            met[kind] = min(ratios) >= GOALS[kind]
        print(*rows, sep="\n")
    if given.only in (None, "memory"):
        result["memory"] = rows = memory()
        growth = max(float(row["one_of_1000"]) / float(row["none_above_20"]) for row in rows)
        met["bytes_growth"] = growth <= GOALS["bytes_growth"]
        print(*rows, sep="\n")
    if given.only in (None, "make"):
        logs = []
        for millions in given.events or ([1, 2] if given.quick else [4, 16, 64]):
            with tempfile.TemporaryDirectory() as folder:
                logs.append(make(millions * 1_000_000, Path(folder)))
            print(logs[-1], flush=True)
        result["make"] = logs
        met["cpu_growth"] = logs[-1]["cpu_us"] <= GOALS["cpu_growth"] * logs[0]["cpu_us"]
        largest = [log["peak_mib"] for log in logs if log["events"] == 16_000_000]
        if largest:
            met["peak_mib_16m"] = largest[0] <= GOALS["peak_mib_16m"]
    print(json.dumps(result | {"met": met}))


if __name__ == "__main__":
    main()
