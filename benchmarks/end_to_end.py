"""Measure how fast the models of the public Criteo notebooks train, from parquet to saved weights.

    python benchmarks/end_to_end.py [--quick] [--out DIR] [--device auto|cuda|cpu] [--rows N]
                                    [--only REGEX]

Generated rows (26 ids by Zipf laws, 13 values, labels of a planted model) are in parquet files as
`distrain prep` writes them. Each training runs in its own process and does everything that a rank
does: reading, decoding, shuffling, the copy to the device, routes, steps, reports, a validation
after each epoch, and saving the model. Batch sizes, layers, optimizers and table sizes are those of
the notebooks:

  tensorflow   "Scaling Criteo: Training with TensorFlow": MLP 128-128-128-1 over embeddings of 16,
               SGD, batch 65,536; published: 1.94M training rows/s
  fastai       "Scaling Criteo: Training with FastAI": TabularModel [512, 256] with two outputs,
               Adam, batch 400,000; published: 0.66M rows/s, of training and validation over the
               time of both, with AUC and average precision

The published figures were measured on NVIDIA's machines of 2021 with Criteo's own files. The
figures measured here are for generated rows on this machine, which the last line names.

On a GPU: 50M training rows and 5M validation rows, all different, tables of 45.9M rows, one warm-up
epoch and two timed epochs; steps eager, or as a CUDA graph, in fp32, tf32 or bf16. On a
CPU rows and tables are fewer, and no goal counts as met: the goals are for an H200.

rows/s      median of the timed epochs; rows are counted as in the notebook
whole run   all rows over the lifetime of the process, with imports, building tables and saving the
            model
waiting     share of training time in which the GPU (on a CPU: the training thread) waited for rows
syncs       how often the training thread waits for the GPU in a step, without reports
start s     from the start of the process to its first step

--out writes `end_to_end.json` with all figures. It also profiles some steps of the slowest
training: `slowest.json.gz` for chrome://tracing or Perfetto, and `slowest.md`, the longest
operations.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # modules are found from the repository's root, not from this folder
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.end_to_end_bench.notebooks import (
    NOTEBOOKS,
    Notebook,
    Way,
    job_document,
    ways,
    windows_per_epoch,
)
from benchmarks.end_to_end_bench.result import Run, figures, print_heads, print_run, rounded
from benchmarks.end_to_end_bench.rows import Made, make_rows

# device, quick: rows, timed epochs, scale of the tables
SIZES = {
    ("cuda", False): (50_000_000, 2, 1.0),
    ("cuda", True): (10_000_000, 2, 1.0),
    ("cpu", False): (4_000_000, 2, 0.25),
    ("cpu", True): (800_000, 1, 0.02),
}
VALID_PART = 10
LONGEST_RUN_S = 500


def main() -> None:
    options = parsed()
    began_s = time.perf_counter()
    device = chosen_device(options.device)
    rows, rounds, scale = SIZES[device, options.quick]
    rows = options.rows or rows
    runs: list[Run] = []
    failed: dict[str, str] = {}
    about: dict[str, Any] = {"benchmark": "end_to_end", "device": device, "quick": options.quick}
    with tempfile.TemporaryDirectory() as folder:
        made = make_rows(Path(folder), rows, max(1, rows // VALID_PART), scale)
        about |= about_rows(made, time.perf_counter() - began_s)
        print_heads(device)
        for notebook, way in chosen(device, options):
            told = train(notebook, way, made, device, rounds)
            if isinstance(told, str):
                failed[f"{notebook.name}, {way.name}"] = told
                print(f"{notebook.name}, {way.name}: FAILED: {told}", flush=True)
            else:
                runs.append(told)
                print_run(told.record(made, device))
            save(options.out, about, runs, failed, made)
        if options.out and runs:
            profile_slowest(runs, made, options.out)
    found = figures(runs, device)
    summary = about | {
        "hardware": runs[0].account["hardware"] if runs else None,
        "rows_per_s": {run.name: run.rows_per_s for run in runs},
        "figures": found,
        "failed": {name: text.splitlines()[0] for name, text in failed.items()},
        "met": not failed and all(each["met"] for each in found.values()),
        "total_s": time.perf_counter() - began_s,
    }
    if not summary["met"] and device != "cuda":
        summary["why"] = "no GPU"
    print(json.dumps(rounded(summary)))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows, epochs and ways")
    parser.add_argument(
        "--out", metavar="DIR", type=Path, help="write figures and a profile into this folder"
    )
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument("--rows", metavar="N", type=int, help="training rows")
    parser.add_argument("--only", metavar="REGEX", default="", help="trainings that match")
    return parser.parse_args()


def chosen_device(asked: str) -> str:
    """Return "cuda" if torch has a GPU, unless the CPU was asked for."""
    if asked == "cpu":
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if asked == "cuda":
        raise SystemExit("--device cuda: torch finds no GPU; `distrain doctor` says why")
    return "cpu"


def about_rows(made: Made, data_s: float) -> dict[str, Any]:
    """Return the size of the training data, as JSON values."""
    return {
        "rows": made.rows,
        "valid_rows": made.valid_rows,
        "table_rows": made.table_rows,
        "bytes_per_row": made.size_bytes / (made.rows + made.valid_rows),
        "data_s": data_s,
        "cores": os.cpu_count(),
    }


def chosen(device: str, options: argparse.Namespace) -> list[tuple[Notebook, Way]]:
    """Return the trainings to run, the most informative ones first, alternating notebooks."""
    every = []
    for way in ways(device, options.quick):
        if way.lacks:
            print(f"Left out: {way.name} (no {', '.join(way.lacks)} here).", file=sys.stderr)
        else:
            every += [(notebook, way) for notebook in NOTEBOOKS]
    return [pair for pair in every if re.search(options.only, f"{pair[0].name}, {pair[1].name}")]


def train(
    notebook: Notebook,
    way: Way,
    made: Made,
    device: str,
    rounds: int,
    trace: Path | None = None,
) -> Run | str:
    """Run one training; return its result, or why it failed."""
    asked = {
        "document": job_document(notebook, way, made, device, 1 + rounds),
        "windows": windows_per_epoch(notebook, made),
        "folder": str(made.folder),
        "trace": str(trace.absolute()) if trace else None,
    }
    began_s = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.end_to_end_bench.one_run", json.dumps(asked)],
            capture_output=True,
            text=True,
            timeout=LONGEST_RUN_S,
            check=False,
            env=environment(way),
        )
    except subprocess.TimeoutExpired:
        return f"took longer than {LONGEST_RUN_S} s"
    wall_s = time.perf_counter() - began_s
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return f"exit code {done.returncode}\n{done.stderr[-3000:]}"
    told = json.loads(lines[-1])
    if "failed" in told:
        return str(told["failed"])
    return Run(notebook, way.name, told, wall_s)


def environment(way: Way) -> dict[str, str]:
    """Return the environment that a supervisor would give a rank."""
    from distrain.workers.rank_process import ALLOCATOR

    here = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return os.environ | ALLOCATOR | threads | way.environment | {"PYTHONPATH": path}


def save(
    out: Path | None, about: dict[str, Any], runs: list[Run], failed: dict[str, str], made: Made
) -> None:
    """Write the figures so far; an interrupted benchmark leaves partial results."""
    if out is None:
        return
    out.mkdir(parents=True, exist_ok=True)
    records = [run.record(made, about["device"]) for run in runs]
    document = about | {"figures": figures(runs, about["device"]), "runs": records}
    text = json.dumps(rounded(document | {"failed": failed}), indent=1)
    (out / "end_to_end.json").write_text(text + "\n")


def profile_slowest(runs: list[Run], made: Made, out: Path) -> None:
    """Train the slowest variant again for one epoch, and profile some of its steps."""
    slowest = min(runs, key=lambda run: run.rows_per_s / run.notebook.goal_rows_per_s)
    device = "cuda" if slowest.account["device_seconds"] else "cpu"
    (way,) = [way for way in ways(device, quick=False) if way.name == slowest.way]
    trace = out / "slowest.json.gz"
    told = train(slowest.notebook, way, made, device, 0, trace)
    if isinstance(told, str):
        print(f"no profile of {slowest.name}: {told}", file=sys.stderr)
    else:
        print(f"profile of {slowest.name}: {trace}")


if __name__ == "__main__":
    main()
