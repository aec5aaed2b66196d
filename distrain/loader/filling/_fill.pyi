from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

VERSION: int

def fill(
    sources: Sequence[NDArray[Any]],
    blocks: Sequence[NDArray[np.int32]],
    roles: bytes,
    types: bytes,
    limits: NDArray[np.uint64],
    rows: NDArray[np.int32],
    starts: NDArray[np.int64],
    counts: NDArray[np.int64],
    places: NDArray[np.int32] | bytes,
    cells: bytes = b"",
    offsets: NDArray[np.int64] | bytes = b"",
    row_bytes: int = 0,
    tile: NDArray[np.uint8] = ...,
) -> bytes: ...
def measure_lists(
    offsets: NDArray[np.int32],
    num_items: int,
    rows: NDArray[np.int32],
    counts: NDArray[np.int64],
    most: int,
    lengths: NDArray[np.int32],
    totals: NDArray[np.int64],
) -> int: ...
def gather_lists(
    offsets: NDArray[np.int32],
    items: NDArray[Any],
    role: bytes,
    kind: bytes,
    limit: int,
    rows: NDArray[np.int32],
    counts: NDArray[np.int64],
    most: int,
    blocks: Sequence[NDArray[np.int32]],
) -> bool: ...
def place_lists(
    items: NDArray[np.int32],
    places: NDArray[np.int32],
    offsets: NDArray[np.int32],
    values: NDArray[np.int32],
) -> None: ...
