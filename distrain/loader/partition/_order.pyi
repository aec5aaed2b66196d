import numpy as np
from numpy.typing import NDArray

def order(key0: int, key1: int, number_bits: int, out: NDArray[np.int32]) -> None: ...
