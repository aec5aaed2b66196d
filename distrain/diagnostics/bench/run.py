"""Runs one bench on a cluster."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from distrain.diagnostics.bench.measuring.collectives import measure_collectives
from distrain.diagnostics.bench.measuring.hosts import measure_host_memory, take_inventory
from distrain.diagnostics.bench.measuring.loading import measure_loaders, write_rows
from distrain.diagnostics.bench.measuring.programs import measure_gpus
from distrain.diagnostics.bench.measuring.sizes import MOST_PAIRED_NODES, Sizes
from distrain.diagnostics.bench.measuring.steps import measure_steps
from distrain.diagnostics.bench.measuring.storage import measure_storage
from distrain.diagnostics.bench.results import Bench
from distrain.version import build


def run_bench(
    client: Any,
    folder: Path,
    sizes: Sizes,
    mode: str,
    device: str = "auto",
    say: Callable[[str], None] = lambda _: None,
) -> Bench:
    """Measure all workers of a `distributed.Client`'s cluster.

    `folder` must be empty and shared by all workers; its content may be removed afterwards. `mode`
    is the name of `sizes` in the result. The device `auto` means `cuda` if every host has a GPU.
    `say` is called with the name of each part at its start. The parts take minutes.

    Raises `ClusterError` if a measurement fails, `JobError` if a training job fails, and `OSError`
    if a worker cannot write to `folder`.
    """
    say("inventory")
    inventory = take_inventory(client)
    device = device_of(inventory, device)
    say("memory")
    measures = measure_host_memory(client, sizes.memory_bytes, sizes.repeats)
    if device == "cuda":
        say("GPUs")
        measures += measure_gpus(client, sizes)
    say("storage")
    measures += measure_storage(client, folder, sizes.file_bytes, min(3, sizes.repeats))
    say("collectives")
    measures += measure_collectives(client, sizes, device)
    say("generating rows")
    # Enough rows for eight of the largest weak-scaling steps.
    most_rows = 8 * sizes.rank_rows * sum(host["workers"] for host in inventory)
    data = write_rows(client, folder, max(sizes.data_rows, most_rows), sizes.data_scale)
    say("loaders")
    epochs = min(3, sizes.repeats)
    measures += measure_loaders(client, data / "train", sizes.rank_rows, epochs, device)
    steps = measure_steps(client, data, folder, sizes, device, say)
    return Bench(
        mode=mode,
        device=device,
        inventory=inventory,
        measures=tuple(measures),
        steps=tuple(steps),
        left_out=tuple(left_out(inventory, device)),
        made={"distrain": build()},
    )


def device_of(inventory: Iterable[Mapping[str, Any]], requested: str) -> str:
    if requested != "auto":
        return requested
    return "cuda" if all(host["gpus"] for host in inventory) else "cpu"


def left_out(inventory: tuple[Mapping[str, Any], ...], device: str) -> Iterable[str]:
    """Yield texts on measures that are not made on these hosts, each with the reason."""
    if sum(host["workers"] for host in inventory) < 2:
        yield "collectives: they need two workers"
    if len(inventory) < 2:
        yield "links and collectives between nodes: all workers are on one host"
    elif len(inventory) > MOST_PAIRED_NODES:
        yield f"links between all {len(inventory)} nodes: each node sends only to the next one"
    if device == "cuda":
        yield "faults of GPUs, XID errors of the kernel's log, and NVLink's counters: see dcgmi"
