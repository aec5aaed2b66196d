"""Values to their logarithm."""

from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from distrain.errors import DataError
from distrain.etl.operators.base import as_doubles


@dataclass(frozen=True)
class LogOp:
    """log(1 + x) as float64; gaps stay gaps.

    >>> LogOp().transform("I1", pa.array([0, None])).to_pylist()
    [0.0, None]
    """

    kind: ClassVar[str] = "LogOp"

    def transform(self, column: str, values: pa.Array) -> pa.Array:
        """The logarithms.

        Raises:
            DataError: A value is -1 or less.
        """
        values = as_doubles(values)
        lowest = pc.min(values).as_py()
        if lowest is not None and lowest <= -1:
            raise DataError(
                f"log(1 + x) of {lowest:g} does not exist",
                where={"column": column},
                hint="Put Clip(min=0) before LogOp.",
            )
        return pc.log1p(values)

    def to_json(self) -> dict[str, Any]:
        """No settings."""
        return {}
