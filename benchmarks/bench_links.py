"""Check that `distrain bench` finds faults planted in a cluster.

    python benchmarks/bench_links.py [--quick] [--only REGEX]

Nodes are network namespaces of this machine whose sending rate is capped at 100 or 400 Mbit/s
(`tc tbf`). Scheduler, workers, jobs and measurements are those of `distrain bench`, with sizes just
large enough:

  2 x 2, 4 x 1   two nodes with two workers each, four nodes with one: all-to-all between nodes is
                 within 15 % of the cap, and at least twice as fast within a node
  slow link      one node sends to another at a quarter of the rate of all other links
  slow disk      one node's worker reads its disk at 10 MB/s (control groups)
  first limit    a training on four ranks is limited by the CPU at 400 Mbit/s, and by the network at
                 20 Mbit/s
  slow rank      after training has begun, one rank gets a tenth of the CPU share of the others, and
                 at most a fifth of a core (control groups)

The first outlier that the bench names must be the planted fault. The benchmark uses all cores: on a
busy machine links look slower than their cap, and ranks look uneven.

Needs root, `ip` and `tc`; without them it prints the reason and ends. Without control groups for
CPU and disks, the scenes "slow disk" and "slow rank" are skipped. The last line is JSON: figures,
goals, and whether they are met.
"""

import argparse
import json
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # modules are found from the repository's root, not from this folder
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    os.environ["PYTHONPATH"] = sys.path[0]

import psutil

from benchmarks.bench_links_bench import throttles
from benchmarks.bench_links_bench.result import (
    Finding,
    document,
    of_collectives,
    of_limits,
    of_outliers,
    table,
)
from benchmarks.bench_links_bench.throttles import Throttle
from benchmarks.step_bench.capped_hosts import CappedHosts, why_not
from distrain.diagnostics.bench.measuring.collectives import measure_collectives
from distrain.diagnostics.bench.measuring.loading import write_rows
from distrain.diagnostics.bench.measuring.sizes import QUICK, Sizes
from distrain.diagnostics.bench.measuring.steps import measure_step
from distrain.diagnostics.bench.measuring.storage import measure_storage
from distrain.diagnostics.bench.results import Bench

MBITS = (100, 400)
SLOW_LINK, SLOW_DISK, SLOW_RANK = ("n1", "n2"), "n2", "n3"
READS_BYTES_PER_S = 10_000_000
LOW_MBIT, HIGH_MBIT = 20, 400
SLOW_CORES, SLOW_SHARE = 0.2, 0.1
SLOW_STEPS = 36
"""Enough steps that most of them come after the rank was slowed down."""
FULL_SIZES = replace(QUICK, message_bytes=(2**23,), file_bytes=2**25, repeats=7)
QUICK_SIZES = replace(FULL_SIZES, link_bytes=2**20, file_bytes=2**24, repeats=3, steps=12)


@dataclass(frozen=True)
class Cluster:
    """A running cluster of capped nodes, with a Dask client connected to it."""

    hosts: CappedHosts
    client: Any
    slow: Mapping[str, Throttle]
    sizes: Sizes
    folder: Path

    def collectives(self) -> Bench:
        """Measure collectives over the links as they are capped now."""
        return self.bench(tuple(measure_collectives(self.client, self.sizes, "cpu")))

    def steps(self, data: Path) -> Bench:
        """Measure a training on all workers."""
        ranks = len(self.client.nthreads())
        step = measure_step(self.client, data, self.folder, self.sizes, "cpu", ranks, "weak")
        return self.bench((), (step,))

    def bench(self, measures: tuple[Any, ...], steps: tuple[Any, ...] = ()) -> Bench:
        """Return a bench result that holds only these measurements."""
        return Bench("links", "cpu", measures=measures, steps=steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, smaller files")
    parser.add_argument("--only", metavar="REGEX", default="", help="scenes that match")
    options = parser.parse_args()
    if reason := why_not():
        print(json.dumps({"benchmark": "bench_links", "skipped": reason}))
        return
    began_s = time.monotonic()
    findings: list[Finding] = []
    sizes = QUICK_SIZES if options.quick else FULL_SIZES
    with tempfile.TemporaryDirectory(prefix="bench-links-") as name:
        left_out = throttles.why_not(Path(name))
        for nodes, workers in ((2, 2), (4, 1)):
            wanted = [
                (scene, act)
                for scene, act in scenes(nodes, workers, left_out is None)
                if re.search(options.only, scene)
            ]
            if not wanted:
                continue
            with cluster(nodes, workers, sizes, Path(name), left_out is None) as made:
                for scene, act in wanted:
                    print(f"{scene} ...", file=sys.stderr, flush=True)
                    findings += act(scene, made)
    print("\n".join(table(findings)))
    about = {
        "quick": options.quick,
        "cores": psutil.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "seconds": round(time.monotonic() - began_s),
        **({"left_out": left_out} if left_out else {}),
    }
    print(json.dumps(document(findings, **about)))


Scene = Callable[[str, Cluster], Sequence[Finding]]


def scenes(nodes: int, workers: int, throttled: bool) -> list[tuple[str, Scene]]:
    """Return the scenes for this number of nodes and workers, in the order to run them."""
    made: list[tuple[str, Scene]] = [
        (f"{nodes} x {workers} at {mbit} Mbit/s", capped(mbit)) for mbit in MBITS
    ]
    if workers > 1:
        return made
    made.append(("slow link", slow_link))
    if throttled:
        made.append(("slow disk", slow_disk))
    made += [
        (f"first limit at {HIGH_MBIT} Mbit/s", limited(HIGH_MBIT, "CPU")),
        (f"first limit at {LOW_MBIT} Mbit/s", limited(LOW_MBIT, "network")),
    ]
    # Last: it leaves its node slow.
    return [*made, ("slow rank", slow_rank)] if throttled else made


def capped(mbit: int) -> Scene:
    """Return a scene in which all links have the same cap."""

    def act(scene: str, made: Cluster) -> Sequence[Finding]:
        made.hosts.cap(mbit)
        return of_collectives(scene, made.collectives().measures, mbit)

    return act


def slow_link(scene: str, made: Cluster) -> Sequence[Finding]:
    """Slow one link down to a quarter of the others."""
    made.hosts.cap(HIGH_MBIT)
    a, b = SLOW_LINK
    made.hosts.cap_link(a, b, HIGH_MBIT // 4, HIGH_MBIT)
    sizes = replace(made.sizes, message_bytes=(1024,), repeats=max(5, made.sizes.repeats))
    bench = made.bench(tuple(measure_collectives(made.client, sizes, "cpu")))
    made.hosts.cap(HIGH_MBIT)
    of = made.hosts.addresses
    return [of_outliers(scene, bench, f"link {of[a]} > {of[b]}", "link")]


def slow_disk(scene: str, made: Cluster) -> Sequence[Finding]:
    """Slow down the disk reads of one node."""
    disk = throttles.disk_of(made.folder)
    assert disk is not None
    throttle = made.slow[SLOW_DISK]
    throttle.limit_reads(disk, READS_BYTES_PER_S)
    measures = measure_storage(made.client, made.folder, made.sizes.file_bytes, 3)
    throttle.limit_reads(disk, 2**40)
    place = f"node {made.hosts.addresses[SLOW_DISK]}"
    return [of_outliers(scene, made.bench(tuple(measures)), place, "storage.read_cold")]


def limited(mbit: int, first: str) -> Scene:
    """Return a scene that trains over links of the given rate."""

    def act(scene: str, made: Cluster) -> Sequence[Finding]:
        made.hosts.cap(0)
        data = rows_of(made)
        made.hosts.cap(mbit)
        return [of_limits(scene, made.steps(data), first)]

    return act


def slow_rank(scene: str, made: Cluster) -> Sequence[Finding]:
    """Slow down one rank as soon as a training has made its first steps."""
    from distrain.launch.job_handle import JobHandle

    throttle = made.slow[SLOW_RANK]
    made.hosts.cap(0)
    data = rows_of(made)
    made = replace(made, sizes=replace(made.sizes, steps=SLOW_STEPS))
    before, ended = set(made.folder.glob("bench-*")), threading.Event()

    def plant() -> None:
        while not ended.wait(0.05):
            runs = set(made.folder.glob("bench-*")) - before
            if any(JobHandle(made.client, run.name).view().records for run in runs):
                throttle.limit_cores(SLOW_CORES, SLOW_SHARE)
                return

    planting = threading.Thread(target=plant)
    planting.start()
    try:
        bench = made.steps(data)
    finally:
        ended.set()
        planting.join()
    (step,) = bench.steps
    rank = step.hosts.index(SLOW_RANK)
    return [of_outliers(scene, bench, step.place(rank), f"step on {step.ranks} ranks")]


def rows_of(made: Cluster) -> Path:
    """Return the folder of the training rows; generates them on first use."""
    folder = made.folder / "rows"
    if not folder.exists():
        rows = 8 * made.sizes.rank_rows * len(made.hosts.addresses)
        write_rows(made.client, folder, rows, made.sizes.data_scale)
    return folder / "data"


@contextmanager
def cluster(
    nodes: int, workers: int, sizes: Sizes, folder: Path, throttled: bool
) -> Iterator[Cluster]:
    """Run nodes with workers; removes everything afterwards."""
    from dask_world import DaskWorld
    from distributed import Client
    from waiting import until

    names = [f"n{number}" for number in range(nodes)]
    folder = folder / f"{nodes}x{workers}"
    folder.mkdir()
    with ExitStack() as stack:
        slow = {
            name: stack.enter_context(Throttle(f"distrain-{os.getpid()}-{name}"))
            for name in ((SLOW_DISK, SLOW_RANK) if throttled and workers == 1 else ())
        }
        hosts = stack.enter_context(CappedHosts(*names))
        wrappers = [
            [*(slow[name].wrapper if name in slow else ()), *hosts.wrapper(name)]
            for name in names
            for _ in range(workers)
        ]
        world = stack.enter_context(DaskWorld(folder, len(wrappers), hosts.here, wrappers))
        client = stack.enter_context(Client(world.address, timeout=120))
        until(
            lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == len(wrappers), "workers"
        )
        yield Cluster(hosts, client, slow, sizes, folder)


if __name__ == "__main__":
    main()
