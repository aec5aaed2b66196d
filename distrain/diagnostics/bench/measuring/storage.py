"""Measures how fast hosts write and read files in a shared folder."""

import os
from pathlib import Path
from typing import Any

from distrain.diagnostics.bench.measuring.hosts import (
    ask_each,
    measures_of,
    one_per_host,
    rate_of,
)
from distrain.diagnostics.bench.results import Measure

WRITE, COLD, WARM = "storage.write", "storage.read_cold", "storage.read_warm"
_PIECE_BYTES = 2**20


def measure_storage(client: Any, folder: Path, size_bytes: int, repeats: int) -> list[Measure]:
    """Measure writing and reading `folder` on all hosts at once, each with a temporary file.

    Raises `ClusterError` if a worker fails, and `OSError` if `folder` cannot be written there.
    """
    hosts = one_per_host(client)
    words_of = {
        address: (folder / f"storage-{number}", size_bytes, repeats)
        for number, address in enumerate(hosts.values())
    }
    return measures_of(hosts, ask_each(client, write_and_read, words_of), size_bytes)


def write_and_read(path: Path, size_bytes: int, repeats: int) -> dict[str, list[float]]:
    """Return bytes/s of each repetition, by the measure's name.

    The measures are writing with fsync, reading with a cold page cache, and reading again. On a
    filesystem without a disk, such as tmpfs, the cache cannot be dropped.
    """
    pieces = max(1, size_bytes // _PIECE_BYTES)
    written_bytes = pieces * _PIECE_BYTES
    piece = os.urandom(_PIECE_BYTES)  # random, so that compression has no effect
    rates: dict[str, list[float]] = {WRITE: [], COLD: [], WARM: []}
    try:
        for _ in range(repeats):
            rates[WRITE].append(rate_of(lambda: _write(path, piece, pieces), written_bytes))
            _drop_cache(path)
            rates[COLD].append(rate_of(lambda: _read(path), written_bytes))
            rates[WARM].append(rate_of(lambda: _read(path), written_bytes))
    finally:
        path.unlink(missing_ok=True)
    return rates


def _write(path: Path, piece: bytes, pieces: int) -> None:
    with path.open("wb", buffering=0) as file:
        for _ in range(pieces):
            rest = memoryview(piece)
            while rest:
                rest = rest[file.write(rest) or 0 :]
        os.fsync(file.fileno())


def _read(path: Path) -> None:
    buffer = bytearray(_PIECE_BYTES)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def _drop_cache(path: Path) -> None:
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
