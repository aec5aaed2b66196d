"""Measure what the loader gains by decoding pages of flat columns itself, without Arrow.

    python benchmarks/pages.py [--quick]

The loader's Arrow reader reads Criteo-shaped rows (26 int32 id columns, 13 float32 columns, a
label) from files of several kinds in one thread. distrain decodes the pages, or Arrow does
(`DISTRAIN_PAGES=0`), in turns. Then the loader makes batches of them with one decoding thread,
again in turns.

"decode" is processor time per row of the reader alone. "batches" is the processor time of the whole
process per row of the loader's second epoch, with checks and shuffling. Each is the minimum over
the rounds, since other work on the machine can only add to it; ratios are ratios of minima.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # modules are found from the repository's root, not from this folder
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.loader_bench.data import GROUP_ROWS, draw_table, schema
from distrain.loader import Dataset, Loader
from distrain.loader.parquet_pages.leaves import BUILT
from distrain.loader.reading.arrow import ArrowReader

KINDS: dict[str, dict[str, Any]] = {
    "nullable, snappy": {},
    "nullable, snappy, groups of 1M": {"row_group_size": 1 << 20},
    "nullable, uncompressed": {"compression": "none"},
    "required, snappy": {"nullable": False},
    "required, LZ4, checksums": {
        "nullable": False,
        "compression": "lz4",
        "write_page_checksum": True,
    },
}
QUICK = ("nullable, snappy", "required, LZ4, checksums")
BATCH_ROWS = 8192


def write(path: Path, table: pa.Table, nullable: bool = True, **options: Any) -> None:
    """Write a file of one kind."""
    wanted = pa.schema([field.with_nullable(nullable) for field in table.schema])
    pq.write_table(table.cast(wanted), path, **{"row_group_size": GROUP_ROWS} | options)


def decode(dataset: Dataset) -> None:
    """Read and drop the schema's columns of all row groups."""
    reader = ArrowReader(dataset.columns)
    for group in dataset.table.row_groups:
        for _ in reader.read(group, dataset.columns):
            pass
    reader.close()


def batches_of(dataset: Dataset) -> None:
    """Read and drop an epoch's batches."""
    with Loader(dataset, batch_size=BATCH_ROWS, lanes=4, decode_threads=1) as loader:
        for _ in loader.epoch(1):
            pass


def least_s(run: Callable[[Dataset], None], dataset: Dataset, rounds: int) -> dict[str, float]:
    """Return the processor seconds of the best round, with pages (`1`) and without (`0`)."""
    found: dict[str, list[float]] = {"0": [], "1": []}
    for number in range(rounds + 1):
        for switch, times in found.items():
            os.environ["DISTRAIN_PAGES"] = switch
            start = time.process_time()
            run(dataset)
            if number:  # the first round allocates memory
                times.append(time.process_time() - start)
    return {switch: min(times) for switch, times in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows, rounds and kinds of file")
    options = parser.parse_args()
    if not BUILT:
        raise SystemExit("distrain was built without a C compiler: Arrow decodes everything.")
    rows, rounds = (2 * GROUP_ROWS, 2) if options.quick else (1 << 20, 5)
    table = draw_table(0, rows, 1.0)
    results: dict[str, dict[str, float]] = {}
    print(f"{'ns/row of processor time':40} {'Arrow':>7} {'pages':>7} {'':6}")
    with tempfile.TemporaryDirectory() as folder:
        for kind in QUICK if options.quick else KINDS:
            path = Path(folder) / "part.parquet"
            write(path, table, **KINDS[kind])
            dataset = Dataset(path, schema(1.0))
            for what, run in (("decode", decode), ("batches", batches_of)):
                best = {s: t / rows * 1e9 for s, t in least_s(run, dataset, rounds).items()}
                ratio = best["0"] / best["1"]
                name = f"{kind}: {what}"
                print(f"{name:40} {best['0']:7.1f} {best['1']:7.1f} {ratio:5.2f}x", flush=True)
                results[name] = {"arrow_ns": best["0"], "pages_ns": best["1"]}
    print(json.dumps({"benchmark": "pages", "rows": rows, "rounds": rounds, "results": results}))


if __name__ == "__main__":
    main()
