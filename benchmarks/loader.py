"""How fast does the loader go, beside what it could reach and what others reach?

    python benchmarks/loader.py [--quick] [--merlin PYTHON]

Contenders read the same Criteo-shaped parquet (26 int32 id columns, 13 float32 columns, a label;
as `distrain prep` writes it), in batches of 65,536, on the same number of threads, each in a
process of its own, in turns; every batch's memory is touched. Figures are medians over the rounds.

  floor          Arrow decodes all columns of all row groups and drops them: no loader is faster
  distrain       `distrain.loader.Loader`, shuffled, with its checks
  torch, batched `DataLoader` over tensors held in memory, whole shuffled batches (no decoding)
  torch, items   `DataLoader` over the same tensors, item by item, as its tutorials do
  merlin         merlin-dataloader 23.8, shuffled, on the CPU: runs where `--merlin` names a Python
                 that has it (docs/benchmarks.md says how to make one)

Rates are of whole passes, after one batch has been seen; "first batch" is the wait for that one.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

BATCH_ROWS = 65_536
THREADS = 2
GOALS = {"of_floor": 0.6, "x_merlin": 5.0, "x_torch_items": 80.0, "first_batch_s": 0.3}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows and rounds")
    parser.add_argument("--merlin", metavar="PYTHON", help="a Python that has merlin-dataloader")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--data", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measure(CASES[options.case], options.data)))
        return
    rows, rounds = (2_000_000, 3) if options.quick else (6_000_000, 5)
    pythons = {name: sys.executable for name in CASES if name != "merlin"}
    if options.merlin:
        pythons["merlin"] = options.merlin
    with tempfile.TemporaryDirectory() as folder:
        data = make_data(Path(folder), rows)
        results: dict[str, list[dict[str, float]]] = {name: [] for name in pythons}
        for _ in range(rounds):
            for name, python in pythons.items():
                results[name].append(run_case(name, python, data))
    medians = {
        name: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for name, runs in results.items()
    }
    print_table(medians)
    print(json.dumps(summary(medians, rows, rounds)))


def make_data(folder: Path, rows: int) -> Path:
    from distrain.cluster import local_cluster
    from distrain.etl import PrepRequest, prepare
    from distrain.synth import SynthRequest, generate

    generate(SynthRequest(folder / "raw", rows))
    with local_cluster(2, 1, "cpu", ":0") as client:
        prepare(PrepRequest((str(folder / "raw" / "*.tsv"),), folder / "data"), client)
    return folder / "data"


def run_case(name: str, python: str, data: Path) -> dict[str, float]:
    command = [python, __file__, "--case", name, "--data", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def measure(case: Callable[[Path], Iterator[int]], data: str) -> dict[str, float]:
    """Run one pass in this process; the case yields each batch's rows once it is touched."""
    batches = case(Path(data))
    next(batches)  # ready: imports and opening are done
    start, cpu = time.perf_counter(), time.process_time()
    rows = next(batches)
    first_s = time.perf_counter() - start
    for count in batches:
        rows += count
    wall_s = time.perf_counter() - start
    return {
        "rows_per_s": rows / wall_s,
        "cpu_s_per_m_rows": (time.process_time() - cpu) / rows * 1e6,
        "first_batch_s": first_s,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def floor(data: Path) -> Iterator[int]:
    import threading
    from concurrent.futures import ThreadPoolExecutor

    import pyarrow.parquet as pq

    paths = sorted((data / "train").iterdir())
    footers = {path: pq.read_metadata(path) for path in paths}
    groups = [(path, index) for path in paths for index in range(footers[path].num_row_groups)]
    own = threading.local()  # a file handle per thread: threads that share one wait for each other

    def decode(group: tuple[Path, int]) -> int:
        path, index = group
        if getattr(own, "path", None) != path:
            own.path = path
            own.file = pq.ParquetFile(path, metadata=footers[path], pre_buffer=False)
        rows: int = own.file.read_row_group(index, use_threads=False).num_rows
        return rows

    with ThreadPoolExecutor(THREADS) as pool:
        yield 0
        yield from pool.map(decode, groups)


def distrain_loader(data: Path) -> Iterator[int]:
    from distrain.loader import Loader
    from distrain.partition import read_footers
    from distrain.schema import Schema

    schema = Schema.load(data / "schema.pbtxt")
    table = read_footers(str(data / "train"), schema)
    loader = Loader(table, schema, global_batch_size=BATCH_ROWS, decode_threads=THREADS)
    yield 0
    with loader.epoch(0) as batches:
        for batch in batches:
            touch(batch.categorical.T, batch.continuous.T, batch.label)
            yield batch.num_rows


def tensors_in_memory(data: Path) -> Any:
    import numpy as np
    import pyarrow.parquet as pq
    import torch

    table = pq.read_table(data / "train")
    names = table.column_names
    ids = [name for name in names if name.startswith("C")]
    values = [name for name in names if name.startswith("I")]
    blocks = [np.stack([table[name].to_numpy() for name in group], 1) for group in (ids, values)]
    return torch.utils.data.TensorDataset(
        *(torch.from_numpy(block) for block in blocks), torch.tensor(table["label"].to_numpy())
    )


def torch_batched(data: Path) -> Iterator[int]:
    import torch
    from torch.utils.data import BatchSampler, DataLoader, RandomSampler

    torch.set_num_threads(THREADS)
    rows = tensors_in_memory(data)
    sampler = BatchSampler(RandomSampler(rows), BATCH_ROWS, drop_last=False)
    yield 0
    for batch in DataLoader(rows, sampler=sampler, batch_size=None):
        touch(*batch)
        yield len(batch[0])


def torch_items(data: Path) -> Iterator[int]:
    import torch
    from torch.utils.data import DataLoader

    torch.set_num_threads(THREADS)
    rows = tensors_in_memory(data)
    yield 0
    for number, batch in enumerate(DataLoader(rows, BATCH_ROWS, shuffle=True, num_workers=0)):
        touch(*batch)
        yield len(batch[0])
        if number == 3:  # the rate is steady, and a pass would take minutes
            return


def merlin(data: Path) -> Iterator[int]:
    from merlin.io import Dataset
    from merlin.loader.torch import Loader
    from merlin.schema import ColumnSchema, Schema, Tags

    columns = [ColumnSchema("label", tags=[Tags.TARGET], dtype="float32")]
    columns += [
        ColumnSchema(f"I{i}", tags=[Tags.CONTINUOUS], dtype="float32") for i in range(1, 14)
    ]
    for i in range(1, 27):
        columns.append(ColumnSchema(f"C{i}", tags=[Tags.CATEGORICAL], dtype="int32"))
    files = [str(path) for path in sorted((data / "train").iterdir())]
    dataset = Dataset(files, engine="parquet", cpu=True, schema=Schema(columns))
    loader = Loader(dataset, batch_size=BATCH_ROWS, shuffle=True, device="cpu")
    yield 0
    for features, label in loader:
        touch(*features.values(), label)
        yield len(label)


def touch(*tensors: Any) -> None:
    """Read something from every page of memory."""
    for tensor in tensors:
        tensor.reshape(-1)[::512].sum()


CASES: dict[str, Callable[[Path], Iterator[int]]] = {
    "floor": floor,
    "distrain": distrain_loader,
    "torch, batched": torch_batched,
    "torch, items": torch_items,
    "merlin": merlin,
}


def summary(medians: dict[str, dict[str, float]], rows: int, rounds: int) -> dict[str, Any]:
    ours = medians["distrain"]
    figures = {
        "of_floor": ours["rows_per_s"] / medians["floor"]["rows_per_s"],
        "x_torch_items": ours["rows_per_s"] / medians["torch, items"]["rows_per_s"],
        "first_batch_s": ours["first_batch_s"],
    }
    if "merlin" in medians:
        figures["x_merlin"] = ours["rows_per_s"] / medians["merlin"]["rows_per_s"]
    met = all(
        value <= GOALS[name] if name == "first_batch_s" else value >= GOALS[name]
        for name, value in figures.items()
    )
    return {
        "benchmark": "loader",
        "rows": rows,
        "rounds": rounds,
        "threads": THREADS,
        "rows_per_s": {name: round(result["rows_per_s"]) for name, result in medians.items()},
        **{name: round(value, 3) for name, value in figures.items()},
        "goals": GOALS,
        "met": met,
    }


def print_table(medians: dict[str, dict[str, float]]) -> None:
    print(f"{'':16}{'rows/s':>13}{'CPU s/M rows':>14}{'first batch s':>15}{'peak MB':>9}")
    for name, result in medians.items():
        print(
            f"{name:16}{result['rows_per_s']:>13,.0f}{result['cpu_s_per_m_rows']:>14.2f}"
            f"{result['first_batch_s']:>15.2f}{result['peak_mb']:>9,.0f}"
        )


if __name__ == "__main__":
    main()
