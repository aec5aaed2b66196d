"""Measure the cost of scoring raw rows, compared with the model's program on ids alone.

    python benchmarks/serving.py [--quick]

A DLRM with the layers of facebookresearch/dlrm for Criteo is trained on Criteo-shaped rows
(`distrain synth`), and exported with its workflow to ONNX. Calls of its scorer with 1, 32 and 1,024
rows, as dictionaries of raw values, alternate with calls of ONNX Runtime on the ids of the same
rows, on one core. The goal: the median with preprocessing is at most twice that of the program
alone. The same is measured, without a goal, for the smaller default layers of distrain, whose
program alone takes a third or less.

Then a model of large tables is exported with tables of fp32 and of int8, and each export is opened
in its own process. The goal: the int8 tables take at most 30 % of the memory of the fp32 tables; a
row of 64 numbers has 66 bytes instead of 256.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SIZES = (1, 32, 1024)
MODELS: dict[str, dict[str, list[int]]] = {
    "dlrm's": {"bottom": [512, 256, 64], "top": [512, 256]},
    "default": {},
}
MOST_TIMES = 2.0
MOST_SHARE = 0.3
WIDTH = 64
AT_ONCE = 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--opened", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.opened:
        print(memory_of(options.opened))
        return
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        times = {}
        for name, layers in MODELS.items():
            served = exported(Path(folder), name, layers, "20k" if options.quick else "200k")
            times[name] = measured(served, 1000 if options.quick else 10_000)
        memory = memory_of_tables(Path(folder), 500_000 if options.quick else 1_000_000)
    print(f"{'layers':10}{'rows':>6}{'':10}{'p50 ms':>9}{'p99 ms':>9}{'rows/s':>10}{'times':>7}")
    ratios: dict[str, dict[int, float]] = {name: {} for name in times}
    for name, rows, found in ((n, r, f) for n, sizes in times.items() for r, f in sizes.items()):
        ratios[name][rows] = round(found["raw"]["p50"] / found["ids"]["p50"], 2)
        for way, of_way in found.items():
            figures = f"{of_way['p50']:9.3f}{of_way['p99']:9.3f}{of_way['rows/s']:10,.0f}"
            ratio = f"{ratios[name][rows]:7.2f}" if way == "raw" else ""
            print(f"{name:10}{rows:6,}  {way:8}{figures}{ratio}")
    for form, size in memory.items():
        print(f"tables of {form}: {size / 2**20:.0f} MiB")
    share = memory["int8"] / memory["fp32"]
    met = max(ratios["dlrm's"].values()) <= MOST_TIMES and share <= MOST_SHARE
    summary = {
        "times": times,
        "ratios": ratios,
        "goal": MOST_TIMES,
        "int8 share": round(share, 3),
        "goal of share": MOST_SHARE,
        "s": round(time.perf_counter() - began),
        "met": met,
    }
    print(json.dumps(summary))
    sys.exit(not met)


def distrain(*words: object) -> None:
    command = [sys.executable, "-m", "distrain", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def exported(folder: Path, name: str, layers: dict[str, list[int]], rows: str) -> Path:
    """Train and export a DLRM on planted rows; `raw/valid-00000.tsv` has other rows."""
    import yaml

    train, valid = (folder / "raw" / f"{split}-00000.tsv" for split in ("train", "valid"))
    if not (folder / "data").exists():
        distrain("synth", "--rows", rows, "--valid-rows", "4096", "--out", folder / "raw")
        distrain("prep", train, "--out", folder / "data")
    job = {
        "name": "serving",
        "data": {"train": str(folder / "data" / "train")},
        "model": {"kind": "dlrm", **layers},
        "train": {"global_batch_size": 2048},
        "resources": {"backend": "inline", "device": "cpu"},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    distrain("train", folder / "job.yaml", "--run-dir", folder / f"run {name}")
    words = ("--to", "onnx", "--with-workflow", "--sample", valid)
    distrain("export", folder / f"run {name}", folder / f"served {name}", *words)
    return folder / f"served {name}"


def raw_row(fields: list[str]) -> dict[str, int | None]:
    numbers = {f"I{n}": int(text) if text else None for n, text in enumerate(fields[1:14], 1)}
    words = {f"C{n}": int(text, 16) if text else None for n, text in enumerate(fields[14:], 1)}
    return numbers | words


def measured(served: Path, calls: int) -> dict[int, dict[str, dict[str, float]]]:
    """Return milliseconds per call and rows/s, by rows per call and by form of the input."""
    import numpy as np

    from distrain.predict.serving.score import Scorer  # the same file as in the export

    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, [min(cores)])  # ONNX Runtime makes a thread per core
    scorer = Scorer(served)
    lines = (served.parent / "raw" / "valid-00000.tsv").read_text().splitlines()
    rows = [raw_row(line.split("\t")) for line in lines]
    found: dict[int, dict[str, dict[str, float]]] = {}
    for size in SIZES:
        batches = [rows[first : first + size] for first in range(0, len(rows), size)]
        inputs = [scorer.preprocessor.inputs(batch) for batch in batches]
        times: dict[str, list[float]] = {"raw": [], "ids": []}
        for call in range(max(40, calls // size)):
            place = call % len(batches)
            # The second call finds the rows of the tables in the core's caches.
            for way in ("raw", "ids") if call % 2 else ("ids", "raw"):
                began = time.perf_counter()
                if way == "raw":
                    scorer.score(batches[place])
                else:
                    scorer.run(inputs[place])
                times[way].append(1e3 * (time.perf_counter() - began))
        found[size] = {
            way: {
                "p50": float(np.percentile(of_way, 50)),
                "p99": float(np.percentile(of_way, 99)),
                "rows/s": size / float(np.percentile(of_way, 50)) * 1e3,
            }
            for way, of_way in times.items()
        }
    os.sched_setaffinity(0, cores)
    return found


def memory_of_tables(folder: Path, num_rows: int) -> dict[str, int]:
    """Return the bytes of the tables of an opened export, by the tables' form."""
    from distrain.jobs.spec import MlpSpec
    from distrain.models import SavedModel, build_model
    from distrain.models.export import write_export
    from distrain.schema import ColumnSchema, Schema

    spec = MlpSpec(embedding_dim=WIDTH, hidden=(8,))
    found = {}
    for name, form, size in (("none", "fp32", 10), ("fp32", "fp32", 0), ("int8", "int8", 0)):
        columns = ColumnSchema("user", "int32", ("categorical",), size or num_rows)
        label = ColumnSchema("label", "float32", ("target", "binary_classification"))
        schema = Schema((label, columns))
        saved = SavedModel(build_model(schema, spec, seed=0), spec, schema)
        write_export(folder / name, saved, "onnx", tables=form)  # type: ignore[arg-type]
        words = [sys.executable, __file__, "--opened", str(folder / name)]
        found[name] = int(subprocess.run(words, check=True, capture_output=True).stdout)
    return {form: found[form] - found["none"] for form in ("fp32", "int8")}


def memory_of(export: Path) -> int:
    """Return this process's memory after opening an export and scoring each row of its table."""
    import numpy as np
    import onnxruntime  # type: ignore[import-untyped, unused-ignore]

    session = onnxruntime.InferenceSession(str(export / "model.onnx"))
    columns = json.loads((export / "inputs.json").read_text())["inputs"][0]["columns"]
    size = columns[0]["cardinality"]
    for first in range(0, size, AT_ONCE):  # files are memory-mapped: touch each page
        rows = np.arange(first, min(first + AT_ONCE, size))[:, None]
        given = {"categorical": rows, "continuous": np.zeros((len(rows), 0), np.float32)}
        session.run(None, {one.name: given[one.name] for one in session.get_inputs()})
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
