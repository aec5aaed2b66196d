"""What the hosts of a cluster have."""

import os
import platform
import socket
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import psutil

from distrain.bench.measuring.on_workers import ask, workers_by_host
from distrain.version import build


def take_inventory(client: Any) -> tuple[dict[str, Any], ...]:
    """One entry per host; GPUs are those that its first worker sees."""
    hosts = workers_by_host(client)
    answers = ask(client, describe_host, workers=[workers[0] for workers in hosts.values()])
    return tuple(
        {"node": host, "workers": len(workers), **answers[workers[0]]}
        for host, workers in hosts.items()
    )


def describe_host() -> dict[str, Any]:
    """The machine of this process, as JSON values."""
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
        **{name: _version(name) for name in ("torch", "dask", "distributed", "pyarrow")},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
