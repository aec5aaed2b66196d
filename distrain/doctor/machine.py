"""Checks of this machine, and whether a cluster answers at all."""

import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from distrain.errors import DistrainError
from distrain.storage import check_writable
from distrain.version import build, how_to_install
from distrain.wording import byte_size

NEEDED = ("torch", "dask", "distributed", "pyarrow", "numpy", "pydantic", "safetensors", "bokeh")
GPU_NEEDED = ("dask-cuda", "cudf-cu13", "rmm-cu13", "distributed-ucxx-cu13")
LEAST_MEMORY_GIB = 4.0


class CheckVerdict(StrEnum):
    OK = "ok"
    NOTE = "note"  # works, but somebody may care
    FAIL = "fail"  # distrain cannot work, or not as asked


@dataclass(frozen=True)
class MachineCheck:
    name: str
    verdict: CheckVerdict
    detail: str
    mend: str = ""


def check_machine() -> Iterator[MachineCheck]:
    yield MachineCheck(
        "python", CheckVerdict.OK, f"{platform.python_version()} at {sys.executable}"
    )
    yield MachineCheck("distrain", CheckVerdict.OK, build())
    for package in NEEDED:
        yield _installed(package)
    checks: dict[str, Callable[[], Iterable[MachineCheck]]] = {
        "dask = distributed": lambda: [_same_dask()],
        "cores": lambda: [_cores()],
        "memory": lambda: [_memory()],
        "/dev/shm": lambda: [_shared_memory()],
        "loader kernel": lambda: [_loader_kernel()],
        "page decoder": lambda: [_page_decoder()],
        "order kernel": lambda: [_order_kernel()],
        "text splitter": lambda: [_text_splitter()],
        "tables' kernels": lambda: [_tables_kernels()],
        "gpu": _gpus,
    }
    for name, check in checks.items():
        try:
            yield from check()
        except Exception as error:  # a check that fails is a finding, and the others go on
            yield MachineCheck(
                name, CheckVerdict.FAIL, f"cannot look: {type(error).__name__}: {error}"
            )


def check_write_access(folder: Path) -> MachineCheck:
    try:
        check_writable(folder)
    except DistrainError as error:
        return MachineCheck(
            "write access", CheckVerdict.FAIL, f"{folder}: {error.message}", error.hint or ""
        )
    except ValueError as error:  # a path that no system takes
        return MachineCheck("write access", CheckVerdict.FAIL, f"{folder!r}: {error}")
    return MachineCheck("write access", CheckVerdict.OK, str(folder.absolute()))


def check_scheduler(address: str, timeout_s: float = 10.0) -> Iterator[MachineCheck]:
    """Whether a Dask cluster answers within `timeout_s`, has workers, and the same versions."""
    from distrain.cluster import connect

    try:
        with connect(address, timeout_s=timeout_s) as client:
            workers = client.scheduler_info(n_workers=-1)["workers"]
            yield MachineCheck("scheduler", CheckVerdict.OK, f"{address}, {len(workers)} workers")
            if not workers:
                mend = f"Start some: dask worker {address}"
                yield MachineCheck("workers", CheckVerdict.FAIL, "the cluster has none", mend)
                return
            theirs = client.run(_versions)
            odd = [worker for worker, found in theirs.items() if found != _versions()]
            yield MachineCheck(
                "same versions",
                CheckVerdict.FAIL if odd else CheckVerdict.OK,
                f"{', '.join(odd)} differ: {theirs[odd[0]]}" if odd else f"{_versions()}",
                "Install the same distrain, torch and dask everywhere." if odd else "",
            )
    except DistrainError as error:
        yield MachineCheck("scheduler", CheckVerdict.FAIL, error.message, error.hint or "")
    except Exception as error:
        mend = "Install distrain on every worker and on the scheduler."
        yield MachineCheck(
            "workers", CheckVerdict.FAIL, f"cannot run distrain there: {error}", mend
        )


def _versions() -> dict[str, str]:
    return {"distrain": build()} | {name: version(name) for name in ("torch", "distributed")}


def _installed(package: str) -> MachineCheck:
    try:
        found = version(package)
        import_module(package)
    except PackageNotFoundError:
        return MachineCheck(package, CheckVerdict.FAIL, "not installed", f"pip install {package}")
    except Exception as error:
        detail, mend = f"cannot be imported: {error}", f"pip install -U {package}"
        return MachineCheck(package, CheckVerdict.FAIL, detail, mend)
    return MachineCheck(package, CheckVerdict.OK, found)


_REBUILD = "Install a C compiler, then distrain again: pip install --force-reinstall --no-deps ."


def _loader_kernel() -> MachineCheck:
    from distrain.loader.filling import KERNEL

    return _kernel("loader kernel", KERNEL == "C", "NumPy fills batches")


def _page_decoder() -> MachineCheck:
    from distrain.loader import pages

    if pages.BUILT and not pages.is_enabled():
        mend = "Unset DISTRAIN_PAGES, or set it to 1."
        return MachineCheck("page decoder", CheckVerdict.NOTE, "off: DISTRAIN_PAGES is 0", mend)
    return _kernel("page decoder", pages.BUILT, "Arrow decodes all columns")


def _order_kernel() -> MachineCheck:
    from distrain.partition import ORDER_IS_BUILT

    return _kernel("order kernel", ORDER_IS_BUILT, "NumPy draws and sorts the order of rows")


def _text_splitter() -> MachineCheck:
    from distrain.etl import SPLITTER_IS_BUILT

    return _kernel("text splitter", SPLITTER_IS_BUILT, "Arrow reads all of Criteo's text")


def _tables_kernels() -> MachineCheck:
    from distrain.embeddings import kernels

    instead = "torch looks up and updates embedding rows"
    return _kernel("tables' kernels", kernels.is_built(), instead)


def _kernel(name: str, is_built: bool, instead: str) -> MachineCheck:
    if is_built:
        return MachineCheck(name, CheckVerdict.OK, "built")
    return MachineCheck(name, CheckVerdict.NOTE, f"not built: {instead}, more slowly", _REBUILD)


def _same_dask() -> MachineCheck:
    try:
        dask, distributed = version("dask"), version("distributed")
    except PackageNotFoundError as error:
        return MachineCheck("dask = distributed", CheckVerdict.FAIL, f"{error} is missing")
    if dask != distributed:
        mend = f"pip install dask=={dask} distributed=={dask}"
        return MachineCheck(
            "dask = distributed", CheckVerdict.FAIL, f"{dask} and {distributed}", mend
        )
    return MachineCheck("dask = distributed", CheckVerdict.OK, dask)


def _cores() -> MachineCheck:
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    if cores < 2:
        return MachineCheck(
            "cores", CheckVerdict.NOTE, str(cores), "Two ranks would share the one core."
        )
    return MachineCheck("cores", CheckVerdict.OK, str(cores))


def _memory() -> MachineCheck:
    import psutil

    available = psutil.virtual_memory().available
    detail = f"{byte_size(available)} available"
    if available >= LEAST_MEMORY_GIB * 2**30:
        return MachineCheck("memory", CheckVerdict.OK, detail)
    mend = "prepare with one worker, train with few prefetched batches."
    return MachineCheck(
        "memory", CheckVerdict.NOTE, detail, f"Under {LEAST_MEMORY_GIB:g} GiB: {mend}"
    )


def _shared_memory() -> MachineCheck:
    from distrain.cluster import check_shared_memory

    try:
        stats = check_shared_memory()
    except DistrainError as error:
        return MachineCheck("/dev/shm", CheckVerdict.FAIL, error.message, error.hint or "")
    free = stats.f_bavail * stats.f_frsize
    detail = f"{byte_size(free)} free"
    if free >= 256 * 2**20:
        return MachineCheck("/dev/shm", CheckVerdict.OK, detail)
    mend = "`docker run --shm-size=1g`, or an emptyDir with medium: Memory."
    return MachineCheck(
        "/dev/shm", CheckVerdict.NOTE, detail, f"NCCL may fail with less than 256 MiB: {mend}"
    )


def _gpus() -> Iterator[MachineCheck]:
    from distrain.cluster import count_gpus

    gpus = count_gpus()
    if not gpus:
        yield MachineCheck(
            "gpu", CheckVerdict.NOTE, "none that CUDA's driver shows; ranks train on the CPU"
        )
        return
    import torch

    if not torch.cuda.is_available():
        detail = f"the driver shows {gpus}, but torch {torch.__version__} cannot use them"
        mend = "Install a CUDA build of torch that fits the driver (see nvidia-smi)."
        yield MachineCheck("gpu", CheckVerdict.FAIL, detail, mend)
        return
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        memory = byte_size(properties.total_memory)
        yield MachineCheck("gpu", CheckVerdict.OK, f"{index}: {properties.name}, {memory}")
    for package in GPU_NEEDED:
        try:
            yield MachineCheck(package, CheckVerdict.OK, version(package))
        except PackageNotFoundError:
            yield MachineCheck(package, CheckVerdict.NOTE, "not installed", how_to_install("gpu"))
