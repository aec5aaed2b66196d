from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = bytes | memoryview | NDArray[Any] | Any  # a pa.Buffer, too

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
