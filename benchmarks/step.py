"""Measure a training step, compared with the machine's roofline and with other libraries.

    python benchmarks/step.py [--quick] [--torchrec PYTHON] [--json-lines FILE] [--plot FILE.png]
                              [--only REGEX] [--ranks N] [--mbit 0 100 400]
    python benchmarks/step.py --fuxictr PYTHON [--quick] [--only REGEX]

Batches are ready in memory (on the GPU, if there is one) and have Criteo's shape: 26 ids by Zipf
laws over the cardinalities of the NVTabular notebooks, 45.9M table rows in total, 13 values, a
label. If the tables of all contenders of a comparison do not fit into 60 % of the free memory, long
tables are scaled down, with `--quick` to a quarter; the table of results states the number of rows.

In a comparison all contenders are running processes that take turns of about half a second:

  embeddings        the embeddings alone at batch 64k, dim 16: from ids to `[rows, 26, dim]` (or
                    `[rows, 26 * dim]`) values, and from a given gradient of those to updated rows
  MLP 16, peers     the whole step: one rank at batch 64k; two gloo ranks, with `--ranks 4` also
                    four, at 8k rows each; with `--mbit` each rank runs in its own network namespace
                    whose sending rate is capped at that many Mbit/s (0: no cap)
  small and large   the whole step, and the embeddings alone, with tables of 1M rows and of 46M
  tables            rows whose batches touch equally many distinct rows, spread over the whole table
  MLP/DLRM DIM      distrain's whole step by batch, width and ranks, with the presets' optimizers;
                    on a GPU also DCN_V2, batches of 400k, and all modes: tf32, bf16, CUDA
                    graph, Triton kernels (all of them only at width 16)

Contenders:

  distrain          `EmbeddingCollection` and `SparseOptimizer`; the whole step is `TrainStep`
  26 nn.Embedding   a table per column with `sparse=True`, SGD or SparseAdam, dense layers with the
                    fused optimizer; with several ranks under DDP
  fbgemm            table-batched embedding with its fused optimizer, bounds checks off
  TorchRec          table-wise, tables assigned to the ranks in turn, or row-wise, each table split
                    over all ranks; fused optimizer, dense layers under their own DDP

The peers run with huge pages from glibc (GLIBC_TUNABLES=glibc.malloc.hugetlb=1), which makes their
tables about twice as fast; the lines "small pages" are without them, glibc's default. distrain
requests huge pages for its own tables.

`--fuxictr` names a Python that has FuxiCTR and distrain's dependencies. Then only whole steps of
DCN-v2, DeepFM and DIN are measured, against FuxiCTR's (see `step_bench/fuxictr.py`).

fbgemm and TorchRec run only if `--torchrec` names a Python that has them (docs/benchmarks.md says
how to make one). `--mbit` needs root, `ip` and `tc`. Every process has one thread and the allocator
settings of distrain's ranks. On a CPU "of roofline" is the minimum time of a step, divided by the
measured time. The minimum is the longer of two: the time of the counted bytes and that of the
counted products, at the copy and product rates measured in the same rounds (see
`step_bench/roofline.py` for the rules). "ops" are the torch operations that one step dispatches,
views included. Launched kernels, and host syncs of the training thread, exist only on a GPU. "CPU
ms" is the CPU time of a step, which shows how much other processes disturbed it. Figures are
medians over the rounds; a ratio is the median of the rounds' ratios. A contender that fails is left
out and listed under "failed"; the exit code is then 1.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

if __name__ == "__main__":  # modules are found from the repository's root, not from this folder
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.step_bench.cases import FBGEMM, OPEN, TORCHREC, Comparison, comparisons
from benchmarks.step_bench.contender import Setup, serve
from benchmarks.step_bench.goals import figures
from benchmarks.step_bench.links import linked
from benchmarks.step_bench.resident import Data, chosen_scale
from benchmarks.step_bench.result import (
    Record,
    draw,
    print_heads,
    print_records,
    records_of,
    rounded,
)
from benchmarks.step_bench.turns import Measured, Ranks, measure, running


def main() -> None:
    options = parsed()
    if options.entry:
        setup = Setup(**options.entry["setup"])
        opened = OPEN[options.entry["who"]](setup)
        serve(opened, setup, options.data, options.rank, options.meeting)
        return
    if options.fuxictr:
        sys.exit(beside_fuxictr(options))
    began = time.perf_counter()
    device, ranks = device_and_ranks(options.ranks)
    results: list[Measured] = []
    records: list[Record] = []
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        data = Data(Path(folder), options.quick)
        for comparison in chosen(device, ranks, options):
            for measured, told in run(comparison, data, options):
                results += measured
                records += told
                if (
                    options.json_lines
                ):  # after each batch size, so that a stopped run keeps its results
                    lines = "".join(json.dumps(record) + "\n" for record in records)
                    options.json_lines.write_text(lines)
                ran = [each.entry.name for each in measured]
                lost = [entry.name for entry in comparison.entries if entry.name not in ran]
                failed += [f"{comparison.name}: {name}" for name in lost]
    if options.plot:
        draw(records, options.plot)
    failed = list(dict.fromkeys(failed))
    last = summary(results, device, time.perf_counter() - began)
    print(json.dumps(last | {"failed": failed, "met": last["met"] and not failed}))
    sys.exit(1 if failed else 0)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows, rounds, comparisons")
    parser.add_argument("--torchrec", metavar="PYTHON", help="a Python that has fbgemm, TorchRec")
    parser.add_argument("--fuxictr", metavar="PYTHON", help="a Python that has FuxiCTR")
    parser.add_argument("--json-lines", metavar="FILE", type=Path, help="write all figures")
    parser.add_argument("--plot", metavar="FILE.png", type=Path, help="draw rows/s")
    parser.add_argument(
        "--only", metavar="REGEX", default="", help="run the comparisons whose names match"
    )
    parser.add_argument(
        "--ranks", type=int, help="largest number of ranks (default: 2, or all GPUs)"
    )
    parser.add_argument(
        "--mbit", type=int, nargs="+", default=[], help="caps of the links between ranks; 0: no cap"
    )
    parser.add_argument("--entry", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--meeting", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def beside_fuxictr(options: argparse.Namespace) -> int:
    """Run `step_bench/fuxictr.py` in the given Python; return its exit code."""
    from distrain.workers.rank_process import ALLOCATOR

    root = Path(__file__).resolve().parents[1]
    one = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    words = ["-m", "benchmarks.step_bench.fuxictr", "3" if options.quick else "9", options.only]
    environment = os.environ | ALLOCATOR | one
    return subprocess.run([options.fuxictr, *words], env=environment, check=False).returncode


def device_and_ranks(most: int | None) -> tuple[str, int]:
    import torch

    if torch.cuda.is_available():
        return "cuda", min(most or torch.cuda.device_count(), torch.cuda.device_count())
    return "cpu", most or 2


def chosen(device: str, ranks: int, options: argparse.Namespace) -> list[Comparison]:
    """Return the comparisons that match, without contenders whose Python is not given."""
    made = []
    for comparison in comparisons(device, ranks, options.quick, tuple(options.mbit)):
        if not re.search(options.only, comparison.name):
            continue
        entries = []
        for entry in comparison.entries:
            if entry.who in (FBGEMM, TORCHREC) and not options.torchrec:
                print(f"Left out: {entry.name} (no --torchrec PYTHON).", file=sys.stderr)
            else:
                entries.append(entry)
        if len(entries) > 1:
            made.append(comparison.of(entries))
    return made


def run(
    comparison: Comparison, data: Data, options: argparse.Namespace
) -> "Iterator[tuple[list[Measured], list[Record]]]":
    """Measure all batch sizes of a comparison, and print its part of the table."""
    scale = chosen_scale(comparison, options.quick)
    folders = data.folders(comparison, scale)
    tables = max(data.facts(folder, 1, 1)["table_rows"] for folder in folders.values())
    print(f"{comparison.name}: tables of {tables:,} rows")
    print_heads()
    pythons = {FBGEMM: options.torchrec, TORCHREC: options.torchrec}
    with linked(comparison) as links:
        for mbit in comparison.mbits or (0,):
            links.cap(mbit)
            if comparison.mbits:
                print(f"  links of {mbit} Mbit/s" if mbit else "  links without a limit")
            # Started again for each rate, because `auto` measures the links when it starts.
            with running(comparison.entries, pythons, folders, links) as contenders:
                yield from by_batch(comparison, mbit, contenders, data, folders)


def by_batch(
    comparison: Comparison,
    mbit: int,
    contenders: list[Ranks],
    data: Data,
    folders: dict[str, Path],
) -> "Iterator[tuple[list[Measured], list[Record]]]":
    """Measure all batch sizes of a comparison on links of one rate."""
    longest_s = 0.0
    for batch_rows in comparison.batches:
        if len(contenders) < 2:  # one of them measures the machine
            return
        why_not = data.too_large(comparison, batch_rows, longest_s)
        if why_not:
            print(f"  Left out: {batch_rows:,} rows ({why_not}).")
            break
        measured = measure(comparison.at(mbit), batch_rows, contenders, data.rounds)
        facts = {
            kind: data.facts(folder, batch_rows, comparison.ranks)
            for kind, folder in folders.items()
        }
        records = [record | {"mbit": mbit} for record in records_of(measured, facts)]
        print_records(records)
        yield measured, records
        longest_s = max(max(each.step_s) for each in measured) / batch_rows


def summary(results: list[Measured], device: str, total_s: float) -> dict[str, object]:
    """Return the last line: every figure with its goal."""
    made = {name: asdict(figure) for name, figure in figures(results, device == "cuda").items()}
    goals = [figure for figure in made.values() if figure["goal"] is not None]
    return {
        "benchmark": "step",
        "device": device,
        "figures": {name: rounded(figure) for name, figure in made.items()},
        "missing": [n for n, f in made.items() if f["goal"] is not None and f["value"] is None],
        "missed": [n for n, f in made.items() if f["met"] is False and f["value"] is not None],
        "met": all(figure["met"] for figure in goals),
        "total_s": round(total_s, 1),
    }


if __name__ == "__main__":
    main()
