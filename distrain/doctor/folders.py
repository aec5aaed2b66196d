"""Whether a folder is the same one everywhere: each process leaves a file, and looks for others.

Files are opened by names that nobody has looked for before: a listing of a network filesystem may
be half a minute old, and so may be the news that a name does not exist.
"""

import contextlib
import hashlib
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from distrain.doctor.facts import DataSeen
from distrain.doctor.probes import in_thread
from distrain.errors import DistrainError
from distrain.storage import list_inputs


async def leave_file(folder: str, name: str) -> dict[str, Any]:
    """Write a file whose text is its name; returns the free space and the filesystem."""
    return dict(await in_thread(lambda: _leave(Path(folder), name)))


async def find_files(folder: str, names: list[str]) -> list[str]:
    """The names whose files are there with their text."""
    return list(await in_thread(lambda: [name for name in names if _is_there(folder, name)]))


async def remove_files(folder: str, names: list[str]) -> None:
    await in_thread(lambda: _remove([Path(folder, name) for name in names]))


async def look_at_data(path: str) -> dict[str, Any]:
    """The `DataSeen` of a path, folder, glob or URL."""
    return asdict(await in_thread(lambda: _data(path)))


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
        with contextlib.suppress(OSError):  # half a file on a disk that is full
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
    """Type and source of the filesystem that a folder is on, as the kernel lists them."""
    best, filesystem = -1, ""
    with contextlib.suppress(OSError):
        real = os.path.realpath(folder)
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            left, _, right = line.partition(" - ")
            point = left.split()[4].replace("\\040", " ")
            inside = real == point or real.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= best:  # the last of several at one point hides the others
                kind, source = right.split()[:2]
                best, filesystem = len(point), f"{kind} {source}"
    return filesystem


def _data(path: str) -> DataSeen:
    try:
        files = list_inputs(path)
    except DistrainError as error:
        return DataSeen(trouble=error.message)
    listed = sorted((file.path, file.size_bytes) for file in files)
    digest = hashlib.sha256(repr(listed).encode()).hexdigest()[:16]
    return DataSeen("", len(listed), sum(size for _, size in listed), digest)
