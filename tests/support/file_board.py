"""A notice board for processes of one machine: a file for each text."""

import os
import time
from pathlib import Path


class FileBoard:
    def __init__(self, folder):
        self._folder = Path(folder)
        self._own = set()
        self._folder.mkdir(parents=True, exist_ok=True)

    def _file(self, key):
        return self._folder / key.replace("/", "|")

    def post(self, key, text):
        partial = self._folder / f".{os.getpid()}"
        partial.write_text(text)
        partial.rename(self._file(key))
        self._own.add(key)

    def read(self, key, timeout_s):
        until_s = time.monotonic() + timeout_s
        while True:
            try:
                return self._file(key).read_text()
            except FileNotFoundError:
                if time.monotonic() >= until_s:
                    raise TimeoutError(key) from None
                time.sleep(0.005)

    def check(self, key):
        return self._file(key).exists()

    def clear(self, prefix):
        for key in [key for key in self._own if key.startswith(prefix)]:
            self._file(key).unlink()
            self._own.remove(key)
