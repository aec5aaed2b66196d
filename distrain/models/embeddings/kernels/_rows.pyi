from typing import Any

from numpy.typing import NDArray

_Array = NDArray[Any]

RULES: dict[str, int]

def unique(
    ids: _Array,
    offsets: _Array,
    counts: _Array,
    inverse: _Array,
    distinct: _Array,
    per_column: _Array,
    slots: _Array,
) -> int: ...
def gather(weight: _Array, is_bfloat16: bool, keys: _Array, out: _Array) -> None: ...
def expand(rows: _Array, inverse: _Array, places: _Array, out: _Array) -> None: ...
def collect(sums: _Array, inverse: _Array, places: _Array, grads: _Array) -> None: ...
def update(
    kind: int,
    weight: _Array,
    is_bfloat16: bool,
    first: _Array | None,
    second: _Array | None,
    keys: _Array,
    global_keys: _Array,
    grads: _Array,
    seed: int,
    rate: float,
    eps: float,
    beta1: float,
    beta2: float,
) -> None: ...
def draw(key: int, rows: _Array, scale: float, out: _Array) -> None: ...
