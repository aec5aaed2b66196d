"""How fast hosts copy memory: STREAM's copy and triad, on one worker of each host."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from distrain.bench.document import Measure
from distrain.bench.measuring.on_workers import ask, one_per_host

COPY, TRIAD = "host.copy", "host.triad"
_BYTES_PER_VALUE = 8


def measure_host_memory(client: Any, size_bytes: int, repeats: int) -> list[Measure]:
    """Measure one worker of each host.

    Args:
        client: A `distributed.Client` of the cluster.
        size_bytes: Of each of three arrays; caches are measured if they hold them.
    """
    hosts = one_per_host(client)
    answers = ask(client, _stream_in_thread, size_bytes, repeats, workers=list(hosts.values()))
    return [
        Measure(name, f"node {host}", "bytes/s", tuple(rates), size_bytes)
        for host, address in hosts.items()
        for name, rates in answers[address].items()
    ]


async def _stream_in_thread(size_bytes: int, repeats: int) -> dict[str, Sequence[float]]:
    # A worker's event loop answers its scheduler meanwhile.
    return await asyncio.to_thread(stream, size_bytes, repeats)


def stream(size_bytes: int, repeats: int) -> dict[str, Sequence[float]]:
    """STREAM's copy and triad with torch's threads here, in bytes/s.

    As in STREAM, an array's reading and its writing count, but not a cache's reading of memory that
    is about to be written.
    """
    import torch

    count = max(1, size_bytes // _BYTES_PER_VALUE)
    first, second = (torch.ones(count, dtype=torch.float64) for _ in range(2))
    out = torch.zeros(count, dtype=torch.float64)
    kernels = {
        COPY: (2, lambda: out.copy_(first)),
        TRIAD: (3, lambda: torch.add(first, second, alpha=3.0, out=out)),
    }
    return {
        name: [_rate(work, arrays * count * _BYTES_PER_VALUE) for _ in range(repeats + 1)][1:]
        for name, (arrays, work) in kernels.items()
    }


def _rate(work: Any, moved_bytes: int) -> float:
    start_s = time.perf_counter()
    work()
    return float(moved_bytes / (time.perf_counter() - start_s))
