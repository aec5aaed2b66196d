"""The machine that a command runs on, and what is installed there."""

import os
import platform
import socket
from importlib import metadata
from typing import Any

import psutil

from distrain.train.hardware import cpu_model

PACKAGES = (
    "distrain", "torch", "dask", "distributed", "numpy", "pyarrow", "pydantic", "fsspec",
    "triton", "cudf-cu13", "dask-cuda",
)  # fmt: skip
"""Those whose versions are told, where they are installed."""


def describe_environment() -> dict[str, Any]:
    """Host, operating system, CPU, memory, Python and packages, as JSON values."""
    return {
        "host": socket.gethostname(),
        "system": platform.platform(),
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
