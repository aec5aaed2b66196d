from typing import Any

from numpy.typing import NDArray

def parse(
    text: bytes,
    delimiter: int,
    labels: NDArray[Any],
    numbers: NDArray[Any],
    words: NDArray[Any],
    valid: NDArray[Any],
    missing: NDArray[Any],
) -> bool: ...
