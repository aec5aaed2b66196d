"""Arrays of whole numbers, as the kernels in C take them."""

import numpy as np
from numpy.typing import NDArray


def int32(*values: int) -> NDArray[np.int32]:
    """The values in 32 bits."""
    return np.array(values, np.int32)


def int64(*values: int) -> NDArray[np.int64]:
    """The values in 64 bits."""
    return np.array(values, np.int64)
