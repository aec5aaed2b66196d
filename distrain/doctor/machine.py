"""Checks of this machine, and whether a cluster answers at all."""

import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from distrain.checks import Check, Verdict
from distrain.errors import DistrainError
from distrain.storage import check_writable
from distrain.version import build, how_to_install
from distrain.wording import byte_size

NEEDED = ("torch", "dask", "distributed", "pyarrow", "numpy", "pydantic", "safetensors", "bokeh")
GPU_NEEDED = ("dask-cuda", "cudf-cu13", "rmm-cu13", "distributed-ucxx-cu13")
LEAST_MEMORY_GIB = 4.0


def check_machine() -> Iterator[Check]:
    yield Check("python", Verdict.OK, f"{platform.python_version()} at {sys.executable}")
    yield Check("distrain", Verdict.OK, build())
    for package in NEEDED:
        yield _installed(package)
    checks: dict[str, Callable[[], Iterable[Check]]] = {
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
            yield Check(name, Verdict.FAIL, f"cannot look: {type(error).__name__}: {error}")


def check_write_access(folder: Path) -> Check:
    try:
        check_writable(folder)
    except DistrainError as error:
        return Check("write access", Verdict.FAIL, f"{folder}: {error.message}", error.hint or "")
    except ValueError as error:  # a path that no system takes
        return Check("write access", Verdict.FAIL, f"{folder!r}: {error}")
    return Check("write access", Verdict.OK, str(folder.absolute()))


def check_scheduler(address: str, timeout_s: float = 10.0) -> Iterator[Check]:
    """Whether a Dask cluster answers within `timeout_s`, has workers, and the same versions."""
    from distrain.cluster import connect

    try:
        with connect(address, timeout_s=timeout_s) as client:
            workers = client.scheduler_info(n_workers=-1)["workers"]
            yield Check("scheduler", Verdict.OK, f"{address}, {len(workers)} workers")
            if not workers:
                mend = f"Start some: dask worker {address}"
                yield Check("workers", Verdict.FAIL, "the cluster has none", mend)
                return
            theirs = client.run(_versions)
            odd = [worker for worker, found in theirs.items() if found != _versions()]
            yield Check(
                "same versions",
                Verdict.FAIL if odd else Verdict.OK,
                f"{', '.join(odd)} differ: {theirs[odd[0]]}" if odd else f"{_versions()}",
                "Install the same distrain, torch and dask everywhere." if odd else "",
            )
    except DistrainError as error:
        yield Check("scheduler", Verdict.FAIL, error.message, error.hint or "")
    except Exception as error:
        mend = "Install distrain on every worker and on the scheduler."
        yield Check("workers", Verdict.FAIL, f"cannot run distrain there: {error}", mend)


def _versions() -> dict[str, str]:
    return {"distrain": build()} | {name: version(name) for name in ("torch", "distributed")}


def _installed(package: str) -> Check:
    try:
        found = version(package)
        import_module(package)
    except PackageNotFoundError:
        return Check(package, Verdict.FAIL, "not installed", f"pip install {package}")
    except Exception as error:
        detail, mend = f"cannot be imported: {error}", f"pip install -U {package}"
        return Check(package, Verdict.FAIL, detail, mend)
    return Check(package, Verdict.OK, found)


_REBUILD = "Install a C compiler, then distrain again: pip install --force-reinstall --no-deps ."


def _loader_kernel() -> Check:
    from distrain.loader.filling import KERNEL

    return _kernel("loader kernel", KERNEL == "C", "NumPy fills batches")


def _page_decoder() -> Check:
    from distrain.loader import pages

    if pages.BUILT and not pages.is_enabled():
        mend = "Unset DISTRAIN_PAGES, or set it to 1."
        return Check("page decoder", Verdict.NOTE, "off: DISTRAIN_PAGES is 0", mend)
    return _kernel("page decoder", pages.BUILT, "Arrow decodes all columns")


def _order_kernel() -> Check:
    from distrain.partition import ORDER_IS_BUILT

    return _kernel("order kernel", ORDER_IS_BUILT, "NumPy draws and sorts the order of rows")


def _text_splitter() -> Check:
    from distrain.etl import SPLITTER_IS_BUILT

    return _kernel("text splitter", SPLITTER_IS_BUILT, "Arrow reads all of Criteo's text")


def _tables_kernels() -> Check:
    from distrain.embeddings import kernels

    instead = "torch looks up and updates embedding rows"
    return _kernel("tables' kernels", kernels.is_built(), instead)


def _kernel(name: str, is_built: bool, instead: str) -> Check:
    if is_built:
        return Check(name, Verdict.OK, "built")
    return Check(name, Verdict.NOTE, f"not built: {instead}, more slowly", _REBUILD)


def _same_dask() -> Check:
    try:
        dask, distributed = version("dask"), version("distributed")
    except PackageNotFoundError as error:
        return Check("dask = distributed", Verdict.FAIL, f"{error} is missing")
    if dask != distributed:
        mend = f"pip install dask=={dask} distributed=={dask}"
        return Check("dask = distributed", Verdict.FAIL, f"{dask} and {distributed}", mend)
    return Check("dask = distributed", Verdict.OK, dask)


def _cores() -> Check:
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    if cores < 2:
        return Check("cores", Verdict.NOTE, str(cores), "Two ranks would share the one core.")
    return Check("cores", Verdict.OK, str(cores))


def _memory() -> Check:
    import psutil

    available = psutil.virtual_memory().available
    detail = f"{byte_size(available)} available"
    if available >= LEAST_MEMORY_GIB * 2**30:
        return Check("memory", Verdict.OK, detail)
    mend = "prepare with one worker, train with few prefetched batches."
    return Check("memory", Verdict.NOTE, detail, f"Under {LEAST_MEMORY_GIB:g} GiB: {mend}")


def _shared_memory() -> Check:
    from distrain.cluster import check_shared_memory

    try:
        stats = check_shared_memory()
    except DistrainError as error:
        return Check("/dev/shm", Verdict.FAIL, error.message, error.hint or "")
    free = stats.f_bavail * stats.f_frsize
    detail = f"{byte_size(free)} free"
    if free >= 256 * 2**20:
        return Check("/dev/shm", Verdict.OK, detail)
    mend = "`docker run --shm-size=1g`, or an emptyDir with medium: Memory."
    return Check("/dev/shm", Verdict.NOTE, detail, f"NCCL may fail with less than 256 MiB: {mend}")


def _gpus() -> Iterator[Check]:
    from distrain.cluster import count_gpus

    gpus = count_gpus()
    if not gpus:
        yield Check("gpu", Verdict.NOTE, "none that CUDA's driver shows; ranks train on the CPU")
        return
    import torch

    if not torch.cuda.is_available():
        detail = f"the driver shows {gpus}, but torch {torch.__version__} cannot use them"
        mend = "Install a CUDA build of torch that fits the driver (see nvidia-smi)."
        yield Check("gpu", Verdict.FAIL, detail, mend)
        return
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        memory = byte_size(properties.total_memory)
        yield Check("gpu", Verdict.OK, f"{index}: {properties.name}, {memory}")
    for package in GPU_NEEDED:
        try:
            yield Check(package, Verdict.OK, version(package))
        except PackageNotFoundError:
            yield Check(package, Verdict.NOTE, "not installed", how_to_install("gpu"))
