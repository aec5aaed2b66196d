"""Removes the run folders of jobs that ended long ago."""

import logging
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from distrain.errors import DistrainError
from distrain.jobs.run_paths import RunPaths
from distrain.runs.run_file import read_run_file
from distrain.service.settings import Settings
from distrain.storage.urls import is_remote

log = logging.getLogger(__name__)

_DAY_S = 86_400.0
_REMOVED = ".removed-"


def remove_old_runs(
    settings: Settings, service: str, now_s: float, can_delete: Callable[[str], bool]
) -> Iterator[Path]:
    """Remove the folders that `old_runs` yields; yield the job folders that were removed.

    The arguments are those of `old_runs`. Failures are logged; the next call tries again.
    """
    for folder in old_runs(settings, service, now_s, can_delete):
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
    settings: Settings, service: str, now_s: float, can_delete: Callable[[str], bool]
) -> Iterator[Path]:
    """Yield the folders of jobs that wrote nothing for `retention.run_dirs_days`.

    These are `RUN_ROOT/PROJECT/JOB` of the jobs of `service` for whose id `can_delete` returns
    True, and remains of interrupted removals. Runs of commands, and of another service with the
    same run root, are kept. Run roots that are URLs are skipped. Nothing is yielded if the
    retention time is 0.
    """
    keep_s = settings.retention.run_dirs_days * _DAY_S
    if not keep_s:
        return
    roots = {settings.run_place(name) for name in settings.clusters}
    for run_root in sorted(root for root in roots if not is_remote(root)):
        for folder in _runs_in(Path(run_root)):
            is_left = folder.name.startswith(_REMOVED)
            is_old = _ended_before(folder, service, now_s - keep_s)
            if is_left or (is_old and can_delete(folder.name)):
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
        if read_run_file(paths).service != service:
            return False
        files = [paths.run, *(paths.records.iterdir() if paths.records.is_dir() else ())]
        newest_s: float = max(file.lstat().st_mtime for file in files)
        with suppress(FileNotFoundError):
            newest_s = max(newest_s, paths.summary.lstat().st_mtime)
    except (OSError, DistrainError):
        return False
    return newest_s < limit_s


def _remove(folder: Path) -> None:
    gone = folder.with_name(f"{_REMOVED}{uuid.uuid4().hex}")
    folder.rename(gone)
    shutil.rmtree(gone)
