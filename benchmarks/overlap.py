"""Measure how much of the exchange between ranks a step hides behind its backward pass.

    python benchmarks/overlap.py [--rate-mbit 400] [--rows 8192] [--hidden 512 512 512]
                                 [--placement replicated] [--steps 20] [--quick]

Two gloo ranks with one thread each run in network namespaces, joined by a veth link whose rate
`tc tbf` caps in both directions; needs root, `ip` and `tc` of Debian's iproute2. The model is an
MLP over 26 tables of width 16, ids follow power laws. The same ranks alternate, step by step,
between:

  blocking    backward, then the exchange of dense gradients, then that of rows, one after the other
  overlapped  what distrain does: buckets of dense gradients are sent during the backward pass, as
              soon as they are complete, and the rows' gradients are sent behind them

`exchange` is the time of a step in exchanges, summing rows included, on the rank that spends less:
the rank that arrives later, so that waiting for the other rank is not counted. `hidden_pct` is by
how much it is shorter in overlapped steps than in blocking ones. Figures are medians over the
steps. `core_pct` is the share of a core that a blocking step had outside its exchanges; with half a
core a step hides more.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MODES = ("blocking", "overlapped")
COLUMNS, NUMBERS, DIM = 26, 13, 16
CARDINALITIES = [200_000 if number % 3 == 0 else 2_000 for number in range(COLUMNS)]
ADDRESSES = ("10.213.77.1", "10.213.77.2")


def main() -> None:
    options = parsed()
    if options.rank is not None:
        be_rank(options)
        return
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "tc"))):
        print("Left out: needs root, and `ip` and `tc` of Debian's iproute2.", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder, cable(options.rate_mbit) as wrappers:
        words = [sys.executable, __file__, *sys.argv[1:], "--folder", folder]
        environment = os.environ | {
            "GLOO_SOCKET_IFNAME": "eth0",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(Path(__file__).resolve().parents[1]),
        }
        ranks = [
            subprocess.Popen([*wrapper, *words, "--rank", str(rank)], env=environment)
            for rank, wrapper in enumerate(wrappers)
        ]
        try:
            failed = [rank for rank, process in enumerate(ranks) if process.wait(600)]
        finally:
            for process in ranks:
                process.kill()
                process.wait()
        if failed:
            sys.exit(f"ranks {failed} failed")
        told = [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(2)]
    asked = ("rate_mbit", "rows", "hidden", "placement", "steps")
    about = {name: getattr(options, name) for name in asked}
    print(json.dumps({"benchmark": "overlap", **about, **figures(told)}))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate-mbit", type=int, default=400, help="rate of the link, each way")
    parser.add_argument("--rows", type=int, default=8192, help="rows of each rank's batch")
    parser.add_argument("--hidden", type=int, nargs="+", default=[512, 512, 512])
    parser.add_argument("--placement", default="replicated", choices=["replicated", "row_wise"])
    parser.add_argument("--steps", type=int, default=20, help="steps of each kind")
    parser.add_argument("--quick", action="store_true", help="4 steps of each kind")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.steps = 4 if options.quick else options.steps
    return options


@contextmanager
def cable(rate_mbit: int) -> Iterator[list[list[str]]]:
    """Yield the command prefixes that run a command in each of two linked network namespaces."""
    names = [f"distrain-cable-{os.getpid()}-{end}" for end in "ab"]
    try:
        for name in names:
            run("ip", "netns", "add", name)
        first, second = ({"netns": name, "name": "eth0"} for name in names)
        run(
            *("ip", "link", "add", "name", first["name"], "netns", first["netns"]),
            *("type", "veth", "peer", "name", second["name"], "netns", second["netns"]),
        )
        for name, address in zip(names, ADDRESSES, strict=True):
            run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", name, "link", "set", "eth0", "up")
            rate = ("rate", f"{rate_mbit}mbit", "burst", "256kb", "latency", "200ms")
            run("tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", *rate)
        yield [["ip", "netns", "exec", name] for name in names]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def run(*words: str) -> None:
    subprocess.run(words, check=True)


def figures(told: list[dict[str, list[float]]]) -> dict[str, Any]:
    """Return medians over the steps."""
    made = {}
    for mode in MODES:
        step_s = statistics.median(max(pair) for pair in both(told, f"{mode} step"))
        exchange_s = statistics.median(min(pair) for pair in both(told, f"{mode} exchange"))
        made[f"{mode}_step_ms"] = round(1e3 * step_s, 1)
        made[f"{mode}_exchange_ms"] = round(1e3 * exchange_s, 1)
    alone = (
        cpu_s / (step_s - exchange_s)
        for rank in told
        for step_s, exchange_s, cpu_s in zip(
            rank["blocking step"], rank["blocking exchange"], rank["blocking cpu"], strict=True
        )
    )
    made["core_pct"] = round(100 * statistics.median(alone), 1)
    shown = made["overlapped_exchange_ms"] / made["blocking_exchange_ms"]
    return {**made, "hidden_pct": round(100 * (1 - shown), 1)}


def both(told: list[dict[str, list[float]]], name: str) -> Iterator[tuple[float, ...]]:
    return zip(*(rank[name] for rank in told), strict=True)


def be_rank(options: argparse.Namespace) -> None:
    """Run one rank: train, and write the measured times."""
    import torch
    from torch import distributed as dist

    torch.set_num_threads(1)
    store = dist.FileStore(str(options.folder / "store"), 2)
    dist.init_process_group("gloo", store=store, rank=options.rank, world_size=2)
    step, batches = make(options)
    waits = Waits(step)
    kinds = ("step", "exchange", "cpu")
    told: dict[str, list[float]] = {f"{mode} {kind}": [] for mode in MODES for kind in kinds}
    for number in range(2 * options.steps + 4):
        mode = MODES[number % 2]
        batch = batches[number // 2 % len(batches)]
        route = step.model.embeddings.route(batch.categorical)
        waits.begin(mode)
        dist.barrier()
        began_s, began_cpu_s = time.perf_counter(), time.thread_time()
        step(batch, 2 * options.rows, 0.01, waits.clock, route)
        if number >= 4:
            told[f"{mode} step"].append(time.perf_counter() - began_s)
            told[f"{mode} cpu"].append(time.thread_time() - began_cpu_s)
            told[f"{mode} exchange"].append(waits.exchange_s)
    path = options.folder / f"{options.rank}.json"
    path.write_text(json.dumps(told))
    dist.barrier()
    os._exit(0)  # gloo's threads sometimes abort during a normal exit


class Waits:
    """Makes a step wait for each exchange at once, or not; adds up the time of the exchanges."""

    def __init__(self, step: Any):
        from distrain.train.timing.phases import PhaseClock

        self.clock = PhaseClock()
        self.exchange_s = 0.0
        self._dense, tables = step.dense, step.model.embeddings
        self._blocks = False
        self._start_sync, self._begin_exchange = self._dense.start_sync, tables.begin_exchange
        self._finish_sync = self._dense.finish_sync
        self._begin_slice = self._dense.begin_slice
        self._dense.begin_slice = self.begin_slice
        self._dense.start_sync, tables.begin_exchange = self.start_sync, self.begin_exchange
        self._dense.finish_sync = lambda: self.timed(self._finish_sync)

    def begin(self, mode: str) -> None:
        """Begin a step of one of `MODES`."""
        self._blocks = mode == "blocking"
        self.exchange_s = 0.0

    def timed(self, call: Callable[[], Any]) -> Any:
        """Call, and add the time to that of the exchanges."""
        began_s = time.perf_counter()
        result = call()
        self.exchange_s += time.perf_counter() - began_s
        return result

    def begin_slice(self, last: bool) -> None:
        """Replaces the dense layers' `begin_slice`, which lets backward begin the exchange."""
        if not self._blocks:
            self._begin_slice(last)

    def start_sync(self) -> None:
        """Replaces the dense layers' `start_sync`."""
        self.timed(self._start_sync)
        if self._blocks:
            self.timed(self._finish_sync)

    def begin_exchange(self, route: Any, sums: Any) -> Callable[[], Any]:
        """Replaces the tables' `begin_exchange`."""
        finish = self.timed(lambda: self._begin_exchange(route, sums))
        if not self._blocks:
            return lambda: self.timed(finish)
        touched = self.timed(finish)
        return lambda: touched


def make(options: argparse.Namespace) -> tuple[Any, list[Any]]:
    """Return a training step, and a few batches."""
    import torch

    from distrain.jobs.spec import MlpSpec, TrainSpec
    from distrain.loader.batch import Batch
    from distrain.models import build_model
    from distrain.models.embeddings import EmbeddingCollection, Peers
    from distrain.schema import ColumnSchema, Schema, Tags
    from distrain.train.step.step import TrainStep

    names = tuple(f"C{i}" for i in range(COLUMNS))
    numbers = tuple(f"I{i}" for i in range(NUMBERS))
    schema = Schema(
        tuple(
            ColumnSchema(name, "int32", (Tags.CATEGORICAL,), cardinality=rows)
            for name, rows in zip(names, CARDINALITIES, strict=True)
        )
        + tuple(ColumnSchema(name, "float32", (Tags.CONTINUOUS,)) for name in numbers)
    )
    model = build_model(
        schema,
        MlpSpec(kind="mlp", embedding_dim=DIM, hidden=options.hidden),
        seed=1,
        make_tables=lambda columns, *, generator: EmbeddingCollection(
            columns,
            placements=[options.placement] * len(columns),
            peers=Peers(options.rank, 2),
            generator=generator,
        ),
    )
    train = TrainSpec.model_validate({"optimizer": {"kind": "sgd"}})
    draw = torch.Generator().manual_seed(options.rank)
    sizes = torch.tensor(CARDINALITIES).float()
    batches = []
    for _ in range(4):
        ids = sizes ** torch.rand(options.rows, COLUMNS, generator=draw) - 1
        values = torch.randn(options.rows, NUMBERS, generator=draw)
        labels = torch.randint(0, 2, (options.rows,), generator=draw).float()
        batches.append(Batch(ids.int().clamp(min=0), values, labels, names, numbers))
    return TrainStep(model, train, 2), batches


if __name__ == "__main__":
    main()
