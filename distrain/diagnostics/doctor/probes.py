"""Collects a process's facts about itself and its machine.

The asynchronous functions run on workers and on the scheduler. They return JSON values and do not
block the event loop: a filesystem that hangs blocks a thread, not the process. No function creates
a CUDA context.

To find out whether a folder is the same everywhere, each process leaves a file there. The files are
opened by names that were never looked up before, since network filesystems cache listings and
missing names for up to half a minute.
"""

import contextlib
import getpass
import os
import platform
import re
import resource
import socket
import subprocess
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from distrain.diagnostics.doctor.facts import GpuFacts, ProcessFacts
from distrain.errors import ClusterError, DistrainError
from distrain.storage.background import in_thread
from distrain.storage.unfinished import boot_id
from distrain.version import build, package_version
from distrain.workers.local import check_shared_memory
from distrain.workers.serve_slurm import INTERFACE_VARIABLE

PACKAGES = ("torch", "dask", "distributed", "pyarrow", "numpy")


async def look(host: str) -> dict[str, Any]:
    """Return the `ProcessFacts` of this process, as JSON values.

    `host` is the host of the process's Dask address.
    """
    facts = await in_thread(lambda: facts_of_here(host), ANSWER_S)
    return asdict(facts)


def facts_of_here(host: str) -> ProcessFacts:
    memory = psutil.virtual_memory()
    gpus = query_gpus()
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
    # Containers and network namespaces on one machine count as separate hosts.
    with contextlib.suppress(OSError):
        return f"{boot_id().strip()} {os.readlink('/proc/self/ns/net')}"
    return socket.gethostname()


def _user() -> str:
    try:
        return f"{getpass.getuser()} ({os.getuid()})"
    except (KeyError, OSError):  # a user without a name, as in containers
        return str(os.getuid())


def _torch_cuda() -> str:
    # Not by importing torch, which would take seconds, and memory of the worker.
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return ""
    with contextlib.suppress(OSError):
        text = Path(spec.origin).with_name("version.py").read_text()
        match = re.search(r"^cuda\b[^=]*=\s*['\"]([\d.]+)['\"]", text, re.M)
        return match[1] if match else ""
    return ""


def _interface(host: str) -> dict[str, Any]:
    from distrain.workers.network_interface import choose_interface, ip_addresses

    facts: dict[str, Any] = {"interfaces": ip_addresses()}
    try:
        name = os.environ.get("GLOO_SOCKET_IFNAME") or choose_interface(host) or ""
    except ClusterError as error:
        return facts | {"interface_trouble": error.message}
    addresses = facts["interfaces"].get(name.partition(",")[0], [])
    if name and not addresses:
        return facts | {"interface": name, "interface_trouble": f"{name} has no IP address here"}
    # gloo uses the interface's first address, IPv4 if there is one. If no interface is set, it uses
    # the address of the machine's own name.
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


def _limit(kind: int) -> int:
    soft, _ = resource.getrlimit(kind)
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
    """Return the host at which the scheduler's comm listens; "" if it does not listen.

    Dask passes `dask_scheduler` to functions that run on the scheduler.
    """
    from distributed.comm.addressing import get_address_host

    listeners = dask_scheduler.listeners if dask_scheduler is not None else []
    return get_address_host(listeners[0].listen_address) if listeners else ""


SMI_S = 10.0
ANSWER_S = 3600.0  # an examination waits less; the thread of a filesystem that hangs ends then
_QUERY = "uuid,name,memory.total,memory.free,driver_version"


@dataclass(frozen=True)
class GpusSeen:
    """GPUs in the driver's order, the driver's version, and the newest CUDA that it supports.

    The fields are empty if `nvidia-smi` does not answer.
    """

    gpus: list[GpuFacts] = field(default_factory=list)
    driver: str = ""
    cuda: str = ""


def query_gpus() -> GpusSeen:
    """Return the machine's GPUs from `nvidia-smi`; the result is empty if it does not answer."""
    try:
        rows = _run("nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits")
        gpus, driver = read_rows(rows)
        cuda = re.search(r"CUDA Version:\s*([\d.]+)", _run("nvidia-smi"))
        return GpusSeen(gpus, driver, cuda[1] if cuda else "")
    except (OSError, subprocess.SubprocessError, ValueError):
        return GpusSeen()


def read_rows(text: str) -> tuple[list[GpuFacts], str]:
    """Return the GPUs and the driver's version in the output of `nvidia-smi` for `_QUERY`.

    >>> read_rows("GPU-7f, NVIDIA H100, 81559, 81000, 570.86")[0][0].uuid
    'GPU-7f'
    """
    gpus, driver = [], ""
    for line in filter(str.strip, text.splitlines()):
        uuid, name, total, free, driver = (word.strip() for word in line.split(","))
        gpus.append(GpuFacts(uuid, name, _mebibytes(total), _mebibytes(free)))
    return gpus, driver


def _mebibytes(text: str) -> int:
    return int(text) * 2**20 if text.isdigit() else 0  # [N/A] if the GPU uses host memory


def _run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=SMI_S, check=True)
    return done.stdout


async def leave_file(folder: str, name: str) -> dict[str, Any]:
    """Write a file that contains its own name, for `find_files`; return fields of `FolderSeen`.

    These are `filesystem`, `free_bytes` and, if the file could not be written, `trouble`.
    """
    return await in_thread(lambda: _leave(Path(folder), name), ANSWER_S)


async def find_files(folder: str, names: list[str]) -> list[str]:
    """Return those of `names` that exist in `folder` as files with exactly their name as text.

    Each process has written one such file with `leave_file`; so the doctor tests whether all
    processes see the same folder.
    """
    return await in_thread(lambda: [n for n in names if _is_there(folder, n)], ANSWER_S)


async def remove_files(folder: str, names: list[str]) -> None:
    await in_thread(lambda: _remove([Path(folder, name) for name in names]), ANSWER_S)


def _leave(folder: Path, name: str) -> dict[str, Any]:
    seen: dict[str, Any] = {"filesystem": filesystem_of(folder)}
    try:
        stats = os.statvfs(folder)
        seen["free_bytes"] = stats.f_bavail * stats.f_frsize
        with open(folder / name, "x") as file:
            file.write(name)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        seen["trouble"] = error.strerror or str(error)
        with contextlib.suppress(OSError):  # a partial file on a full disk
            (folder / name).unlink(missing_ok=True)
    return seen


def _remove(files: list[Path]) -> None:
    for file in files:
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)


def _is_there(folder: str, name: str) -> bool:
    try:
        return Path(folder, name).read_text() == name
    except OSError:
        return False


def filesystem_of(folder: Path) -> str:
    """Return a filesystem's type and source, such as `nfs4 nas:/runs`; "" if unknown.

    It is the filesystem that holds `folder`.
    """
    best, filesystem = -1, ""
    with contextlib.suppress(OSError):
        real = os.path.realpath(folder)
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            left, _, right = line.partition(" - ")
            point = left.split()[4].replace("\\040", " ")
            inside = real == point or real.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= best:  # the last mount at a point hides earlier ones
                kind, source = right.split()[:2]
                best, filesystem = len(point), f"{kind} {source}"
    return filesystem
