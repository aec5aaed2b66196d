"""The file of one rank's kept reports: one gzip member a report, each a line of JSON.

It grows by appending, is small, and `zcat` reads it. A killed worker can only cut off the end of
the last member.
"""

import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from distrain.jobs.events import Event, from_json
from distrain.storage.outputs import no_pipe

_GZIP_LEVEL = 1
"""A third of the size for half a millisecond; higher ones gain a tenth for three times the work."""

_READ_BYTES = 2**16
_LONGEST_BYTES = 2**26

_HEADER = gzip.compress(b"", _GZIP_LEVEL, mtime=0)[:10]
"""With what every member begins, and hardly any other ten bytes."""


@dataclass(frozen=True)
class KeptReport:
    event: Event  # the report; of several, one that carries their sums
    # the number of the first report that it stands for, among its rank's of that kind
    first: int
    count: int  # how many it stands for
    num_ranks: int  # of a rank's first report: how many ranks keep theirs; 0 where none says so
    end: int  # where the next one begins in the file


def pack(line: bytes, first: int, count: int = 1, num_ranks: int = 0) -> bytes:
    about = f'{{"first": {first}, "count": {count}'
    about += f', "num_ranks": {num_ranks}, ' if num_ranks else ", "
    return gzip.compress(about.encode() + line.strip().removeprefix(b"{"), _GZIP_LEVEL, mtime=0)


def read_reports(path: Path, begin: int = 0) -> Iterator[KeptReport]:
    """The reports of a file from an offset on, up to the first that cannot be read."""
    with (
        suppress(OSError, ValueError, KeyError, zlib.error),
        open(path, "rb", opener=no_pipe) as file,
    ):
        file.seek(begin)
        for line, end in _members(file):
            document = json.loads(line)
            first, count = int(document.pop("first")), int(document.pop("count"))
            num_ranks = int(document.pop("num_ranks", 0))
            yield KeptReport(from_json(document), first, count, num_ranks, end)


def tail_offset(path: Path, limit_bytes: int) -> int:
    """The offset of the first report among a file's last bytes; its size without one."""
    size_bytes = path.stat().st_size
    if size_bytes <= limit_bytes:
        return 0
    with path.open("rb") as file:
        file.seek(size_bytes - limit_bytes)
        begin = file.read().find(_HEADER)
    return size_bytes if begin < 0 else size_bytes - limit_bytes + begin


def _members(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Each gzip member's text, and its end in the file."""
    end = file.tell()
    data, parts = b"", list[bytes]()
    unzip = zlib.decompressobj(wbits=31)
    while data := data or file.read(_READ_BYTES):
        parts.append(unzip.decompress(data))
        if sum(map(len, parts)) > _LONGEST_BYTES:
            raise ValueError("no report is so long")
        end += len(data) - len(unzip.unused_data)
        data = unzip.unused_data
        if unzip.eof:
            yield b"".join(parts), end
            parts, unzip = [], zlib.decompressobj(wbits=31)
