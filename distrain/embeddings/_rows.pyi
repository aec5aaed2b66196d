from typing import Any

from numpy.typing import NDArray

def unique(
    ids: NDArray[Any],
    offsets: NDArray[Any],
    counts: NDArray[Any],
    numbers: NDArray[Any],
    distinct: NDArray[Any],
    per_column: NDArray[Any],
    slots: NDArray[Any],
) -> int: ...
def gather(
    weight: NDArray[Any], is_bfloat16: bool, keys: NDArray[Any], out: NDArray[Any]
) -> None: ...
def expand(
    rows: NDArray[Any], numbers: NDArray[Any], places: NDArray[Any], out: NDArray[Any]
) -> None: ...
def collect(
    sums: NDArray[Any], numbers: NDArray[Any], places: NDArray[Any], grads: NDArray[Any]
) -> None: ...
def update(
    kind: int,
    weight: NDArray[Any],
    is_bfloat16: bool,
    first: NDArray[Any] | None,
    second: NDArray[Any] | None,
    keys: NDArray[Any],
    global_keys: NDArray[Any],
    grads: NDArray[Any],
    seed: int,
    lr: float,
    eps: float,
    beta1: float,
    beta2: float,
) -> None: ...
def draw(key: int, rows: NDArray[Any], scale: float, out: NDArray[Any]) -> None: ...
