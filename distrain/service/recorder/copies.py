"""Folders of this process for copies of run directories in object stores."""

import fcntl
import os
import shutil
import tempfile
import threading
import uuid
from contextlib import suppress
from pathlib import Path

_LOCK = "lock"


class Copies:
    """New folders below one of this process; those of dead processes are removed.

    The first call of `new` makes that one.
    """

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
