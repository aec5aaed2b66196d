"""Values into bounds."""

from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from distrain.errors import InputError


@dataclass(frozen=True)
class Clip:
    """Raise values below `min` to it and lower values above `max` to it; gaps and NaN stay.

    >>> Clip(min=0, max=5).transform("I1", pa.array([-3, 2, None, 9])).to_pylist()
    [0, 2, None, 5]
    >>> Clip(min=0).transform("I1", pa.array([-3.0, float("nan")])).to_pylist()
    [0.0, nan]
    """

    kind: ClassVar[str] = "Clip"
    min: float | None = None
    max: float | None = None

    def __post_init__(self) -> None:
        if self.min is None and self.max is None:
            raise InputError("Clip needs min or max")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise InputError(f"Clip's min {self.min} is above its max {self.max}")

    def transform(self, column: str, values: pa.Array) -> pa.Array:
        """The bounded values; integers stay integers where the bounds are whole."""
        bounded = values
        if self.min is not None:
            bounded = pc.max_element_wise(bounded, _bound(self.min), skip_nulls=False)
        if self.max is not None:
            bounded = pc.min_element_wise(bounded, _bound(self.max), skip_nulls=False)
        if not pa.types.is_floating(values.type):
            return bounded
        # Arrow takes the bound for the larger, and for the smaller, of itself and NaN.
        return pc.if_else(pc.is_nan(values), values.cast(bounded.type), bounded)

    def to_json(self) -> dict[str, Any]:
        """The settings."""
        return {"min": self.min, "max": self.max}


def _bound(value: float) -> pa.Scalar:
    return pa.scalar(int(value)) if value == int(value) else pa.scalar(float(value))
