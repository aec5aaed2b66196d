"""A `RankStore` for processes of one machine: a file for each text."""

import fcntl
import json
import os
import time
from pathlib import Path

from distrain.train.checkpoint import RankStore


class FileRankStore(RankStore):
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

    def read(self, key, timeout_s, given_up=None):
        until_s = time.monotonic() + timeout_s
        while True:
            try:
                return self._file(key).read_text()
            except FileNotFoundError:
                ended = given_up is not None and given_up.is_set()
                if ended or time.monotonic() >= until_s:
                    raise TimeoutError(key) from None
                time.sleep(0.005)

    def check(self, key):
        return self._file(key).exists()

    def clear(self, prefix):
        for key in [key for key in self._own if key.startswith(prefix)]:
            self._file(key).unlink()
            self._own.remove(key)

    def add(self, key, text):
        with open(self._file(key), "a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(json.dumps(text) + "\n")
            file.flush()
            file.seek(0)
            return len(file.readlines())

    def take(self, key):
        try:
            lines = self._file(key).read_text().splitlines()
        except FileNotFoundError:
            return []
        self._file(key).unlink()
        return [json.loads(line) for line in lines]
