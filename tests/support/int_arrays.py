"""Arrays of integers, as the kernels in C take them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def int32(*values: int) -> NDArray[np.int32]:
    """The values in 32 bits."""
    return np.array(values, np.int32)


def int64(*values: int) -> NDArray[np.int64]:
    """The values in 64 bits."""
    return np.array(values, np.int64)


def unaligned(values: NDArray[Any]) -> NDArray[Any]:
    """The same values one byte beyond where they should lie."""
    return np.frombuffer(b"\0" + values.tobytes(), values.dtype, offset=1)
