"""The places of run directories and of their copies: made, shared, and removed when old."""

import fcntl
import logging
import os
import re
import shutil
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from distrain.errors import DistrainError, OutputError
from distrain.jobs.run_paths import RunPaths
from distrain.runs.run_file import read_run_file
from distrain.service.settings import Settings
from distrain.storage.objects import has_conditional_writes
from distrain.storage.outputs import translated_errors
from distrain.storage.urls import is_remote

log = logging.getLogger(__name__)

_DAY_S = 86_400.0
_REMOVED = ".removed-"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def check_place_of(place: str) -> None:
    """Refuse a run directory that is neither an absolute path nor in a usable object store."""
    if has_conditional_writes(place):
        return
    if is_remote(place) or _URL.match(place) or not Path(place).is_absolute():
        raise OutputError(
            "a run directory must be an absolute path, or begin with s3://",
            where={"path": place},
            hint="Set run_root of the cluster to a folder that the service and all workers share, "
            "or to s3://BUCKET/PATH.",
        )


def make_folder(root: Path, run_root: Path) -> None:
    """Make a run directory, with the run root's permissions where it lies in that (OutputError)."""
    with translated_errors(root):
        run_root.mkdir(parents=True, exist_ok=True)
        mode = run_root.stat().st_mode & 0o7777
        inside = root.relative_to(run_root).parts if root.is_relative_to(run_root) else ()
        for depth in range(1, len(inside) + 1):
            folder = run_root.joinpath(*inside[:depth])
            if folder.is_symlink():
                raise OutputError(
                    "a part of the path is a symbolic link",
                    where={"path": str(folder)},
                    hint="Remove it: run directories lie inside the cluster's run_root.",
                )
            with suppress(FileExistsError):
                folder.mkdir()
                folder.chmod(mode)  # whatever the umask is
        root.mkdir(parents=True, exist_ok=True)


def remove_old_runs(
    settings: Settings, service: str, now_s: float, may_go: Callable[[str], bool]
) -> Iterator[Path]:
    """Remove what `old_runs` finds, and yield it.

    What cannot be removed is logged, and tried the next time.
    """
    for folder in old_runs(settings, service, now_s, may_go):
        if folder.name.startswith(_REMOVED):
            shutil.rmtree(folder, ignore_errors=True)
            continue
        try:
            _remove(folder)
        except OSError as error:
            log.warning("cannot remove %s: %s", folder, error.strerror or error)
        else:
            yield folder


def old_runs(
    settings: Settings, service: str, now_s: float, may_go: Callable[[str], bool]
) -> Iterator[Path]:
    """The directories of jobs that ended `retention.run_dirs_days` ago.

    These are `RUN_ROOT/PROJECT/JOB` with a summary that this service keeps, of jobs that `may_go`
    by their id, and what a removal that was killed has left. Those of commands, and of another
    service with the same run root, stay.
    """
    keep_s = settings.retention.run_dirs_days * _DAY_S
    if not keep_s:
        return
    roots = {settings.run_place(name) for name in settings.clusters}
    for run_root in sorted(root for root in roots if not is_remote(root)):
        for folder in _runs_in(Path(run_root)):
            is_left = folder.name.startswith(_REMOVED)
            is_old = _ended_before(folder, service, now_s - keep_s)
            if is_left or (is_old and may_go(folder.name)):
                yield folder


def _runs_in(run_root: Path) -> Iterator[Path]:
    for project in _folders(run_root):
        yield from _folders(project)


def _folders(parent: Path) -> list[Path]:
    try:
        with os.scandir(parent) as entries:
            return sorted(
                Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)
            )
    except OSError:
        return []


def _ended_before(folder: Path, service: str, limit_s: float) -> bool:
    paths = RunPaths(folder)
    try:
        if paths.progress.exists() or paths.summary.lstat().st_mtime >= limit_s:
            return False
        mark = read_run_file(paths).service
    except (OSError, DistrainError):
        return False
    return mark is not None and mark.id == service


def _remove(folder: Path) -> None:
    gone = folder.with_name(f"{_REMOVED}{uuid.uuid4().hex}")
    folder.rename(gone)
    shutil.rmtree(gone)


_LOCK = "lock"


class Copies:
    """New folders below one of this process, made by the first; those of dead processes go."""

    def __init__(self, data_dir: Path):
        self._parent = data_dir / "copies"
        self._making = threading.Lock()
        self._root: Path | None = None
        self._held = -1

    def new(self) -> Path:
        with self._making:
            if self._root is None:
                self._root = self._made()
            return self._root / uuid.uuid4().hex

    def close(self) -> None:
        with self._making:
            if self._root is not None:
                shutil.rmtree(self._root, ignore_errors=True)
                os.close(self._held)
                self._root = None

    def _made(self) -> Path:
        self._parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for other in self._parent.iterdir():
            _remove_if_dead(other)
        root = Path(tempfile.mkdtemp(dir=self._parent))
        self._held = os.open(root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._held, fcntl.LOCK_EX)
        return root


def _remove_if_dead(folder: Path) -> None:
    # One that has no lock yet is being made.
    with suppress(OSError):
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)
