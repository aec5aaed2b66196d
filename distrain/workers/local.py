"""Starts a cluster on this machine.

`local_cluster` starts one worker process per rank, with one GPU each if there are enough.
`local_threads` uses threads of this process, for work that spends its time outside of Python.
"""

import ast
import ctypes
import importlib.util
import logging
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context, resource_tracker
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from typing import Any

from distrain.errors import ClusterError, DistrainError
from distrain.version import build, how_to_install
from distrain.workers.shared_context import SharedContext
from distrain.workers.worker_replacement import nannies_kept, replace_workers

SHARED_MEMORY = "/dev/shm"

# When training uses every core, Dask's periodic work takes time from the ranks (docs/log.md).
# By default it checks each event loop's health 50 times a second, reads its process's usage twice
# a second, compares each worker's memory with its limit 10 times a second in two processes, and
# samples each worker's threads 100 times a second. A rank is a separate process, so none of this
# is useful for it.
_QUIET_LOOPS = {
    "distributed.worker.memory.monitor-interval": "500ms",
    "distributed.admin.tick.interval": "500ms",
    "distributed.admin.system-monitor.interval": "2s",
    "distributed.worker.profile.enabled": False,
}

_FORKED = {"distributed.worker.multiprocessing-method": "forkserver"}
"""Dask's setting to fork worker processes from a process that has imported their modules.

`begin_imports` starts that process.
"""

_AT_START = {
    "PYTHONSAFEPATH": "1",  # nothing is imported from the current folder
    # As Dask's nannies set for what they spawn; C libraries read it only at their start.
    "MALLOC_TRIM_THRESHOLD_": str(2**16),
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""Environment variables that `begin_imports` sets for its process, unless they are set already."""

_starts = threading.Lock()

# The caller gets errors as exceptions; Dask would only log heartbeats of workers that reach a
# closing scheduler.
_ONLY_CRITICAL = logging.CRITICAL


@contextmanager
def _silence_dask() -> Iterator[None]:
    from distributed.utils import silence_logging_cmgr

    # If the program had configured logging before it imported Dask, the root logger's handlers get
    # Dask's records. Without any handler, Python would print warnings.
    logger, nowhere = logging.getLogger("distributed"), logging.NullHandler()
    propagated, logger.propagate = logger.propagate, False
    logger.addHandler(nowhere)
    try:
        with silence_logging_cmgr(_ONLY_CRITICAL):
            yield
    finally:
        logger.removeHandler(nowhere)
        logger.propagate = propagated


_dask_is_quiet = SharedContext(_silence_dask)

_PRELOAD_KEY = "distributed.scheduler.preload"
_PRELOAD = "distrain.preload"
"""The module that Dask loads in the scheduler; it adds the coordinator and its dashboard pages."""

ON_REQUEST = "distrain.dashboard-on-request"
"""The name of a Dask setting: whether the dashboard is loaded only at its first request."""


def begin_imports() -> None:
    """Start the process from which worker processes are forked, if it does not run yet.

    Returns at once. The new process imports the modules that workers need, while this process does
    other work.
    """
    get_context("forkserver").set_forkserver_preload(["distrain.workers.supervisor"])
    added = {name: value for name, value in _AT_START.items() if name not in os.environ}
    # Ctrl-C is for this process; the other one, and all that it forks, begin with it blocked.
    resource_tracker.ensure_running()  # its start, at first use, would unblock it
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.environ.update(added)
    try:
        ensure_running()
    finally:
        for name in added:
            del os.environ[name]
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


@contextmanager
def local_cluster(
    num_workers: int,
    threads_per_worker: int,
    device: str,
    dashboard_address: str,
    *,
    private: bool = False,
) -> Iterator[Any]:
    """Yield a client of a new cluster of worker processes on this machine.

    Workers that end are replaced. If that fails, the cluster is closed, and `why_lost` returns the
    reason.

    Args:
        num_workers: The number of worker processes.
        threads_per_worker: The number of Dask threads of each.
        device: `cpu`; `cuda`: each worker gets a GPU; `auto`: `cuda` if there are enough GPUs.
        dashboard_address: Where the scheduler's HTTP server listens, such as `127.0.0.1:0`.
        private: Whether Dask's connections require a certificate that exists only in the memory of
            these processes, so that other users of the machine cannot connect.

    Raises:
        ClusterError: The cluster does not start; there are too few GPUs; GPUs are to be used and
            dask-cuda is not installed; the main script has no main guard; a Dask setting is
            invalid; or this is a Dask task.
    """
    import dask
    from distributed import Client, LocalCluster, utils

    from distrain.workers.interrupts import IgnoreInterrupts

    options = {
        "n_workers": num_workers,
        "threads_per_worker": threads_per_worker,
        "dashboard_address": dashboard_address,
        "host": "127.0.0.1",
        "silence_logs": _ONLY_CRITICAL,  # also in the worker processes
        "scheduler_kwargs": {"dashboard": False},  # the preload adds it
        "security": True if private else None,
    }
    _check_main_guard()
    _check_no_task()
    gpus = check_this_machine(num_workers, device)
    given = dask.config.get(_PRELOAD_KEY, None) or []
    preloads = [given] if isinstance(given, str) else list(given)
    if _PRELOAD not in preloads:
        preloads.append(_PRELOAD)
    # Dask logs the messages that a closed cluster could not send after the end of `silence_logs`.
    logging.getLogger("distributed.batched").setLevel(logging.WARNING)
    with ExitStack() as until_end:
        until_end.enter_context(_dask_is_quiet.held())
        until_end.enter_context(nannies_kept.held())
        with _start_with({_PRELOAD_KEY: preloads, ON_REQUEST: True}):
            if gpus >= num_workers:
                cluster = _cuda_cluster(options)
            else:
                begin_imports()
                utils._forkserver_preload_set = True  # Dask's own preload would import pandas here
                # The process that workers are forked from may have an older environment.
                options["env"] = dict(os.environ)
                with dask.config.set(_FORKED):
                    cluster = LocalCluster(processes=True, **options)
            until_end.enter_context(cluster)
            client = until_end.enter_context(Client(cluster, set_as_default=False))
            client.register_plugin(IgnoreInterrupts())
            check_builds(client)
            replace_workers(cluster)
        yield client


def check_builds(client: Any) -> None:
    """Raise `ClusterError` if a worker of the client's cluster has another build than this process.

    The scheduler would never place ranks on that worker, and jobs would wait.
    """
    if {*client.run(build).values()} - {build()}:
        raise ClusterError(
            "the source code of distrain has changed while the cluster started",
            hint="Run the command again.",
        )


@contextmanager
def local_threads(num_threads: int) -> Iterator[Any]:
    """Yield a client of a new cluster whose only worker consists of threads of this process.

    The cluster takes half a second of processor time to start, a worker process one and a half. It
    has no dashboard and no coordinator. Its HTTP servers listen on the loopback interface, without
    any routes. Raises `ClusterError` if the cluster does not start.
    """
    from distributed import Client, Scheduler, SpecCluster, Worker

    # `LocalCluster` would listen on every address, and warn if port 8787 is in use.
    shared = {"protocol": "inproc://", "dashboard": False, "dashboard_address": "127.0.0.1:0"}
    # No memory limit: Dask would count this whole process.
    threads = {**shared, "nthreads": num_threads, "memory_limit": 0}
    no_routes: dict[str, list[str]] = {
        f"distributed.{role}.http.routes": [] for role in ("scheduler", "worker")
    }
    with ExitStack() as until_end:
        until_end.enter_context(_dask_is_quiet.held())
        with _start_with({_PRELOAD_KEY: [], **no_routes}):
            cluster = SpecCluster(
                workers={0: {"cls": Worker, "options": threads}},
                scheduler={"cls": Scheduler, "options": shared},
            )
            until_end.enter_context(cluster)
            client = until_end.enter_context(Client(cluster, set_as_default=False))
        yield client


@contextmanager
def _start_with(changes: Mapping[str, Any]) -> Iterator[None]:
    """Change Dask's settings during the block, which starts a cluster.

    Any error of the block, except a `DistrainError`, becomes a `ClusterError` of one line. Only one
    thread at a time is in such a block: if two overlapped, the one that ends last would restore the
    settings of the other for the rest of the process.
    """
    import dask

    try:
        with _starts, dask.config.set({**_QUIET_LOOPS, **changes}):
            yield
    except DistrainError:
        raise
    except Exception as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        settings = "Dask's settings in ~/.config/dask and in DASK_... variables"
        hint = f"Check {settings}; `distrain doctor` checks this machine."
        if isinstance(cause, ImportError):
            hint = f"Make the preload importable, or remove it from {settings}."
        elif "home directory" in str(cause):
            hint = "This user has no entry in /etc/passwd: set HOME to a folder, such as HOME=/tmp."
        cause_text = str(cause).strip().partition("\n")[0][:200] or type(cause).__name__
        raise ClusterError(
            f"no cluster could be started on this machine: {cause_text}", hint=hint
        ) from error


def _check_main_guard() -> None:
    """Raise `ClusterError` if worker processes would run the main script again.

    They would if it has no `if __name__ == "__main__":`.
    """
    main = sys.modules["__main__"]
    file, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    if file is None or (spec is not None and spec.name.rpartition(".")[2] == "__main__"):
        return  # workers do not run it
    try:
        body = ast.parse(Path(file).read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return
    guards = (one.test for one in body if isinstance(one, ast.If))
    names = (part for test in guards for part in ast.walk(test) if isinstance(part, ast.Name))
    if not any(name.id == "__name__" for name in names):
        raise ClusterError(
            "the script has no main guard: each worker process would run it again",
            where={"script": file},
            hint='Put its code under `if __name__ == "__main__":`; '
            "or train in one process with resources.backend: inline.",
        )


def _check_no_task() -> None:
    """Raise `ClusterError` if this is a Dask task in a worker process, where no cluster starts."""
    from distributed import get_worker

    try:
        worker = get_worker()
    except ValueError:
        return
    if worker.nanny:
        raise ClusterError(
            "a local cluster cannot start inside a Dask task",
            where={"worker": worker.address},
            hint="In a task, train with resources.backend: inline; or call it outside of tasks, "
            "with the cluster's client as `scheduler`.",
        )


def dashboard_link(client: Any) -> str:
    """Return the URL of the dashboard of a client's cluster, made from Dask's template.

    If the template has unknown variables, the result is a text that says so.
    """
    try:
        return str(client.dashboard_link)
    except (KeyError, IndexError, ValueError) as error:
        return f"unknown: Dask's setting distributed.dashboard.link cannot be filled in: {error}"


_ONE_PROCESS = (
    "one process needs none: `--set resources.backend=inline --set resources.num_ranks=1`"
)


def _check_loopback() -> None:
    """Raise `ClusterError` if the loopback interface does not work; Dask would retry for 30 s."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), 5).close()
    except OSError as error:
        raise ClusterError(
            "processes of this machine cannot reach each other at 127.0.0.1: "
            f"{error.strerror or error}",
            hint=f"`ip link set lo up`; {_ONE_PROCESS}.",
        ) from error


def check_shared_memory() -> os.statvfs_result:
    """Return the `statvfs` of the shared memory's filesystem, which has its size.

    Raises `ClusterError` if nothing can be written there, since Dask would hang.
    """
    try:
        with tempfile.TemporaryFile(dir=SHARED_MEMORY) as file:
            file.write(bytes(65536))
        return os.statvfs(SHARED_MEMORY)
    except OSError as error:
        raise ClusterError(
            f"{SHARED_MEMORY} cannot be written: {error.strerror}",
            hint=f"`mount -t tmpfs -o mode=1777 shm {SHARED_MEMORY}`; in Kubernetes an emptyDir of "
            f"memory there; {_ONE_PROCESS}.",
        ) from error


def check_this_machine(num_workers: int, device: str) -> int:
    """Check that a local cluster can start; return the number of GPUs, or 0 for the device `cpu`.

    Raises `ClusterError` if the loopback interface or the shared memory does not work, or if the
    device is `cuda` and there are fewer GPUs than workers.
    """
    _check_loopback()
    check_shared_memory()
    gpus = count_gpus() if device != "cpu" else 0
    if device == "cuda" and gpus < num_workers:
        raise ClusterError(
            f"{num_workers} workers need one GPU each, but this machine has {gpus}",
            hint="Lower resources.num_ranks, set resources.device to cpu, or use --scheduler.",
        )
    return gpus


def device_of_workers(num_workers: int) -> str:
    """Return the device that commands choose for the workers of a local cluster: `cuda` or `cpu`.

    It is `cuda` if dask-cuda is installed and there is a GPU for each worker, otherwise `cpu`.
    """
    has_cuda_workers = importlib.util.find_spec("dask_cuda") is not None
    return "cuda" if has_cuda_workers and count_gpus() >= num_workers else "cpu"


def count_gpus() -> int:
    """Return the number of NVIDIA GPUs visible to this process. Does not import torch."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def _cuda_cluster(options: dict[str, Any]) -> Any:
    try:
        from dask_cuda import LocalCUDACluster
    except ImportError as error:
        raise ClusterError(
            f"this machine has GPUs, but dask-cuda cannot be imported: {error}",
            hint=f"Install it with {how_to_install('gpu')}, or set resources.device to cpu.",
        ) from error
    return LocalCUDACluster(**options)
