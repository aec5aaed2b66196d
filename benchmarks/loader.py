"""How fast does the loader go, beside what it could reach and what others reach?

    python benchmarks/loader.py [--quick] [--merlin PYTHON] [--hf PYTHON] [--plot FILE.png]

Contenders read the same Criteo-shaped rows (26 id columns, 13 float32 columns, a label) in batches
of 65,536, each in a process of its own, in turns; every batch's memory is touched. The layouts:

  ordinary       as pyarrow writes by default: nullable, snappy, dictionaries; ids are int32
  prep           as `distrain prep` writes: required, LZ4, dictionaries, page checksums
  int64          `ordinary` with ids of 64 bits, as pandas leaves them
  250k, 1m       `ordinary` in one file with row groups of so many rows (of all others: 65,536)
  files          `ordinary` in 2,000 files
  wide           `ordinary` with 80 columns more, which nobody reads
  lists          `ordinary` with lists of up to six ids in four columns
  days           `ordinary` in two days, which are windows
  cache          `ordinary` by way of a cache that `distrain pack` filled
  anew           `ordinary` by a new loader for each pass, whose batches' memory is fresh
  filling        the same, while each pass fills an empty cache; its "floor" is `anew`

Contenders (1t, 2t: with 1 or 2 decoding threads):

  memcpy         one thread copies as many bytes from block to block
  floor          Arrow decodes the wanted columns of all row groups and drops them: no loader that
                 decodes with Arrow is faster; for `cache` bytes are read and dropped
  distrain       `distrain.loader.Loader` with its checks, shuffled by chunks, or "in order", or
                 with a "full shuffle"
  torch, iterable   an `IterableDataset` over pyarrow's batches in 2 worker processes
  torch, batched    `DataLoader` over rows in memory, whole shuffled batches (no decoding)
  torch, items      the same item by item, as its tutorials do
  merlin         merlin-dataloader 23.8, shuffled, on the CPU: runs where `--merlin` names a Python
                 that has it (docs/benchmarks.md says how to make one)
  HF datasets    streaming, in order, where `--hf` names a Python that has it, and torch
  to GPU         on a machine with a GPU: batches in its memory, beside copying alone

Rates are of a whole pass, its start included; imports and opening are not. The first pass of a
process is "cold": it also pays for fresh memory, which can be most of a short one. The median of
the three after it is the rate that is compared (of five where each pass takes fresh memory, of one
for torch's items). "First batch" is the wait for the first one of the cold pass, "warm first" that
of later ones, "own" what the process's anonymous memory grew by at most (rows that a contender
holds in memory beforehand and worker processes are left out), "peak" its resident memory with
libraries and all, "of floor" the share of the floor that reads the same files with as many threads.
Figures are medians over the rounds; ratios are taken round by round, so that both sides met the
same machine, and then their median.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":  # modules are found from the repository's root, not from this folder
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.loader_bench.cases import (
    COPY_TO_GPU,
    HUGGING_FACE,
    MERLIN,
    OURS_TO_GPU,
    Case,
    all_cases,
)
from benchmarks.loader_bench.data import bytes_per_row, make_data
from benchmarks.loader_bench.measure import measure
from benchmarks.loader_bench.more_data import make_more
from benchmarks.loader_bench.result import Rounds, draw, print_table, summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows, rounds and contenders")
    parser.add_argument("--merlin", metavar="PYTHON", help="a Python that has merlin-dataloader")
    parser.add_argument("--hf", metavar="PYTHON", help="a Python that has datasets and torch")
    parser.add_argument("--plot", metavar="FILE.png", help="draw rows/s of all contenders")
    parser.add_argument("--only", metavar="REGEX", help="contenders whose name matches")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--data", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        case = all_cases()[options.case]
        print(json.dumps(measure(case.open, options.data, case.warm_passes)))
        return
    only = options.only or ""
    rows, rounds = (2_000_000, 2) if options.quick else (6_000_000, 5)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        make_data(data, rows)
        make_more(data, {c.layout for name, c in all_cases().items() if re.search(only, name)})
        sizes = bytes_per_row(data, rows)
        data_s = time.perf_counter() - start
        pythons = {MERLIN: options.merlin, HUGGING_FACE: options.hf}
        cases = chosen_cases(options.quick, only, pythons, set(sizes))
        if not cases:
            parser.error(f"none of the contenders that --only {only!r} names can run here")
        results: Rounds = {name: [] for name in cases}
        for _ in range(rounds):
            for name in cases:
                results[name].append(run_case(name, pythons.get(name, sys.executable), data))
    print_table(results)
    if options.plot:
        draw(results, Path(options.plot))
    about = {
        "benchmark": "loader",
        "rows": rows,
        "rounds": rounds,
        "bytes_per_row": {layout: round(size, 1) for layout, size in sizes.items()},
        "data_s": round(data_s, 1),
        "total_s": round(time.perf_counter() - start, 1),
    }
    print(json.dumps(about | summary(results)))


def chosen_cases(
    quick: bool, only: str, pythons: dict[str, str | None], layouts: set[str]
) -> dict[str, Case]:
    """The contenders that this machine and these options allow; says which are left out and why."""
    chosen, gpu = {}, has_gpu()
    for name, case in all_cases().items():
        if not re.search(only, name) or (quick and not case.quick):
            continue
        if name in pythons and not pythons[name]:
            print(f"Left out: {name} (no option names its Python).", file=sys.stderr)
        elif name in (COPY_TO_GPU, OURS_TO_GPU) and not gpu:
            print(f"Left out: {name} (torch sees no GPU).", file=sys.stderr)
        elif case.layout is None or case.layout in layouts:
            chosen[name] = case
    return chosen


def has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def run_case(name: str, python: str | None, data: Path) -> dict[str, float]:
    command = [python or sys.executable, __file__, "--case", name, "--data", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


if __name__ == "__main__":
    main()
