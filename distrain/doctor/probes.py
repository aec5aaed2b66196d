"""What a process of the cluster finds out about itself and its machine.

These functions run on workers and on the scheduler. They answer with JSON values, block no event
loop, and end by themselves: a filesystem that hangs holds up a thread, not the process.
"""

import asyncio
import contextlib
import getpass
import os
import platform
import re
import resource
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from distrain.cluster import INTERFACE_VARIABLE, check_shared_memory
from distrain.doctor.facts import ProcessFacts
from distrain.doctor.gpus import look_at_gpus
from distrain.errors import ClusterError, DistrainError
from distrain.storage import boot_id
from distrain.version import build, package_version

PACKAGES = ("torch", "dask", "distributed", "pyarrow", "numpy")


async def look(host: str) -> dict[str, Any]:
    """The `ProcessFacts` of this process, whose Dask address is at `host`."""
    facts = await in_thread(lambda: facts_of_here(host))
    return asdict(facts)


def clock() -> float:
    """This machine's clock, in seconds since 1970."""
    return time.time()


async def in_thread(work: Callable[[], Any]) -> Any:
    """Do blocking work beside the event loop, in a thread that keeps no process from its end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def finish(result: Any, error: Exception | None) -> None:
        if not done.cancelled():
            done.set_exception(error) if error else done.set_result(result)

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except Exception as found:
            error = found
        with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
            loop.call_soon_threadsafe(finish, result, error)

    threading.Thread(target=run, name="distrain-doctor", daemon=True).start()
    return await done


def facts_of_here(host: str) -> ProcessFacts:
    memory = psutil.virtual_memory()
    gpus = look_at_gpus()
    return ProcessFacts(
        hostname=socket.gethostname(),
        network=_network(),
        user=_user(),
        python=platform.python_version(),
        versions={
            "distrain": build(),
            **{package: package_version(package) for package in PACKAGES},
        },
        torch_cuda=_torch_cuda(),
        host=host,
        **_interface(host),
        name_addresses=_own_name(),
        **_shared_memory(),
        memory_bytes=memory.total,
        available_bytes=memory.available,
        open_files=_limit(resource.RLIMIT_NOFILE),
        locked_bytes=_limit(resource.RLIMIT_MEMLOCK),
        port_range=_port_range(),
        gpus=gpus.gpus,
        driver=gpus.driver,
        cuda_driver=gpus.cuda,
        visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        infiniband=_names(Path("/sys/class/infiniband")),
        rendezvous_ports=os.environ.get("DISTRAIN_RENDEZVOUS_PORTS", ""),
        asked_interface=os.environ.get(INTERFACE_VARIABLE, ""),
    )


def _network() -> str:
    # Containers and network namespaces of one machine are hosts of their own to each other.
    with contextlib.suppress(OSError):
        return f"{boot_id().strip()} {os.readlink('/proc/self/ns/net')}"
    return socket.gethostname()


def _user() -> str:
    try:
        return f"{getpass.getuser()} ({os.getuid()})"
    except (KeyError, OSError):  # a container's user without a name
        return str(os.getuid())


def _torch_cuda() -> str:
    # torch itself would take seconds, and memory of the worker.
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return ""
    with contextlib.suppress(OSError):
        text = Path(spec.origin).with_name("version.py").read_text()
        match = re.search(r"^cuda\b[^=]*=\s*['\"]([\d.]+)['\"]", text, re.M)
        return match[1] if match else ""
    return ""


def _interface(host: str) -> dict[str, Any]:
    from distrain.worker import choose_interface, ip_addresses

    facts: dict[str, Any] = {"interfaces": ip_addresses()}
    try:
        name = os.environ.get("GLOO_SOCKET_IFNAME") or choose_interface(host) or ""
    except ClusterError as error:
        return facts | {"interface_trouble": error.message}
    addresses = facts["interfaces"].get(name.partition(",")[0], [])
    if name and not addresses:
        return facts | {"interface": name, "interface_trouble": f"{name} has no IP address here"}
    # gloo takes the interface's first address, which is one of IPv4 if it has any; without an
    # interface that of the machine's own name.
    first = (addresses or _own_name() or [""])[0]
    return facts | {"interface": name, "rank_address": first}


def _own_name() -> list[str]:
    with contextlib.suppress(OSError):
        addresses = socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)
        return sorted({str(address[0]) for *_, address in addresses})
    return []


def _shared_memory() -> dict[str, Any]:
    try:
        stats = check_shared_memory()
    except DistrainError as error:
        return {"shm_trouble": error.message}
    return {"shm_bytes": stats.f_blocks * stats.f_frsize}


def _limit(what: int) -> int:
    soft, _ = resource.getrlimit(what)
    return -1 if soft == resource.RLIM_INFINITY else soft


def _port_range() -> list[int]:
    with contextlib.suppress(OSError, ValueError):
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
        return [int(word) for word in text.split()]
    return []


def _names(folder: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return sorted(path.name for path in folder.iterdir())
    return []


def listens_at(dask_scheduler: Any = None) -> str:
    """The host at which the scheduler's comm listens; Dask hands the scheduler in."""
    from distributed.comm.addressing import get_address_host

    listeners = dask_scheduler.listeners if dask_scheduler is not None else []
    return get_address_host(listeners[0].listen_address) if listeners else ""
