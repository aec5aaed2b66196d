"""Lists the hosts of a cluster, describes them, and measures their memory."""

import asyncio
import os
import platform
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psutil
from distributed.comm.addressing import get_address_host

from distrain.diagnostics.bench.results import Measure
from distrain.errors import ClusterError
from distrain.version import build, package_version

COPY, TRIAD = "host.copy", "host.triad"
_BYTES_PER_VALUE = 8


def workers_by_host(client: Any) -> dict[str, list[str]]:
    """Return the workers' addresses by host; raise `ClusterError` if there are no workers."""
    hosts: dict[str, list[str]] = {}
    for address in sorted(client.scheduler_info(n_workers=-1)["workers"]):
        hosts.setdefault(get_address_host(address), []).append(address)
    if not hosts:
        raise ClusterError(
            "the cluster has no worker to measure",
            where={"scheduler": client.scheduler.address},
            hint="Start some with `dask worker ADDRESS`.",
        )
    return hosts


def one_per_host(client: Any) -> dict[str, str]:
    return {host: workers[0] for host, workers in workers_by_host(client).items()}


def ask(client: Any, function: Callable[..., Any], *words: Any, workers: list[str]) -> Any:
    """Call a function on workers, and return the results by address.

    Raises `ClusterError` if a call fails, and `OSError` unchanged if it concerns a file.
    """
    try:
        return client.run(function, *words, workers=workers)
    except OSError as error:
        if error.errno is not None and error.filename is not None:
            raise  # a file's error, which the caller explains
        raise _could_not(error) from error
    except Exception as error:  # the worker was lost, or has another version
        raise _could_not(error) from error


def ask_each(
    client: Any, function: Callable[..., Any], words_of: Mapping[str, Sequence[Any]]
) -> dict[str, Any]:
    """Call a function on workers, and return the results by address.

    `words_of` has the arguments by address. The function runs in a thread, so that the worker's
    event loop still answers the scheduler. Raises the errors of `ask`.
    """
    answers: dict[str, Any] = ask(client, _in_thread, function, words_of, workers=list(words_of))
    return answers


async def _in_thread(
    function: Callable[..., Any], words_of: Mapping[str, Sequence[Any]], dask_worker: Any = None
) -> Any:
    return await asyncio.to_thread(function, *words_of[dask_worker.address])


def _could_not(error: Exception) -> ClusterError:
    return ClusterError(
        f"a worker could not measure: {type(error).__name__}: {error}",
        hint="Workers need the same distrain as this machine: `distrain doctor --scheduler "
        "ADDRESS` compares them.",
    )


def take_inventory(client: Any) -> tuple[dict[str, Any], ...]:
    """Return a description of each host: `node`, `workers` (their number), and `describe_host`.

    The GPUs are those visible to the host's first worker. Raises `ClusterError` if there are no
    workers.
    """
    hosts = workers_by_host(client)
    answers = ask(client, describe_host, workers=[workers[0] for workers in hosts.values()])
    return tuple(
        {"node": host, "workers": len(workers), **answers[workers[0]]}
        for host, workers in hosts.items()
    )


def describe_host() -> dict[str, Any]:
    """Describe the machine of this process, as JSON values."""
    import torch

    gpus = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    return {
        "hostname": socket.gethostname(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "gpus": [torch.cuda.get_device_name(index) for index in gpus],
        "system": platform.platform(),
        "python": platform.python_version(),
        "distrain": build(),
        **{name: package_version(name) for name in ("torch", "dask", "distributed", "pyarrow")},
    }


def measure_host_memory(client: Any, size_bytes: int, repeats: int) -> list[Measure]:
    """Measure STREAM's copy and triad on one worker per host, with three arrays of `size_bytes`."""
    hosts = one_per_host(client)
    answers = ask_each(client, stream, dict.fromkeys(hosts.values(), (size_bytes, repeats)))
    return measures_of(hosts, answers, size_bytes)


def measures_of(
    hosts: dict[str, str], answers: dict[str, dict[str, list[float]]], size_bytes: int
) -> list[Measure]:
    """Return the measures of all hosts, from the answers of one worker on each host.

    Args:
        hosts: The address of each host's worker, by the host's name.
        answers: By address, a worker's results in bytes/s by the measure's name.
        size_bytes: The size of the arrays or files that were measured, as the results record it.
    """
    return [
        Measure(name, f"node {host}", "bytes/s", tuple(rates), size_bytes)
        for host, address in hosts.items()
        for name, rates in answers[address].items()
    ]


def stream(size_bytes: int, repeats: int) -> dict[str, Sequence[float]]:
    """Return bytes/s of STREAM's copy and triad in each repetition, by the measure's name.

    Each of the three arrays has about `size_bytes`. torch's threads of this process do the work,
    first in a repetition for warm-up. As in STREAM, the bytes that the operation reads and writes
    are counted, but not the cache's reads of memory that is then overwritten.
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
        name: [rate_of(work, arrays * count * _BYTES_PER_VALUE) for _ in range(repeats + 1)][1:]
        for name, (arrays, work) in kernels.items()
    }


def rate_of(work: Callable[[], object], amount: float) -> float:
    """Return `amount` divided by the seconds that a call of `work` takes."""
    start_s = time.perf_counter()
    work()
    return amount / (time.perf_counter() - start_s)
