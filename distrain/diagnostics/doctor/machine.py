"""Checks this machine."""

import os
import platform
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from distrain.diagnostics.check import Check, CheckVerdict
from distrain.errors import DistrainError
from distrain.formatting import byte_size
from distrain.storage.outputs import check_writable
from distrain.version import build, how_to_install
from distrain.workers.local import check_shared_memory

NEEDED = ("torch", "dask", "distributed", "pyarrow", "numpy", "pydantic", "safetensors", "bokeh")
GPU_NEEDED = ("dask-cuda", "cudf-cu13", "rmm-cu13", "distributed-ucxx-cu13")
LEAST_MEMORY_GIB = 4.0


def check_machine() -> Iterator[Check]:
    yield Check("python", CheckVerdict.OK, f"{platform.python_version()} at {sys.executable}")
    yield Check("distrain", CheckVerdict.OK, build())
    for package in NEEDED:
        yield _installed(package)
    checks: dict[str, Callable[[], Iterator[Check]]] = {
        "dask = distributed": _same_dask,
        "cores": _cores,
        "memory": _memory,
        "/dev/shm": _shared_memory,
        **{name: partial(_kernel, name) for name in _KERNELS},
        "gpu": _gpus,
    }
    for name, check in checks.items():
        try:
            yield from check()
        except Exception as error:  # a failing check is a finding; the others continue
            yield Check(name, CheckVerdict.FAIL, f"check failed: {type(error).__name__}: {error}")


def check_write_access(folder: Path) -> Check:
    try:
        check_writable(folder)
    except DistrainError as error:
        return Check(
            "write access", CheckVerdict.FAIL, f"{folder}: {error.message}", error.hint or ""
        )
    except ValueError as error:  # a path that no system accepts
        return Check("write access", CheckVerdict.FAIL, f"{folder!r}: {error}")
    return Check("write access", CheckVerdict.OK, str(folder.absolute()))


def _installed(package: str) -> Check:
    try:
        installed = version(package)
        import_module(package)
    except PackageNotFoundError:
        return Check(package, CheckVerdict.FAIL, "not installed", f"pip install {package}")
    except Exception as error:
        detail, mend = f"cannot be imported: {error}", f"pip install -U {package}"
        return Check(package, CheckVerdict.FAIL, detail, mend)
    return Check(package, CheckVerdict.OK, installed)


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


def _kernel(name: str) -> Iterator[Check]:
    (place, _, flag), instead = _KERNELS[name][0].partition(":"), _KERNELS[name][1]
    module = import_module(place)
    is_built = getattr(module, flag)
    is_built = is_built() if callable(is_built) else is_built in (True, "C")
    if name == "page decoder" and is_built and not module.is_enabled():
        mend = "Unset DISTRAIN_PAGES, or set it to 1."
        yield Check(name, CheckVerdict.NOTE, "off: DISTRAIN_PAGES is 0", mend)
    elif is_built:
        yield Check(name, CheckVerdict.OK, "built")
    else:
        yield Check(name, CheckVerdict.NOTE, f"not built: {instead}, more slowly", _REBUILD)


def _same_dask() -> Iterator[Check]:
    try:
        dask, distributed = version("dask"), version("distributed")
    except PackageNotFoundError as error:
        yield Check("dask = distributed", CheckVerdict.FAIL, f"{error} is missing")
        return
    if dask != distributed:
        mend = f"pip install dask=={dask} distributed=={dask}"
        yield Check("dask = distributed", CheckVerdict.FAIL, f"{dask} and {distributed}", mend)
    else:
        yield Check("dask = distributed", CheckVerdict.OK, dask)


def _cores() -> Iterator[Check]:
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    mend = "Two ranks would share one core."
    yield _noted("cores", str(cores), "" if cores > 1 else mend)


def _memory() -> Iterator[Check]:
    available = psutil.virtual_memory().available
    mend = "prepare with one worker, train with few prefetched batches."
    mend = f"Under {LEAST_MEMORY_GIB:g} GiB: {mend}"
    is_enough = available >= LEAST_MEMORY_GIB * 2**30
    yield _noted("memory", f"{byte_size(available)} available", "" if is_enough else mend)


def _shared_memory() -> Iterator[Check]:
    try:
        stats = check_shared_memory()
    except DistrainError as error:
        yield Check("/dev/shm", CheckVerdict.FAIL, error.message, error.hint or "")
        return
    free = stats.f_bavail * stats.f_frsize
    mend = "`docker run --shm-size=1g`, or an emptyDir with medium: Memory."
    mend = f"NCCL may fail with less than 256 MiB: {mend}"
    yield _noted("/dev/shm", f"{byte_size(free)} free", "" if free >= 256 * 2**20 else mend)


def _noted(name: str, detail: str, mend: str) -> Check:
    return Check(name, CheckVerdict.NOTE if mend else CheckVerdict.OK, detail, mend)


def _gpus() -> Iterator[Check]:
    from distrain.workers.local import count_gpus

    gpus = count_gpus()
    if not gpus:
        yield Check(
            "gpu", CheckVerdict.NOTE, "none visible to CUDA's driver; ranks train on the CPU"
        )
        return
    import torch

    if not torch.cuda.is_available():
        detail = f"the driver has {gpus}, but torch {torch.__version__} cannot use them"
        mend = "Install a CUDA build of torch that matches the driver (see nvidia-smi)."
        yield Check("gpu", CheckVerdict.FAIL, detail, mend)
        return
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        memory = byte_size(properties.total_memory)
        yield Check("gpu", CheckVerdict.OK, f"{index}: {properties.name}, {memory}")
    for package in GPU_NEEDED:
        try:
            yield Check(package, CheckVerdict.OK, version(package))
        except PackageNotFoundError:
            yield Check(package, CheckVerdict.NOTE, "not installed", how_to_install("gpu"))


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
