"""Carries what a rank leaves on its worker to a run directory in an object store.

The rank and its supervisor write files in a folder of the worker. Beside them a thread puts what is
new into the store: of the log, parts that readers know (`distrain.runs.log_bytes`), of which the
last grows by being put again; reports of progress whole. Nobody else writes these objects. A store
that does not answer holds up nothing: the thread tries again, and what it missed is still there.
"""

import logging
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from distrain.jobs.run_paths import RunPaths, log_end, log_part
from distrain.runs.log_bytes import LogSlice, log_extent, read_log_slice
from distrain.storage.objects import Objects

log = logging.getLogger(__name__)

EVERY_S = 1.0  # how often the thread looks
PART_BYTES = 2**20  # a part of a log that is put does not grow beyond this
REPORTS_BYTES_PER_S = 2**19  # reports are put so often that no more than this goes out on average


class StoreCarrier:
    """The files of one rank and attempt on their way to the store, from `start` until `close`."""

    def __init__(self, paths: RunPaths, rank: int, attempt: int):
        self._paths = paths
        self._objects: Objects | None = None
        self._log = paths.log(rank, attempt)
        self._reports = paths.reports(rank, attempt)
        self._next = 0  # the first byte of the log that no finished part has
        self._part = b""  # what the store has behind that
        self._is_closed = False
        self._reports_seen: tuple[int, ...] = ()
        self._reports_wait_s = 0.0
        self._trouble = ""
        self._ending = threading.Event()
        self._carrying = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"carrier-{rank}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def carry(self) -> bool:
        """Put all that is new; whether the store has taken it. Never raises."""
        with self._carrying:
            try:
                self._carry_log()
                self._carry_reports()
            except Exception as error:  # whatever its library raises: the rank goes on
                if self._trouble != str(error):
                    self._trouble = str(error)
                    log.warning("cannot write to %s: %s", self._paths.store, error)
                return False
            self._trouble = ""
            return True

    def settle(self) -> bool:
        """Put all that is new, reports included that would be put later."""
        self._reports_wait_s = 0.0
        return self.carry()

    def close(self, within_s: float) -> None:
        """Put what is left, within a time, and remove the worker's folder."""
        self._ending.set()
        self._thread.join(within_s)
        if self._thread.is_alive():
            log.warning("%s does not answer: what a rank left stays here", self._paths.store)

    def _run(self) -> None:
        while not self._ending.wait(EVERY_S):
            self._reports_wait_s -= EVERY_S
            self.carry()
        self._reports_wait_s = 0.0
        if self.carry() and self._carry_rest():
            shutil.rmtree(self._paths.root, ignore_errors=True)

    def _store(self) -> Objects:
        if self._objects is None:
            self._objects = Objects(self._paths.store)
        return self._objects

    def _carry_log(self) -> None:
        if self._is_closed or not self._log.parent.is_dir():
            return
        folder = os.open(self._log.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _, closed = log_extent(folder, self._log.name)  # before: what is there then is all
            for piece in self._new(folder):
                self._put_part(piece)
        finally:
            os.close(folder)
        if closed:
            end = log_end(self._log)
            self._store().put(self._name(end), end.read_bytes())
            self._is_closed = True

    def _new(self, folder: int) -> Iterator[LogSlice]:
        while True:
            behind = self._next + len(self._part)
            room = PART_BYTES - len(self._part)
            piece = read_log_slice(folder, self._log.name, behind, room)
            if not piece.data:
                return
            yield piece

    def _put_part(self, piece: LogSlice) -> None:
        if piece.first > self._next + len(self._part):  # nobody kept what was between
            self._next, self._part = piece.first, b""
        part = self._part + piece.data
        name = self._log if self._next == 0 else log_part(self._log, self._next)
        self._store().put(self._name(name), part)
        self._part = part
        if len(part) >= PART_BYTES:
            self._next, self._part = self._next + len(part), b""

    def _carry_reports(self) -> None:
        try:
            status = self._reports.stat()
        except FileNotFoundError:
            return
        seen = (status.st_ino, status.st_size, status.st_mtime_ns)
        if seen == self._reports_seen or self._reports_wait_s > 0:
            return
        content = self._reports.read_bytes()
        self._store().put(self._name(self._reports), content)
        self._reports_seen = seen
        self._reports_wait_s = len(content) / REPORTS_BYTES_PER_S

    def _carry_rest(self) -> bool:
        """Put hashes of rows and stacks; the model and the checkpoints are the rank's own work."""
        try:
            for path in self._rest():
                self._store().put(self._name(path), path.read_bytes())
        except Exception as error:
            log.warning("cannot write to %s: %s", self._paths.store, error)
            return False
        return True

    def _rest(self) -> Iterator[Path]:
        for folder in (self._paths.audits, self._paths.logs):
            for path in sorted(folder.rglob("*")):
                if path.suffix in (".rows", ".stacks") and path.is_file():
                    yield path

    def _name(self, path: Path) -> str:
        return path.relative_to(self._paths.root).as_posix()


def files_dir(local_directory: str, job_id: str, attempt: int, rank: int) -> Path:
    """The folder of a worker for one rank's files; an earlier one of that name is emptied."""
    folder = Path(local_directory) / "distrain-files" / f"{job_id}-a{attempt}-r{rank}"
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder
