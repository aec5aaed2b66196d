"""What does a training step cost, beside what it must cost and what it costs others?

    python benchmarks/step.py [--quick] [--torchrec PYTHON] [--json-lines FILE] [--plot FILE.png]
                              [--only REGEX] [--ranks N] [--mbit 0 100 400]
    python benchmarks/step.py --fuxictr PYTHON [--quick] [--only REGEX]

Batches lie ready in memory (on the GPU, where there is one): Criteo's shape, 26 ids by Zipf laws
over the cardinalities of the NVTabular notebooks, 45.9M rows together, 13 values, a label. Where
the tables of a comparison do not fit into 60 % of the free memory together, long ones are scaled
down, in the quick form to a quarter; the table says to how many rows.

Comparisons, each with its contenders alive side by side, taking turns of about half a second:

  embeddings        the embeddings alone at batch 64k, dim 16: ids to a `[rows, 26, dim]` (or
                    `[rows, 26 * dim]`) of values, a given gradient of that back to updated rows
  MLP 16, peers     the whole step: one rank at batch 64k; two gloo ranks, with `--ranks 4` also
                    four, at 8k rows each; with `--mbit` each rank in a network namespace of its own
                    whose card sends so many Mbit/s and no faster (0: as fast as it can)
  small and large   the whole step, and the embeddings alone, with tables of 1M rows and of 46M
  tables            whose batches touch equally many distinct rows, spread over all of the table
  MLP/DLRM DIM      distrain's whole step by batch, width and ranks, with the presets' optimizers;
                    on a GPU also DCN_V2, batches of 400k, and every way of computing: tf32, bf16,
                    compiled, as a CUDA graph, with kernels in Triton (at width 16 all of them)

Contenders:

  distrain          `EmbeddingCollection` and `SparseOptimizer`; the whole step is `TrainStep`
  26 nn.Embedding   a table per column with `sparse=True`, SGD or SparseAdam, dense part with the
                    fused optimizer; on ranks under DDP
  fbgemm            table-batched embedding with its fused optimizer, bounds checks off
  TorchRec          table-wise, tables dealt to the ranks in turn, or row-wise, each table cut among
                    all; fused optimizer, dense part under its own DDP

Peers' glibc is told to ask for huge pages (GLIBC_TUNABLES=glibc.malloc.hugetlb=1), which makes
their tables about twice as fast; lines "small pages" show them without, as most people run them.
distrain asks for its own tables' pages itself.

`--fuxictr` names a Python that has FuxiCTR and what distrain needs. Nothing else is measured then
but whole steps of DCN-v2, DeepFM and DIN beside FuxiCTR's (`step_bench/fuxictr.py` says how).

fbgemm and TorchRec run where `--torchrec` names a Python that has them (docs/benchmarks.md says how
to make one), `--mbit` wants root, `ip` and `tc`. Every process has one thread and the allocator
settings that distrain gives its ranks. On a CPU "of roofline" is the least time for the counted
bytes or products (whichever takes longer), at the copy and product rates measured in the same
rounds, over the measured time (`step_bench/roofline.py` has the rules); "ops" are torch operations
that one step dispatches, views included; kernels launched and host syncs, of the training thread,
exist on a GPU only. "CPU ms" is CPU time of a step, to see what others on the machine took. Figures
are medians over the rounds; ratios are taken round by round, and then their median. A contender
that fails is left out, and named under "failed"; the exit code is then 1.
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
                if options.json_lines:  # by batch size: a run that is stopped keeps what it has
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
    parser.add_argument("--only", metavar="REGEX", default="", help="comparisons that match")
    parser.add_argument("--ranks", type=int, help="at most so many (default: 2, or all GPUs)")
    parser.add_argument(
        "--mbit", type=int, nargs="+", default=[], help="links between ranks send so much; 0: all"
    )
    parser.add_argument("--entry", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--meeting", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def beside_fuxictr(options: argparse.Namespace) -> int:
    """The exit code of `step_bench/fuxictr.py` in that Python."""
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
    """Those that match, without contenders that have no Python."""
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
    """All batch sizes of a comparison; prints its part of the table."""
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
            # Anew for each rate: `auto` measures the links when it starts.
            with running(comparison.entries, pythons, folders, links) as contenders:
                yield from by_batch(comparison, mbit, contenders, data, folders)


def by_batch(
    comparison: Comparison,
    mbit: int,
    contenders: list[Ranks],
    data: Data,
    folders: dict[str, Path],
) -> "Iterator[tuple[list[Measured], list[Record]]]":
    """All batch sizes of a comparison on links of one rate."""
    longest_s = 0.0
    for batch_rows in comparison.batches:
        if len(contenders) < 2:  # what measures the machine is one
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
    """The last line: every figure with its goal."""
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
