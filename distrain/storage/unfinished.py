"""Unfinished folders: detects whether a process makes one, and removes those of killed processes.

A process locks the unfinished folder that it fills. The lock ends with the process, even if it is
killed. Not all filesystems share locks between hosts. So the folder's name identifies the machine
and its boot, and folders of other machines are removed only if they are old.
"""

import contextlib
import fcntl
import functools
import os
import re
import shutil
import time
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path

from distrain.errors import OutputError

_ABANDONED_S = 86400.0
"""An unfinished folder of another machine counts as abandoned if it got no file for this time."""


def partial_name(final: Path) -> Path:
    return final.with_name(f".{final.name}.partial-{_machine()}{uuid.uuid4().hex[:8]}")


def replaced_name(final: Path) -> Path:
    return final.with_name(f".{final.name}.replaced-{_machine()}{uuid.uuid4().hex[:8]}")


@functools.cache
def _machine() -> str:
    """Return 8 hex digits, equal for processes of this machine until the next boot."""
    try:
        start = boot_id()
    except OSError:
        start = os.uname().nodename
    return f"{zlib.crc32(start.encode()):08x}"


def boot_id() -> str:
    """Return the kernel's id of this boot, with a line end."""
    return Path("/proc/sys/kernel/random/boot_id").read_text()


def started_ticks(pid: int) -> int | None:
    """Return a process's start in clock ticks after boot; `None` if it has ended or is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name is in brackets and may contain anything, including brackets.
    state, *rest = text.rpartition(")")[2].split()
    return None if state in "ZX" else int(rest[18])


@contextlib.contextmanager
def make_locked(partial: Path) -> Iterator[None]:
    """Context manager that creates the unfinished folder `partial` and holds its lock.

    The folder has another name until it is locked, so that `partial` is never seen unlocked.
    """
    new = partial.with_name(partial.name.replace(".partial-", ".new-"))
    new.mkdir(parents=True)
    handle = os.open(new, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a filesystem without locks
            # Not LOCK_NB: a process that checks the folder holds its lock for a moment.
            fcntl.flock(handle, fcntl.LOCK_EX)
        os.replace(new, partial)
        yield
    finally:
        os.close(handle)
        with contextlib.suppress(OSError):
            new.rmdir()


def check_not_in_progress(final: Path, own: Path | None = None) -> None:
    """Raise an `OutputError` if another process is making the folder `final`.

    The unfinished folder `own`, that of this process, is ignored.
    """
    for folder in _unfinished(final):
        if folder != own and _lock(folder) == "held":
            raise OutputError(
                "another process is making this folder",
                where={"path": str(final), "unfinished": str(folder)},
                hint="Wait until it has finished, stop it, or name another folder.",
            )


def remove_left(final: Path, own: Path) -> None:
    """Remove the folders that killed processes left beside `final`, except `own`.

    If a process was killed while it replaced `final`, and `final` is missing, the old folder gets
    its name back.
    """
    for folder in filter(_is_left, _named(final, "replaced")):
        if not final.exists():
            try:
                folder.rename(final)
            except OSError:  # the folder is the only copy, so it is kept
                continue
        shutil.rmtree(folder, ignore_errors=True)
    for folder in filter(_is_left, _unfinished(final)):
        if folder != own:
            shutil.rmtree(folder, ignore_errors=True)


def rename_unless_there(partial: Path, final: Path) -> None:
    """Rename a folder, unless another process has made the folder `final` meanwhile."""
    try:
        partial.rename(final)
    except OSError:
        if not final.is_dir():
            raise


def remove_aside(own: Path) -> None:
    """Remove a folder, after renaming it so that late tasks create no files in it.

    Its name becomes `NAME-removed`. Errors are ignored. If it cannot be renamed, because a folder
    `NAME-removed` exists and is not empty, that folder is removed and `own` stays.
    """
    removed = own.with_name(f"{own.name}-removed")
    with contextlib.suppress(OSError):
        own.rename(removed)
    shutil.rmtree(removed, ignore_errors=True)


def remove_unfinished_files(folder: Path) -> None:
    """Remove the partial files that killed tasks left in a folder and its subfolders."""
    for path in folder.rglob(".*.partial-*"):
        if path.is_file() and re.fullmatch(r"\..+\.partial-[0-9a-f]{16}", path.name):
            path.unlink(missing_ok=True)


def _unfinished(final: Path) -> list[Path]:
    return [*_named(final, "partial"), *_named(final, "new")]


def _named(final: Path, kind: str) -> list[Path]:
    pattern = re.compile(re.escape(f".{final.name}.{kind}-") + r"[0-9a-f]{8,16}(-removed)?")
    try:
        with os.scandir(final.parent) as entries:
            return [
                Path(entry)
                for entry in entries
                if pattern.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
            ]
    except OSError:
        return []


def _lock(folder: Path) -> str:
    """Return the state of a folder's lock: `held` by another process, `free`, or `unknown`."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return "unknown"
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return "held"
    except OSError:
        return "unknown"
    finally:
        os.close(handle)
    return "free"


def _is_left(folder: Path) -> bool:
    is_ours = re.search(rf"\.(partial|replaced)-{_machine()}[0-9a-f]{{8}}", folder.name)
    return _lock(folder) == "free" and (is_ours is not None or _is_old(folder))


def _is_old(folder: Path) -> bool:
    """Return True if no entry of a folder or its direct subfolders was made or removed for a day.

    Returns False if a folder cannot be read, perhaps because its maker removes it now.
    """
    try:
        folders = [folder, *(path for path in folder.iterdir() if path.is_dir())]
        newest = max(path.stat().st_mtime for path in folders)
    except OSError:
        return False
    return time.time() - newest > _ABANDONED_S
