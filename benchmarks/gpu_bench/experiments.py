"""Measure possible improvements on a GPU against the code as it is.

An experiment is deleted once its figures have decided the question.

    python benchmarks/gpu_bench/experiments.py NAME [--small]

  branches  a recorded step with its second stream, and with all kernels in one stream
  pieces    parts of a step: activation in the product, casts, SGD, warps of the tables' kernels
  ranks     the tables' part of a step of 1 to 8 ranks; transfers are copies within the GPU's memory
  straight  raw row groups to the GPU: one read, one copy and one kernel for each
  loader    the loader in one process with many threads, and in several processes

The last line is JSON with all figures. `--small` is for rehearsals on a CPU.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":  # modules are found from the repository's root, not from this folder
    sys.path[0] = str(ROOT)

COLUMNS, DIM = 26, 16
TURNS = 5


def main() -> None:
    """Run one experiment and print its figures."""
    name, *options = sys.argv[1:]
    if name == "one-loader":
        print(json.dumps(one_loader(*options)))
        return
    small = "--small" in options
    if small:
        torch.set_num_threads(1)
    figures = {}
    experiment: Callable[[str, int], Figures] = globals()[name]
    for figure, value in experiment("cpu" if small else "cuda", 256 if small else 65_536):
        print(f"{figure}: {value:,.4g}", flush=True)
        figures[figure] = value
    print(json.dumps({"benchmark": "experiments", "figures": figures}))


Figures = Iterator[tuple[str, float]]


def branches(device: str, rows: int) -> Figures:
    """Yield milliseconds of recorded steps, which also count their rows."""
    from distrain.models.embeddings.branch import Branch

    for model, kind in (("mlp", "sgd"), ("dlrm", "adagrad")):
        yield f"{model}, bf16, two streams, ms", step_ms(device, rows, model, kind, graph=True)
        beside = patch.object(Branch, "on_side_stream", lambda self: nullcontext())
        with beside, patch.object(Branch, "join", lambda self: None):
            yield f"{model}, bf16, one stream, ms", step_ms(device, rows, model, kind, graph=True)


def step_ms(device: str, rows: int, model: str, kind: str, *, graph: bool = False) -> float:
    """Return the median milliseconds of a step on batches in memory."""
    from benchmarks.step_bench import ours
    from benchmarks.step_bench.contender import Runner, Setup
    from benchmarks.step_bench.data import load_rows, write_rows
    from distrain.train.step.device_metrics import DeviceTargets

    on_gpu = device == "cuda"
    precision = "bf16" if graph else "fp32"
    setup = Setup(model, DIM, kind, 1, device, "replicated", precision, graph=graph and on_gpu)
    with tempfile.TemporaryDirectory() as folder:
        write_rows(Path(folder) / "rows", 8 * rows, 1.0 if on_gpu else 0.001)
        whole = ours.Whole(setup, load_rows(Path(folder) / "rows"), 0)
        if setup.graph:
            prepare, targets = whole.prepare, whole.model.task.targets

            def counting(batch_rows: int) -> int:
                made = prepare(batch_rows)
                whole.train.count_by(DeviceTargets(targets, torch.device(device)).update)
                return made

            whole.prepare = counting  # type: ignore[method-assign]
        runner = Runner(whole, setup)
        steps = max(2, min(400, round(0.3 / runner.turn(rows, 5)["step_s"])))
        times: list[float] = [runner.turn(rows, steps)["step_s"] for _ in range(TURNS)]
        whole.routed.close()
        if setup.graph:
            whole.train.release()
    return 1e3 * statistics.median(times)


def pieces(device: str, rows: int) -> Figures:
    """Yield milliseconds of parts of a step."""
    x, w = (torch.randn(n, 128, device=device, dtype=torch.bfloat16) for n in (rows, 128))
    b, grad, y = w[0].clone(), torch.randn_like(x), torch.randn_like(x).relu_()
    yield from timed(
        device,
        {
            "ReLU after the product": lambda: torch.nn.functional.linear(x, w, b).relu_(),
            "ReLU in the product": lambda: torch._addmm_activation(b, x, w.t(), use_gelu=False),
            "gradient of ReLU": lambda: torch.ops.aten.threshold_backward(grad, y, 0),
            "last layer's gradient by a product": lambda: grad[:, :1] @ w[:1],
            "last layer's gradient by element": lambda: grad[:, :1] * w[:1],
        },
    )
    vector = torch.nn.Parameter(torch.randn(90_000, device=device))
    slope = torch.randn(90_000, device=device)
    vector.grad = slope
    rate = torch.full((), 0.01, device=device)
    sgd = torch.optim.SGD([vector], lr=rate if device == "cuda" else 0.01, fused=True)
    parts = [torch.randn(128, 70, device=device) for _ in range(10)]
    with torch.no_grad():
        yield from timed(
            device,
            {
                "SGD, fused": sgd.step,
                "SGD, one operation": lambda: vector.addcmul_(slope, rate, value=-1),
                "ten casts": lambda: [part.bfloat16() for part in parts],
                "one cast": vector.bfloat16,
            },
        )
    if device == "cuda":
        keys = random_keys(device, rows)
        for warps in (1, 2, 4):
            yield f"sums and updates, tiles of {warps} warps, ms", updates_ms(rows, keys, warps)


def random_keys(device: str, rows: int) -> torch.Tensor:
    """Return keys of a batch, `[COLUMNS * rows]`, int32; few are frequent."""
    drawn = (torch.rand(COLUMNS, rows, device=device).pow(6) * 1_700_000).int()
    starts = torch.arange(COLUMNS, device=device, dtype=torch.int32)[:, None] * 1_700_000
    return (drawn + starts).reshape(-1)


def updates_ms(rows: int, keys: torch.Tensor, warps: int) -> float:
    """Return milliseconds of summing gradients and updating rows, for tiles of `warps` warps."""
    from distrain.models.embeddings.kernels import triton_programs
    from distrain.models.embeddings.kernels.fixed_shape import (
        segments_of,
        sources_of,
        sum_and_update,
    )
    from distrain.models.embeddings.kernels.segments import RowRule, StepRates

    program = triton_programs.sum_tiles

    class WithWarps:
        def __getitem__(self, grid: Any) -> Callable[..., Any]:
            return lambda *given, **named: program[grid](*given, **named, num_warps=warps)

    weight = torch.zeros(COLUMNS * 1_700_000, DIM, device="cuda")
    own = segments_of(keys, len(keys), len(weight))
    sources = sources_of(own.order, rows, torch.arange(COLUMNS, device="cuda"), COLUMNS)
    grads = torch.randn(rows * COLUMNS, DIM, device="cuda", dtype=torch.bfloat16)
    rate = torch.full((), 0.01, dtype=torch.float64, device="cuda")
    rates = StepRates(rate, torch.ones_like(rate), rate.long())
    rule = RowRule("sgd")
    with patch.object(triton_programs, "sum_tiles", WithWarps()):
        return device_ms(
            lambda: sum_and_update(rule, weight, (), grads, sources, own, rates), "cuda"
        )


def ranks(device: str, rows: int) -> Figures:
    """Yield milliseconds of route, lookup and update on one of several ranks."""
    from distrain.models.embeddings import EmbeddingCollection, Peers, SparseOptimizer, TableColumn
    from distrain.models.embeddings.fixed_shape import FixedTables
    from distrain.prep.synthetic.draw import CATEGORIES

    class Alone(Peers):
        """Simulates ranks that all send the same values as this one."""

        def _all_gather(self, rows: torch.Tensor) -> torch.Tensor:
            return rows.unsqueeze(0).expand(self.num_ranks, *rows.shape).contiguous()

        def _all_to_all(
            self, received: Any, rows: Any, receive: Any = None, send: Any = None
        ) -> None:
            own = rows[: send[0]].repeat(self.num_ranks + 1, *[1] * (rows.dim() - 1))
            received.copy_(own[: len(received)])

    counts = [one.cardinality(1.0 if device == "cuda" else 0.01) + 2 for one in CATEGORIES]
    columns = [TableColumn(f"C{n}", count, DIM) for n, count in enumerate(counts)]
    drawn = torch.rand(len(counts), rows, device=device).pow(6)
    ids = (drawn * torch.tensor(counts, device=device)[:, None]).int().T
    grads = [torch.randn(rows, len(counts), DIM, device=device)]
    rate = torch.full((), 0.01, dtype=torch.float64, device=device)
    for placement in ("replicated", "row_wise"):
        for number in (1, 2, 4, 8):
            tables = EmbeddingCollection(
                columns,
                placements=[placement] * len(columns),
                peers=Alone(0, number),
                device=torch.device(device),
            )
            fixed = FixedTables(tables, SparseOptimizer(tables, "sgd"), rows)
            if fixed.needs_requests:  # these ids are more diverse than the planned capacity expects
                fixed.raise_capacity(fixed.request_rows(ids)[0].tolist())

            def step(fixed: FixedTables = fixed) -> None:
                padded = (
                    fixed.routes_of(fixed.request_rows(ids)[1:])
                    if fixed.needs_requests
                    else fixed.routes_of(())
                )
                route = fixed.route(ids, padded)
                fixed.lookup(route)
                fixed.begin_step()
                fixed.update(route, grads, rate)

            yield f"{placement}, a rank of {number}, ms", device_ms(step, device)


def straight(device: str, rows: int) -> Figures:
    """Yield rows/s of raw row groups of 40 columns, whose rows one kernel shuffles."""
    from concurrent.futures import ThreadPoolExecutor

    group_bytes, groups = 4 * 40 * rows, 64
    order = torch.randperm(rows, device=device)

    def move(file: Any, own: range) -> None:
        stream = torch.cuda.Stream() if device == "cuda" else None
        locked = [
            torch.empty(group_bytes, dtype=torch.uint8, pin_memory=stream is not None)
            for _ in range(2)
        ]
        event: Any = None
        for number in own:
            slab = locked[number % 2]
            if event is not None:
                event.synchronize()
            memory: Any = slab.numpy()
            os.preadv(file.fileno(), [memory], number * group_bytes)
            beside: Any = torch.cuda.stream(stream) if stream else nullcontext()
            with beside:
                columns = slab.to(device, non_blocking=True).view(torch.int32).view(40, rows)
                columns.index_select(1, order)
                event = stream.record_event() if stream else None

    with tempfile.TemporaryFile() as file:
        for _ in range(groups):
            file.write(os.urandom(group_bytes))
        file.flush()
        for threads in (1, 2, 4):
            with ThreadPoolExecutor(threads) as pool:
                began = time.perf_counter()
                parts = [range(n, groups, threads) for n in range(threads)]
                list(pool.map(move, [file] * threads, parts))
                if device == "cuda":
                    torch.cuda.synchronize()
            took_s = time.perf_counter() - began
            yield f"straight, {threads} threads, rows/s", groups * rows / took_s


def loader(device: str, rows: int) -> Figures:
    """Yield rows/s of whole epochs; processes side by side do not share Python's lock."""
    from benchmarks.end_to_end_bench.rows import make_rows

    cases = ((1, 13), (2, 6), (4, 3)) if device == "cuda" else ((2, 1),)
    with tempfile.TemporaryDirectory() as folder:
        make_rows(Path(folder), 96 * rows, rows, 1.0 if device == "cuda" else 0.01)
        for processes, threads in cases:
            command = [sys.executable, __file__, "one-loader", folder, device, str(rows)]
            at = str(time.time() + (10.0 if device == "cuda" else 4.0))
            begun = [
                subprocess.Popen(
                    [*command, str(threads), str(rank), str(processes), at],
                    stdout=subprocess.PIPE,
                    text=True,
                )
                for rank in range(processes)
            ]
            told = [json.loads(one.communicate()[0].splitlines()[-1]) for one in begun]
            wall_s = max(one["end"] for one in told) - min(one["begin"] for one in told)
            rate = sum(one["rows"] for one in told) / wall_s
            yield f"loader, {processes} x {threads} threads, rows/s", rate


def one_loader(
    folder: str, device: str, rows: str, threads: str, rank: str, num_ranks: str, at: str
) -> dict[str, float]:
    """Read two epochs of a rank's rows after a first one; they begin at the time `at`."""
    from distrain.loader import Dataset, Loader

    dataset = Dataset(f"{folder}/train", f"{folder}/schema.pbtxt")
    with Loader(
        dataset,
        device=device if device == "cuda" else None,
        batch_size=int(rows),
        rank=int(rank),
        num_ranks=int(num_ranks),
        decode_threads=int(threads),
    ) as loaded:
        steps = loaded.num_steps
        for _ in loaded.in_turn(range(steps)):
            pass
        time.sleep(max(0.0, float(at) - time.time()))
        begin = time.time()
        count = sum(batch.num_rows for batch in loaded.in_turn(range(steps, 3 * steps)))
        if device == "cuda":
            torch.cuda.synchronize()
    return {"rows": count, "begin": begin, "end": time.time()}


def timed(device: str, calls: dict[str, Callable[[], Any]]) -> Figures:
    """Yield milliseconds of each call."""
    for name, call in calls.items():
        yield f"{name}, ms", device_ms(call, device)


def device_ms(call: Callable[[], Any], device: str, calls: int = 5) -> float:
    """Return a call's milliseconds, on a GPU in a graph of several, without launches."""
    if device != "cuda":
        return min(wall_ms(call, device) for _ in range(2))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    return statistics.median(wall_ms(graph.replay, device) for _ in range(TURNS)) / calls


def wall_ms(call: Callable[[], Any], device: str) -> float:
    """Return milliseconds from an idle device until it is idle again."""
    if device == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - began)


if __name__ == "__main__":
    main()
