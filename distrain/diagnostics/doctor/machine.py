"""Checks this machine: packages, compiled kernels, memory, GPUs and access to folders."""

import os
import platform
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from distrain.diagnostics.check import Check, CheckVerdict, checked
from distrain.errors import ClusterError, DistrainError, OutputError
from distrain.formatting import byte_size
from distrain.storage.outputs import check_place
from distrain.version import build, how_to_install
from distrain.workers.local import check_shared_memory, count_gpus

NEEDED = ("torch", "dask", "distributed", "pyarrow", "numpy", "pydantic", "safetensors", "bokeh")
GPU_NEEDED = ("dask-cuda", "cudf-cu13", "rmm-cu13", "distributed-ucxx-cu13")
LEAST_MEMORY_GIB = 4.0


Found = tuple[str, str]
"""The result of a check as text, and how to correct it; the latter is "" if nothing is wrong."""


def check_machine() -> Iterator[Check]:
    """Return the checks of this machine; each is made when the iterator reaches it."""
    looks: dict[str, Callable[[], Found]] = {
        "python": lambda: (f"{platform.python_version()} at {sys.executable}", ""),
        "distrain": lambda: (build(), ""),
        **{package: partial(_installed, package) for package in NEEDED},
        "dask = distributed": _same_dask,
        "cores": _cores,
        "memory": _memory,
        "/dev/shm": _shared_memory,
        **{name: partial(_kernel, name) for name in _KERNELS},
        "gpu": _gpus,
    }
    if count_gpus():
        looks |= {package: partial(_gpu_package, package) for package in GPU_NEEDED}
    return (checked(name, look) for name, look in looks.items())


def check_write_access(folder: Path, name: str = "write access") -> Check:
    def look() -> Found:
        try:
            check_place(folder)
        except DistrainError as error:
            raise OutputError(f"{folder}: {error.message}", hint=error.hint) from None
        return str(folder.absolute()), ""

    return checked(name, look)


def _installed(package: str) -> Found:
    try:
        installed = version(package)
        import_module(package)
    except PackageNotFoundError:
        raise ClusterError("not installed", hint=f"pip install {package}") from None
    except Exception as error:
        hint = f"pip install -U {package}"
        raise ClusterError(f"cannot be imported: {error}", hint=hint) from None
    return installed, ""


_REBUILD = (
    "Install a wheel of distrain for this platform, which includes it (its name has abi3), or a C "
    "compiler and then distrain again: pip install --force-reinstall --no-deps ."
)


_KERNELS = {  # by name: the flag of a built kernel, and its fallback
    "loader kernel": ("distrain.loader.filling.kernel:KERNEL", "NumPy fills batches"),
    "page decoder": ("distrain.loader.parquet_pages.leaves:BUILT", "Arrow decodes all columns"),
    "order kernel": (
        "distrain.loader.partition.row_order:ORDER_IS_BUILT",
        "NumPy draws and sorts the order of rows",
    ),
    "text splitter": (
        "distrain.prep.raw_lines:SPLITTER_IS_BUILT",
        "Arrow reads all of Criteo's text",
    ),
    "tables' kernels": (
        "distrain.models.embeddings.kernels.dispatch:is_built",
        "torch looks up and updates embedding rows",
    ),
}


def _kernel(name: str) -> Found:
    (place, _, flag), instead = _KERNELS[name][0].partition(":"), _KERNELS[name][1]
    module = import_module(place)
    is_built = getattr(module, flag)
    is_built = is_built() if callable(is_built) else is_built in (True, "C")
    if not is_built:
        return f"not built: {instead}, more slowly", _REBUILD
    if name == "page decoder" and not module.is_enabled():
        return "off: DISTRAIN_PAGES is 0", "Unset DISTRAIN_PAGES, or set it to 1."
    return "built", ""


def _same_dask() -> Found:
    dask, distributed = version("dask"), version("distributed")
    if dask != distributed:
        hint = f"pip install dask=={dask} distributed=={dask}"
        raise ClusterError(f"{dask} and {distributed}", hint=hint)
    return dask, ""


def _cores() -> Found:
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return str(cores), "" if cores > 1 else "Two ranks would share one core."


def _memory() -> Found:
    available = psutil.virtual_memory().available
    mend = "prepare with one worker, train with few prefetched batches."
    mend = f"Under {LEAST_MEMORY_GIB:g} GiB: {mend}"
    is_enough = available >= LEAST_MEMORY_GIB * 2**30
    return f"{byte_size(available)} available", "" if is_enough else mend


def _shared_memory() -> Found:
    stats = check_shared_memory()
    free = stats.f_bavail * stats.f_frsize
    mend = "`docker run --shm-size=1g`, or an emptyDir with medium: Memory."
    mend = f"NCCL may fail with less than 256 MiB: {mend}"
    return f"{byte_size(free)} free", "" if free >= 256 * 2**20 else mend


def _gpus() -> Found:
    gpus = count_gpus()
    if not gpus:
        return "none visible to CUDA's driver", "Ranks train on the CPU."
    import torch

    if not torch.cuda.is_available():
        raise ClusterError(
            f"the driver has {gpus}, but torch {torch.__version__} cannot use them",
            hint="Install a CUDA build of torch that matches the driver (see nvidia-smi).",
        )
    found = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    named = (f"{n}: {one.name}, {byte_size(one.total_memory)}" for n, one in enumerate(found))
    return "; ".join(named), ""


def _gpu_package(package: str) -> Found:
    try:
        return version(package), ""
    except PackageNotFoundError:
        return "not installed", how_to_install("gpu")


def check_for_rapids(verbose: bool = False, **_: object) -> str:
    """Check that distrain and its packages are installed and compatible.

    `rapids doctor` calls this through the entry point `rapids_doctor_check`.

    Returns:
        A text with the number of checks; with `verbose`, a line for each check.

    Raises:
        ValueError: A check failed; the message has all failed checks.
    """
    checks = list(check_machine())
    failed = [check for check in checks if check.verdict is CheckVerdict.FAIL]
    if failed:
        raise ValueError("; ".join(f"{c.name}: {c.detail}. {c.mend}" for c in failed))
    details = "\n".join(f"{check.name}: {check.detail}" for check in checks)
    return details if verbose else f"{len(checks)} checks of distrain passed"
