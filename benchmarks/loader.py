"""Measure how fast the loader is, compared with its upper bounds and with other loaders.

    python benchmarks/loader.py [--quick] [--merlin PYTHON] [--hf PYTHON] [--plot FILE.png]

Contenders read the same Criteo-shaped rows (26 id columns, 13 float32 columns, a label) in batches
of 65,536. Each runs in its own process, in turns, and touches the memory of every batch. The
layouts:

  ordinary       with pyarrow's defaults: nullable, snappy, dictionaries; ids are int32
  prep           as `distrain prep` writes: required, LZ4, dictionaries, page checksums
  int64          `ordinary` with 64-bit ids, the default of pandas
  250k, 1m       `ordinary` in one file with row groups of this many rows (all other layouts:
                 65,536)
  files          `ordinary` in 2,000 files
  wide           `ordinary` with 80 more columns, which no contender reads
  lists          `ordinary` with lists of up to six ids in four columns
  days           `ordinary` split into two days, which are windows
  cache          `ordinary`, read from a cache that `distrain pack` filled
  `reopened`     `ordinary`, with a new loader for each pass, whose batches use fresh memory
  filling        like `reopened`, but each pass also fills an empty cache; its "floor" is `reopened`

Contenders (1t, 2t: with 1 or 2 decoding threads):

  memcpy         one thread copies the bytes of the batches between blocks of memory
  floor          Arrow decodes the requested columns of all row groups and drops them: no loader
                 that decodes with Arrow can be faster; for `cache`, bytes are read and dropped
  distrain       `distrain.loader.Loader` with its checks, shuffled by chunks, or "in order", or
                 with a "full shuffle"
  torch, iterable   an `IterableDataset` over pyarrow's batches in 2 worker processes
  torch, batched    `DataLoader` over rows in memory, whole shuffled batches (no decoding)
  torch, items      the same, item by item, as in torch's tutorials
  merlin         merlin-dataloader 23.8, shuffled, on the CPU; needs `--merlin` with a Python that
                 has it (docs/benchmarks.md says how to make one)
  HF datasets    streaming, in order; needs `--hf` with a Python that has datasets and torch
  to GPU         on a machine with a GPU: batches copied to its memory, compared with copying alone

A rate is measured over a whole pass with its start, without imports and opening. The first pass of
a process is "cold": it also allocates memory, which can take most of a short pass. The compared
rate is the median of the three passes after it (of five if each pass uses fresh memory, of one for
torch's items).

  first batch   the wait for the first batch of the cold pass
  warm first    the same of later passes
  own           the largest growth of the process's anonymous memory, without rows that a contender
                holds in memory beforehand and without worker processes
  peak          its peak resident memory, with libraries
  of floor      the share of the floor with the same files and number of threads

Figures are medians over the rounds. A ratio is the median of the rounds' ratios, so that both sides
ran under the same load.
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
    parser.add_argument("--only", metavar="REGEX", help="run the contenders whose names match")
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
    """Return the contenders that can run here; prints which are left out and why."""
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
