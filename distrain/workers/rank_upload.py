"""Uploads a rank's files from its worker to a run folder in an object store.

The rank and its supervisor write files to a folder on the worker. A thread uploads the log and, for
rank 0, the attempt's records, in parts of up to `PART_BYTES`, which `distrain.runs.log_bytes`
reads. When the file grows, the last part is uploaded again with the new bytes. No other process
writes these objects. If the store does not answer, the thread retries later, without delaying the
rank.
"""

import logging
import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from distrain.jobs.run_paths import RunPaths, log_end, log_part
from distrain.runs.log_bytes import next_bytes
from distrain.storage.objects import Objects

log = logging.getLogger(__name__)

EVERY_S = 1.0  # interval between uploads
PART_BYTES = 2**20  # the largest size of an uploaded part


class RankUpload:
    """Uploads the files of one rank and attempt, from `start` until `close`."""

    def __init__(self, paths: RunPaths, rank: int, attempt: int):
        self._paths = paths
        self._objects: Objects | None = None
        self._log = paths.log(rank, attempt)
        self._growing = [_Growing(self._log, self._put)]
        if rank == 0:
            self._growing.append(_Growing(paths.attempt_records(attempt), self._put))
        self._is_closed = False
        self._trouble = ""
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"upload-{rank}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def upload_new(self) -> bool:
        """Upload the new bytes of log and records; return whether that succeeded. Never raises."""
        with self._lock:
            try:
                self._upload_growing()
            except Exception as error:  # the store's library may raise any; the rank must continue
                if self._trouble != str(error):
                    self._trouble = str(error)
                    log.warning("cannot write to %s: %s", self._paths.store, error)
                return False
            self._trouble = ""
            return True

    def close(self, timeout_s: float) -> None:
        """Have the thread upload the remaining files and, if that succeeds, remove their folder.

        Waits for the thread for at most `timeout_s`.
        """
        self._ending.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            log.warning("%s does not answer: a rank's remaining files stay here", self._paths.store)

    def _run(self) -> None:
        while not self._ending.wait(EVERY_S):
            self.upload_new()
        if self.upload_new() and self._upload_rest():
            shutil.rmtree(self._paths.root, ignore_errors=True)

    def _store(self) -> Objects:
        if self._objects is None:
            self._objects = Objects(self._paths.store)
        return self._objects

    def _put(self, path: Path, content: bytes) -> None:
        self._store().put(path.relative_to(self._paths.root).as_posix(), content)

    def _upload_growing(self) -> None:
        end = log_end(self._log)
        closed = end.exists()  # checked first: the log is complete if it was closed
        for file in self._growing:
            file.upload_new()
        if closed and not self._is_closed:
            self._put(end, end.read_bytes())
            self._is_closed = True

    def _upload_rest(self) -> bool:
        """Upload the files with row hashes; return whether that succeeded.

        The rank itself uploads its model and checkpoints.
        """
        try:
            for path in sorted(self._paths.audits.rglob("*.rows")):
                self._put(path, path.read_bytes())
        except Exception as error:
            log.warning("cannot write to %s: %s", self._paths.store, error)
            return False
        return True


class _Growing:
    """A file that grows while it is uploaded, in parts; `put(path, data)` uploads a part."""

    def __init__(self, path: Path, put: Callable[[Path, bytes], None]):
        self._path, self._put = path, put
        self._next = 0  # the first byte after the finished parts
        self._part = b""  # the bytes of the last, unfinished part, which are uploaded already

    def upload_new(self) -> None:
        if not self._path.parent.is_dir():
            return
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            while self._upload_part(folder):
                pass
        finally:
            os.close(folder)

    def _upload_part(self, folder: int) -> bool:
        """Upload the next new bytes, up to the end of a part; return whether there were any."""
        offset = self._next + len(self._part)
        first, data = next_bytes(folder, self._path.name, offset, PART_BYTES - len(self._part))
        if not data:
            return False
        if first > offset:  # a gap in the log
            self._next, self._part = first, b""
        part = self._part + data
        self._put(log_part(self._path, self._next) if self._next else self._path, part)
        self._part = part
        if len(part) >= PART_BYTES:
            self._next, self._part = self._next + len(part), b""
        return True


def files_dir(local_directory: str, job_id: str, attempt: int, rank: int) -> Path:
    """Create an empty folder for one rank's files below a worker's local folder, and return it."""
    folder = Path(local_directory) / "distrain-files" / f"{job_id}-a{attempt}-r{rank}"
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder
