"""Which columns of a file are used, and what may be in them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from distrain.errors import SchemaError
from distrain.schema import Schema

if TYPE_CHECKING:
    from pyarrow import DataType

Kind = Literal["id", "value", "label"]

_INT32_IDS = 2**31


@dataclass(frozen=True)
class Wanted:
    """A column that is wanted of each file.

    Attributes:
        name: Its name.
        kind: `"id"` (categorical), `"value"` (continuous) or `"label"`.
        cardinality: For ids: they lie in `0 .. cardinality-1`; `None` if unknown.
    """

    name: str
    kind: Kind
    cardinality: int | None = None

    @property
    def id_limit(self) -> int:
        """Ids lie below this; they are kept as int32, whatever the cardinality."""
        return min(self.cardinality or _INT32_IDS, _INT32_IDS)


def wanted_columns(schema: Schema, *, need_label: bool) -> tuple[Wanted, ...]:
    """The categorical, the continuous and, if needed, the target column, in this order.

    Raises:
        SchemaError: There is no feature column, a column has two of these roles, or the label is
            needed and the schema has not exactly one target.
    """
    ids = [Wanted(c.name, "id", c.cardinality) for c in schema.categorical]
    values = [Wanted(c.name, "value") for c in schema.continuous]
    labels = [Wanted(schema.target.name, "label")] if need_label else []
    if not ids and not values:
        raise SchemaError(
            "the schema has no feature columns",
            hint="Tag the columns to train on with `categorical` or `continuous`.",
        )
    roles = Counter(column.name for column in (*ids, *values, *labels))
    twice = [name for name, count in roles.items() if count > 1]
    if twice:
        raise SchemaError(
            f"columns with more than one of the tags categorical, continuous, target: {twice}",
            hint="Give each column one of them; a target among the features would leak.",
        )
    return (*ids, *values, *labels)


def type_problem(column: Wanted, kind: DataType) -> str | None:
    """Say why values of an Arrow type cannot be used, or return `None` if they can."""
    from pyarrow import types

    if types.is_nested(kind):
        return f"column {column.name!r} holds {kind}: one value per row is needed, not lists"
    number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    if column.kind == "id" and not types.is_integer(kind):
        return f"column {column.name!r} holds {kind}, but integer ids are needed"
    if column.kind != "id" and not number:
        return f"column {column.name!r} holds {kind}, but numbers are needed"
    return None


def id_hint(column: Wanted, value: int) -> str:
    """The likely cause of an id that is out of its range."""
    if value < 0:
        return "Ids start at 0; a negative one often stands for a missing value."
    if column.cardinality is None:
        return "Ids are kept as int32; prepare the table again so that they are numbered from 0."
    return (
        f"The schema says cardinality {column.cardinality}. "
        "The schema likely belongs to another prep run than the files."
    )
