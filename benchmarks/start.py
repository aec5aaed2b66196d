"""Measure how long commands take before they do their work.

    python benchmarks/start.py [--quick] [--before ROOT]

A small table of Criteo-shaped rows is prepared once. Then, in turns:

    train, inline      from the start of `distrain train` to the line about its first step
    train, two ranks   the same with two ranks on a new local cluster
    predict            `distrain predict` of 200,000 prepared rows, from its start to its end
    import distrain    the import alone, in a new process
    import torch       the same; a lower limit for the three commands, which all need torch

"CPU s" is the processor time of the command and its child processes until then, which other work
on the machine changes less than the time. With `--before`, the commands of another checkout, whose
compiled kernels are built, alternate with those of this one. The goals are for an idle machine with
two cores.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import yaml

ROOT = Path(__file__).resolve().parents[1]
INLINE, RANKS, PREDICT, IMPORT = "train, inline", "train, two ranks", "predict", "import distrain"
TORCH = "import torch"
GOALS = {INLINE: 3.0, RANKS: 4.0, PREDICT: 2.0, IMPORT: 0.02}
"""Seconds."""
PEAK_MB_GOAL = 500
ROWS = 200_000
RUN = "finished"
_IMPORT = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"

Figures = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="3 rounds instead of 9")
    parser.add_argument("--before", type=Path, metavar="ROOT", help="another checkout to compare")
    options = parser.parse_args()
    roots = {} if options.before is None else {"before": options.before.resolve()}
    roots["now"] = ROOT
    measured: dict[tuple[str, str], list[Figures]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = prepared(Path(name))
        for number in range(4 if options.quick else 10):
            for case, measure in MEASURES.items():
                for which, root in roots.items():
                    figures = measure(root, folder)
                    if number:  # the first round writes bytecode, and fills the page cache
                        measured.setdefault((case, which), []).append(figures)
    medians = {key: medians_of(figures) for key, figures in measured.items()}
    print_table(medians)
    now = {case: figures for (case, which), figures in medians.items() if which == "now"}
    met = {case: now[case]["s"] <= goal for case, goal in GOALS.items()}
    met["peak MB"] = now[PREDICT]["peak MB"] <= PEAK_MB_GOAL
    summary = {
        "benchmark": "start",
        "figures": now,
        "before": {case: figures for (case, which), figures in medians.items() if which != "now"},
        "goals": {**GOALS, "peak MB": PEAK_MB_GOAL},
        "missed": [name for name, is_met in met.items() if not is_met],
        "met": all(met.values()),
    }
    print(json.dumps(summary))


def begin(root: Path, *words: object) -> "subprocess.Popen[str]":
    """Start Python with the `distrain` of a checkout; its bytecode is kept, as when installed."""
    environment = {**os.environ, "PYTHONPATH": str(root)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.Popen(
        [sys.executable, "-P", *map(str, words)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finished(process: "subprocess.Popen[str]", before: str = "") -> None:
    output, _ = process.communicate()
    if process.returncode:
        sys.exit(f"{process.args!r} failed:\n{before}{output}")


def prepared(folder: Path) -> Path:
    """Make prepared rows, a job on them, and a finished run; return the folder."""
    data, raw = folder / "data", folder / "raw"
    job = {
        "name": "start",
        "data": {"train": str(data / "train")},
        "model": {"kind": "dlrm", "embedding_dim": 16},
        "train": {"global_batch_size": 256, "max_steps": 1},
        "resources": {"device": "cpu"},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    for words in (
        ("synth", "--rows", ROWS, "--out", raw),
        ("prep", raw / "train-00000.tsv", "--out", data),
        ("train", folder / "job.yaml", *_backend("inline", 1), "--run-dir", folder / RUN),
    ):
        finished(begin(ROOT, "-m", "distrain", *words))
    return folder


def _backend(backend: str, num_ranks: int) -> tuple[str, ...]:
    fields = (f"resources.backend={backend}", f"resources.num_ranks={num_ranks}")
    return tuple(word for field in fields for word in ("--set", field))


def first_step(backend: str, num_ranks: int) -> Callable[[Path, Path], Figures]:
    def measure(root: Path, folder: Path) -> Figures:
        run_dir, began = tempfile.mkdtemp(dir=folder), time.perf_counter()
        words = (folder / "job.yaml", *_backend(backend, num_ranks), "--run-dir", f"{run_dir}/run")
        process = begin(root, "-m", "distrain", "train", *words)
        assert process.stdout is not None
        lines = ""
        for line in process.stdout:
            lines += line
            if line.startswith("step 1 of 1 "):
                wall_s, used_s = time.perf_counter() - began, cpu_s(process.pid)
                break
        finished(process, lines)
        return {"s": wall_s, "CPU s": used_s}

    return measure


def cpu_s(pid: int) -> float:
    """Return the processor time of a process, its descendants, and those that they waited for."""
    command = psutil.Process(pid)
    times = [process.cpu_times() for process in (command, *command.children(recursive=True))]
    return sum(t.user + t.system + t.children_user + t.children_system for t in times)


def predict(root: Path, folder: Path) -> Figures:
    scores = Path(tempfile.mkdtemp(dir=folder)) / "scores"
    began = time.perf_counter()
    words = (folder / RUN, folder / "data" / "train", "--out", scores)
    process = begin(root, "-m", "distrain", "predict", *words)
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(output)
    used_s = usage.ru_utime + usage.ru_stime
    return {"s": time.perf_counter() - began, "CPU s": used_s, "peak MB": usage.ru_maxrss / 1024}


def import_alone(module: str) -> Callable[[Path, Path], Figures]:
    def measure(root: Path, _: Path) -> Figures:
        process = begin(root, "-c", _IMPORT.format(module))
        return {"s": float(process.communicate()[0])}

    return measure


MEASURES: dict[str, Callable[[Path, Path], Figures]] = {
    INLINE: first_step("inline", 1),
    RANKS: first_step("dask", 2),
    PREDICT: predict,
    IMPORT: import_alone("distrain"),
    TORCH: import_alone("torch"),
}


def medians_of(rounds: list[Figures]) -> Figures:
    return {name: round(statistics.median(one[name] for one in rounds), 3) for name in rounds[0]}


def print_table(medians: dict[tuple[str, str], Figures]) -> None:
    print(f"{'median':18}{'':8}{'s':>8}{'CPU s':>8}{'peak MB':>9}{'goal s':>8}")
    for (case, which), figures in medians.items():
        cpu = f"{figures['CPU s']:8.2f}" if "CPU s" in figures else 8 * " "
        peak = f"{figures['peak MB']:9.0f}" if "peak MB" in figures else 9 * " "
        goal = f"{GOALS[case]:8.2f}" if case in GOALS else ""
        print(f"{case:18}{which:8}{figures['s']:8.3f}{cpu}{peak}{goal}")


if __name__ == "__main__":
    main()
