"""Measures loaders in rows/s: of one rank, by number of threads, and of all ranks together."""

import math
import os
import time
from pathlib import Path
from typing import Any

from distrain.diagnostics.bench.limits import LOADER_RATE
from distrain.diagnostics.bench.measuring.hosts import ask_each, one_per_host, workers_by_host
from distrain.diagnostics.bench.results import Measure

LOADER_THREADS = "loader.threads_{}"
"""The name of the measure for one loader on a node, with its number of decoding threads."""

_MOST_THREADS = 8


def write_rows(client: Any, folder: Path, rows: int, scale: float) -> Path:
    """Generate rows and prepare them on the cluster; return the folder of prepared rows.

    `scale` is that of `distrain synth --scale`.
    """
    from distrain.prep.preparation import prepare
    from distrain.prep.request import PrepRequest
    from distrain.prep.synthetic.generate import SynthRequest, generate

    raw, out = folder / "raw", folder / "data"
    generate(SynthRequest(raw, rows, scale=scale, format="parquet", files=4))
    # Every rank gets at least one row group.
    row_group_rows = max(1024, min(65536, rows // 64))
    inputs = tuple(str(path) for path in sorted(raw.glob("train-*.parquet")))
    prepare(PrepRequest(inputs, out, row_group_rows=row_group_rows), client)
    return out


def measure_loaders(
    client: Any, train: Path, batch_rows: int, repeats: int, device: str
) -> list[Measure]:
    """Measure loaders in rows/s, `repeats` epochs each.

    First one loader per host reads all rows with 1, 2, 4 and 8 threads; numbers of threads above a
    host's number of cores are left out. Then all workers read at once, each its share as one rank
    with one thread. Batches are copied to the device: "cpu", or "cuda" for each worker's first GPU.

    Returns a measure for each host and number of threads, and at the end one of all ranks.
    """
    hosts = one_per_host(client)
    measures = []
    for threads in (1, 2, 4, _MOST_THREADS):
        words = (str(train), 0, 1, batch_rows, threads, repeats, device)
        answers = ask_each(client, load, dict.fromkeys(hosts.values(), words))
        for host, address in hosts.items():
            if rates := tuple(rows / seconds for rows, seconds in answers[address]):
                name = LOADER_THREADS.format(threads)
                measures.append(Measure(name, f"node {host}", "rows/s", rates))
    workers = [address for group in workers_by_host(client).values() for address in group]
    words_of = {
        address: (str(train), rank, len(workers), batch_rows, 1, repeats, device)
        for rank, address in enumerate(workers)
    }
    epochs = zip(*ask_each(client, load, words_of).values(), strict=True)
    # The slowest rank determines an epoch's time: the other ranks wait for it.
    rates = tuple(sum(rows for rows, _ in of) / max(seconds for _, seconds in of) for of in epochs)
    return [*measures, Measure(LOADER_RATE, f"{len(workers)} ranks", "rows/s", rates)]


def load(
    train: str, rank: int, num_ranks: int, batch_rows: int, threads: int, epochs: int, device: str
) -> list[tuple[int, float]]:
    """Return (rows, seconds) of each epoch of a rank's loader, after a warm-up epoch.

    Returns [] if this machine has fewer cores than `threads`.
    """
    if threads > len(os.sched_getaffinity(0)):
        return []
    import torch

    from distrain.loader.dataset import Dataset
    from distrain.loader.loader import Loader

    loader = Loader(
        Dataset(train),
        batch_size=batch_rows,
        rank=rank,
        num_ranks=num_ranks,
        lanes=math.lcm(24, num_ranks),
        decode_threads=threads,
        device=device,
    )
    passes = []
    for _ in range(epochs + 1):
        start_s = time.perf_counter()
        rows = sum(batch.num_rows for batch in loader)
        if device == "cuda":
            torch.cuda.synchronize()  # wait for pending copies
        passes.append((rows, time.perf_counter() - start_s))
    return passes[1:]
