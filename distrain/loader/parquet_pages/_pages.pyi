from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = bytes | memoryview | NDArray[Any] | Any  # a pa.Buffer, too

VERSION: int
TOO_WIDE: str

def row_groups(footer: Bytes) -> list[int]: ...
def chunks(row_group: Bytes) -> list[tuple[int, ...]]: ...

class Memory: ...  # a capsule, as the next one
class Stream: ...

def memory() -> Memory: ...
def decode(
    descriptor: int,
    memory: Memory,
    chunks: Sequence[tuple[int, int, int, bool, int, NDArray[Any], int, bytes]],
) -> list[str | None]: ...
def stream(
    start: int,
    end: int,
    num_values: int,
    codec: int,
    optional: bool,
    file_bytes: int,
    item_bytes: int,
    fill: bytes,
) -> Stream: ...
def read(
    memory: Memory, columns: Sequence[tuple[Stream, int, NDArray[Any]]]
) -> list[str | None]: ...
def skip(stream: Stream, descriptor: int, memory: Memory, count: int) -> None: ...
def headers(chunk: Bytes, num_values: int, optional: bool) -> Sequence[tuple[int, ...]]: ...
def skip_levels(page: Bytes, num_values: int, levels_bytes: int) -> int: ...
def lookup(
    page: Bytes,
    run: NDArray[np.int64],
    dictionary: NDArray[Any],
    out: NDArray[Any],
    item_bytes: int,
) -> None: ...
def checksum(page: Bytes) -> int: ...
def content_bytes(codec: str, page: Bytes) -> int: ...
def lz4(page: Bytes, out: NDArray[np.uint8]) -> None: ...
