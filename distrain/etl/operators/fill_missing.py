"""Missing values to a constant."""

from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from distrain.etl.operators.base import as_doubles


@dataclass(frozen=True)
class FillMissing:
    """Put `value` where there is none; NaN counts as missing.

    >>> FillMissing(7).transform("I1", pa.array([1, None, 3])).to_pylist()
    [1, 7, 3]
    """

    kind: ClassVar[str] = "FillMissing"
    value: float = 0

    def transform(self, column: str, values: pa.Array) -> pa.Array:
        """The values without gaps, same type (float64 if `value` needs it)."""
        if pa.types.is_floating(values.type):
            values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
        elif self.value != int(self.value):
            values = as_doubles(values)
        return pc.fill_null(values, pa.scalar(self.value).cast(values.type))

    def to_json(self) -> dict[str, Any]:
        """The settings."""
        return {"value": self.value}
