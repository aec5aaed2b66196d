from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
) -> bytes: ...
