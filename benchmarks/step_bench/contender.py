"""Runs one contender in its own process. Imports nothing that a peer's Python may lack.

The benchmark starts the contenders of a comparison together, each with its tables in memory, and
then gives them turns: a line of JSON on stdin requests some steps at a batch size, and a line on
stdout returns the seconds. So contenders alternate about every second, under the same load.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from benchmarks.step_bench.counting import count_step
from benchmarks.step_bench.data import Rows, load_rows
from benchmarks.step_bench.laps import Laps

TIMEOUT = timedelta(seconds=300)


@dataclass(frozen=True)
class Setup:
    """The model of a contender, and how it is trained.

    Attributes:
        model: "mlp", "dlrm", "dcn_v2", or "path": the embeddings alone, with a given gradient.
        dim: The embeddings' width.
        kind: The tables' optimizer: "sgd", "adagrad", "rowwise_adagrad" or "adam".
        ranks: Number of processes that train together.
        device: "cpu" or "cuda".
        placement: Placement of distrain's tables, or "table_wise" for TorchRec; "" if the contender
            has no choice.
        precision: Precision of the dense layers: "fp32", "tf32" or "bf16".
        graph: Whether a step is recorded as a CUDA graph.
        triton: Whether distrain's Triton kernels are switched on.
    """

    model: str
    dim: int
    kind: str = "sgd"
    ranks: int = 1
    device: str = "cpu"
    placement: str = ""
    precision: str = "fp32"
    graph: bool = False
    triton: bool = False

    @property
    def cuda(self) -> bool:
        """Whether it runs on a GPU."""
        return self.device == "cuda"


class Contender(Protocol):
    """A model in memory that takes steps."""

    def prepare(self, batch_rows: int) -> int:
        """Make this rank's batches of that size; return their number."""

    def step(self, number: int, laps: Laps) -> None:
        """Take a training step on the prepared batch `number`."""


Open = Callable[[Setup, Rows, int], Contender]
"""Imports what the contender needs and builds it for one rank: (setup, rows, rank)."""


def serve(open_contender: Open, setup: Setup, data: Path, rank: int, meeting: Path) -> None:
    """Answer requests until stdin ends; the first line written says that the contender is ready."""
    import torch

    torch.set_num_threads(1)
    os.environ["DISTRAIN_TRITON"] = str(int(setup.triton))
    if setup.cuda:
        torch.cuda.set_device(rank)
    if setup.ranks > 1:
        join(setup, rank, meeting)
    contender = open_contender(setup, load_rows(data), rank)
    runner = Runner(contender, setup)
    answer({"ready": asdict(setup)})
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "count":
            answer(runner.count(request["batch_rows"]))
        else:
            answer(runner.turn(request["batch_rows"], request["steps"]))
    leave(setup)


def join(setup: Setup, rank: int, meeting: Path) -> None:
    """Join the other ranks' process group through a file."""
    from torch import distributed as dist

    dist.init_process_group(
        "nccl" if setup.cuda else "gloo",
        store=dist.FileStore(str(meeting), setup.ranks),
        rank=rank,
        world_size=setup.ranks,
        timeout=TIMEOUT,
    )


def leave(setup: Setup) -> None:
    """Exit the process directly: gloo sometimes aborts at interpreter exit."""
    if setup.ranks > 1:
        from torch import distributed as dist

        dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)


def answer(message: dict[str, Any]) -> None:
    """Write one line."""
    print(json.dumps(message), flush=True)


class Runner:
    """Takes and times steps."""

    def __init__(self, contender: Contender, setup: Setup):
        self.contender, self.setup = contender, setup
        self.laps = Laps(setup.cuda)
        self.batch_rows = self.num_batches = self.number = 0

    def turn(self, batch_rows: int, steps: int) -> dict[str, Any]:
        """Return seconds per step: wall time, CPU time of this process, and time by phase."""
        self.to(batch_rows)
        self.wait_for_all()
        began, cpu_began = time.perf_counter(), time.process_time()
        for _ in range(steps):
            self.step()
        cpu_s = (time.process_time() - cpu_began) / steps
        self.wait_for_all()
        step_s = (time.perf_counter() - began) / steps
        phases = {name: seconds / steps for name, seconds in self.laps.take().items()}
        return {"step_s": step_s, "cpu_s": cpu_s, "phases_s": phases}

    def count(self, batch_rows: int) -> dict[str, Any]:
        """Return the torch operations, kernels and syncs of one step."""
        self.to(batch_rows)
        self.wait_for_all()
        counts = count_step(self.step, self.setup.cuda)
        self.wait_for_all()
        self.laps.take()
        return counts

    def to(self, batch_rows: int) -> None:
        """Prepare another batch size, and take a warm-up step on each batch."""
        if batch_rows == self.batch_rows:
            return
        self.num_batches = self.contender.prepare(batch_rows)
        self.batch_rows = batch_rows
        for _ in range(self.num_batches):  # afterwards every touched row is in memory
            self.step()
        self.wait_for_all()
        self.laps.take()

    def step(self) -> None:
        """Take the next step, on the next batch."""
        self.contender.step(self.number % self.num_batches, self.laps)
        self.number += 1

    def wait_for_all(self) -> None:
        """Wait for the GPU and the other ranks."""
        if self.setup.cuda:
            import torch

            torch.cuda.synchronize()
        if self.setup.ranks > 1:
            from torch import distributed as dist

            dist.barrier()
