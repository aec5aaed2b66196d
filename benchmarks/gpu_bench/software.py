"""Lists installed packages, and what cannot be tested without the missing ones."""

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

NEEDED = {
    "torch": "torch",
    "numpy": "numpy",
    "pyarrow": "pyarrow",
    "pydantic": "pydantic",
    "psutil": "psutil",
    "safetensors": "safetensors",
    "xxhash": "xxhash",
    "yaml": "pyyaml",
    "pytest": "pytest",
    "pytest_timeout": "pytest-timeout",
}
"""Modules that everything here needs, and their packages."""

OPTIONAL = {
    "triton": "distrain's Triton kernels, and CUDA graphs over them",
    "pylibcudf": "the loader's reader `cudf` and its tests",
    "rmm": "the memory pool of the reader `cudf`",
    "dask": "jobs on a cluster",
    "distributed": "jobs on a cluster",
    "dask_cuda": "the test of a CUDA cluster over NCCL",
    "matplotlib": "this report's pictures",
}
"""Modules that only some parts need, and these parts."""

TOLD = (
    "torch", "triton", "numpy", "pyarrow", "pydantic", "dask", "distributed", "dask-cuda",
    "cudf-cu13", "pylibcudf-cu13", "libcudf-cu13", "rmm-cu13", "distributed-ucxx-cu13",
    "nvidia-nccl-cu13", "nvidia-cublas", "nvidia-cudnn-cu13", "pytest",
)  # fmt: skip
"""Packages whose versions are in the report."""

SMI_FIELDS = (
    "name", "driver_version", "memory.total", "memory.used", "power.limit", "clocks.max.sm",
    "clocks.max.mem", "pcie.link.gen.max", "pcie.link.width.max", "utilization.gpu",
)  # fmt: skip
DRIVER = Path("/proc/driver/nvidia/version")


def installed(module: str) -> bool:
    """Return True if a module is installed, without importing it."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def missing(modules: Mapping[str, str]) -> dict[str, str]:
    """Return those of `NEEDED` or `OPTIONAL` that are not installed."""
    return {module: what for module, what in modules.items() if not installed(module)}


def versions() -> dict[str, str | None]:
    """Return the versions of Python and of the packages in `TOLD`; `None` if not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in TOLD:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def host(root: Path) -> dict[str, Any]:
    """Return the machine's description apart from its GPU, and the checkout's commit."""
    import psutil

    from distrain.jobs.devices import cpu_model
    from distrain.loader.filling.kernel import KERNEL
    from distrain.models.embeddings import kernels

    return {
        "system": platform.platform(),
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "memory_free_bytes": psutil.virtual_memory().available,
        "loader_kernel": KERNEL,
        "tables_kernels": "C" if kernels.is_built() else "torch",
        "commit": commit(root),
    }


def commit(root: Path) -> str | None:
    """Return the checkout's commit, with "+" if it has changes; `None` without git."""
    head = output(["git", "-C", str(root), "rev-parse", "HEAD"])
    if not head:
        return None
    return head + ("+" if output(["git", "-C", str(root), "status", "--porcelain"]) else "")


def driver() -> dict[str, Any]:
    """Return the NVIDIA driver's version, and its data on each GPU."""
    told = output(["nvidia-smi", f"--query-gpu={','.join(SMI_FIELDS)}", "--format=csv,noheader"])
    rows = [dict(zip(SMI_FIELDS, line.split(", "), strict=False)) for line in told.splitlines()]
    version = DRIVER.read_text().splitlines()[0] if DRIVER.is_file() else None
    return {"module": version, "nvidia_smi": rows}


def output(command: list[str]) -> str:
    """Return a command's output; "" if it is not installed, fails, or takes over 30 s."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
