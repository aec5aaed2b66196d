"""Decides which columns to read from a table's files, and checks their types and values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

from distrain.errors import SchemaError, SpecError
from distrain.schema.column import ColumnSchema, Tags, TargetKind
from distrain.schema.schema import Schema

if TYPE_CHECKING:
    from pyarrow import DataType

Kind = Literal["id", "value", "label", "weight", "task_weight"]

_INT32_IDS = 2**31
FILL_HINT = (
    "Fill the missing values when the table is prepared, or let the loader do it: fill_null_id for "
    "ids, fill_null_value for numbers."
)
_FLOAT32_MAX = 3.4028234663852886e38
_MOST_CLASSES = 2**24
"""Labels are stored as float32, which is exact for integers up to this number."""


@dataclass(frozen=True)
class WantedColumn:
    name: str
    # `"id"` (categorical), `"value"` (continuous), `"label"`, or one of the two kinds of weights
    kind: Kind
    # ids, or classes of labels, are in `0 .. cardinality-1`; `None` if unknown
    cardinality: int | None = None
    is_list: bool = False  # whether each row has a list of values instead of one value
    # the schema's maximum length of a list; `None` if unbounded
    max_length: int | None = None
    # the maximum number of items to keep, from the start of each list; `None` keeps all
    keep_length: int | None = None
    # the replacement of nulls, or of null items in a list (a null list becomes an empty one);
    # `None` rejects nulls
    fill_null: float | int | None = None
    target_kind: TargetKind = "binary"  # the kind of labels

    @property
    def is_weight(self) -> bool:
        return self.kind in ("weight", "task_weight")

    @property
    def id_limit(self) -> int:
        """The exclusive upper bound of ids: the cardinality, at most 2^31 since ids are int32."""
        return min(self.cardinality or _INT32_IDS, _INT32_IDS)


def wanted_columns(
    schema: Schema,
    *,
    need_label: bool,
    fill_null_id: int | None = None,
    fill_null_value: float | None = None,
) -> tuple[WantedColumn, ...]:
    """Return the columns that the schema's tags select.

    Their order is: ids, values, labels, the weight, weights of tasks, lists of ids, lists of
    values; each group in the order of the schema.

    Args:
        schema: Categorical columns are ids, continuous ones values, targets labels; at most one
            column is tagged `weight`, and any number `task_weight`.
        need_label: Whether labels and weights are read; if so, there is at least one label.
        fill_null_id: Replacement of null ids; `None` rejects nulls.
        fill_null_value: Replacement of null values; `None` rejects nulls. Null labels and weights
            are always rejected.

    Raises:
        SchemaError: There is no feature column, a column has two of these roles, a label is needed
            and there is none, there are two weights, a label or a weight is a list, a multiclass
            target has no usable number of classes, or `fill_null_id` is outside the ids of some
            column.
        SpecError: `fill_null_value` is not a finite float32 number.

    >>> user = ColumnSchema("user", tags=("categorical",), cardinality=9)
    >>> (wanted,) = wanted_columns(Schema((user,)), need_label=False, fill_null_id=0)
    >>> wanted.name, wanted.kind, wanted.cardinality, wanted.fill_null
    ('user', 'id', 9, 0)
    """
    if fill_null_value is not None and not abs(fill_null_value) <= _FLOAT32_MAX:
        raise SpecError(f"fill_null_value is {fill_null_value}, which is not a finite float32")
    ids = [_wanted(column, "id", fill_null_id) for column in schema.categorical]
    values = [_wanted(column, "value", fill_null_value) for column in schema.continuous]
    labels = _label_columns(schema) if need_label else []
    if not ids and not values:
        raise SchemaError(
            "the schema has no feature columns",
            hint="Tag the columns to train on with `categorical` or `continuous`.",
        )
    roles = Counter(column.name for column in (*ids, *values, *labels))
    twice = [name for name, count in roles.items() if count > 1]
    if twice:
        raise SchemaError(
            f"columns with more than one of the tags categorical, continuous, target, weight: "
            f"{twice}",
            hint="Give each column one of them; a target among the features would leak.",
        )
    _check_fill_id(ids, fill_null_id)
    features = (*ids, *values)
    return (
        *(column for column in features if not column.is_list),
        *labels,
        *(column for column in features if column.is_list),
    )


def column_of_leaf(path: str, flat: Collection[str], lists: Collection[str]) -> str | None:
    """Return the name of the column that a leaf of a parquet schema belongs to, by its path.

    Only the flat columns `flat` and the list columns `lists` are considered; `None` if the leaf
    belongs to none of them.

    >>> column_of_leaf("tags.list.element", (), ("tags",)), column_of_leaf("a.b", ("a", "a.b"), ())
    ('tags', 'a.b')
    """
    if path in flat:
        return path
    # A name may contain dots itself, so any prefix of a path may be a list column's name.
    beginnings = [*accumulate(path.split("."), "{}.{}".format)]
    return next((name for name in reversed(beginnings) if name in lists), None)


def type_problem(column: WantedColumn, kind: DataType) -> str | None:
    """Return why a column cannot have values of an Arrow type; `None` if it can.

    Ids are integers, booleans or dates; numbers may also be floats. Labels and weights cannot be
    dates. Lists are for list columns only. A column without values needs a replacement for nulls,
    or lists.
    """
    from pyarrow import types

    holds = f"column {column.name!r} has type {kind}"
    if _is_list(kind):
        if not column.is_list:
            return f"{holds}: one value per row is needed, not lists"
        kind = kind.value_type
    elif column.is_list:
        return f"{holds}, but the schema says that each row holds a list"
    elif types.is_nested(kind):
        return f"{holds}: one value per row is needed, not lists, structs or maps"
    if types.is_null(kind):
        filled = column.fill_null is not None or column.is_list
        return None if filled else f"{holds}: all its values are missing"
    whole = types.is_integer(kind) or types.is_boolean(kind)
    # Dates are read as numbers that count from 1970, which makes no sense for labels and weights.
    date = types.is_date(kind) and column.kind in ("id", "value")
    if column.kind == "id":
        return None if whole or date else f"{holds}, but integer ids are needed"
    number = whole or types.is_floating(kind) or date
    return None if number else f"{holds}, but numbers are needed"


def type_hint(column: WantedColumn, kind: DataType) -> str:
    from pyarrow import types

    if _is_list(kind) != column.is_list:
        return (
            "Set is_list for the column in the schema (value_count in schema.pbtxt), "
            "or reduce each list to one value."
            if _is_list(kind)
            else "Leave is_list (value_count) out of the schema, or write lists to the file."
        )
    if _is_list(kind):
        kind = kind.value_type
    if types.is_nested(kind):
        return "Write the needed field to a separate column."
    if types.is_dictionary(kind) or _is_text(kind):
        return "Run `distrain prep` on the table first: it converts words to ids 0, 1, 2, ..."
    if types.is_null(kind):
        return FILL_HINT
    if types.is_decimal(kind):
        number = "int64" if column.kind == "id" else "float32 or float64"
        return f"Cast it to {number} where the table is written."
    if types.is_temporal(kind):
        return (
            "Cast it where the table is written: to a date, or to a float32 count of hours or "
            "days since a date near the data (float32 has too few digits for seconds since 1970)."
        )
    if column.kind == "id" and types.is_floating(kind):
        return "Ids with nulls often become floats: cast the column to int32 and keep its nulls."
    return "Prepare the raw table first; a prepared one holds integer ids and plain numbers."


def value_problem(column: WantedColumn, value: float | int) -> tuple[str, str] | None:
    """Return why a column cannot have a value (not null), and a hint; `None` if it can."""
    name = repr(column.name)
    if column.kind == "id":
        if 0 <= value < column.id_limit:
            return None
        message = f"id {value} of column {name} is not in 0..{column.id_limit - 1}"
        return message, id_hint(column, int(value))
    if column.kind == "label" and column.target_kind == "binary":
        if value in (0, 1):
            return None
        return f"label {name} is {value}, not 0 or 1", "Is it the right target column?"
    if column.kind == "label" and column.target_kind == "multiclass":
        if 0 <= value < column.id_limit and value == int(value):
            return None
        classes = f"not an integer in 0..{column.id_limit - 1}"
        return f"label {name} is {value}, {classes}", "Is the number of classes right?"
    if not math.isfinite(value):
        message = f"column {name} holds {value}, which is not a finite number"
        return message, "Clip or fill it when the table is prepared."
    if column.is_weight and value < 0:
        return f"weight {name} is {value}, not 0 or more", "Is it the right weight column?"
    return None


def id_hint(column: WantedColumn, value: int) -> str:
    if value < 0:
        return "Ids start at 0; a negative id often means a missing value."
    if column.cardinality is None:
        return "Ids are stored as int32; prepare the table again so that they are numbered from 0."
    return (
        f"The schema says cardinality {column.cardinality}: it is probably from another "
        "run of prep than the files. If prep --update added ids, `distrain train JOB --set "
        "train.init_from=RUN` enlarges the tables."
    )


def _wanted(column: ColumnSchema, kind: Kind, fill_null: float | int | None = None) -> WantedColumn:
    is_classes = kind == "label" and column.target_kind == "multiclass"
    return WantedColumn(
        column.name,
        kind,
        column.cardinality if kind == "id" or is_classes else None,
        is_list=column.holds_lists,
        max_length=column.value_count[1] if column.value_count else None,
        keep_length=column.max_list_length,
        fill_null=fill_null,
        target_kind=column.target_kind if kind == "label" else "binary",
    )


def _label_columns(schema: Schema) -> list[WantedColumn]:
    targets = schema.select_by_tag(Tags.TARGET)
    weights = schema.select_by_tag(Tags.WEIGHT)
    if not targets:
        _ = schema.target  # raises
    if len(weights) > 1:
        raise SchemaError(
            f"the schema has {len(weights)} weight columns: {', '.join(weights.names)}",
            hint="Tag the one that weighs the rows, and only it, with `weight`.",
        )
    labels = [_wanted(column, "label") for column in targets]
    for label in labels:
        if label.target_kind == "multiclass" and not 2 <= (label.cardinality or 0) <= _MOST_CLASSES:
            raise SchemaError(
                f"the target {label.name!r} is multiclass, but has no number of classes",
                where={"column": label.name, "its cardinality": label.cardinality},
                hint=f"Set its cardinality in the schema, or `classes` of its task: 2 to "
                f"{_MOST_CLASSES:,}.",
            )
    labels += [_wanted(column, "weight") for column in weights]
    labels += [_wanted(column, "task_weight") for column in schema.select_by_tag(Tags.TASK_WEIGHT)]
    lists = [column.name for column in labels if column.is_list]
    if lists:
        raise SchemaError(
            f"targets and weights cannot be lists: {', '.join(lists)}",
            hint="Each row needs one number; leave is_list (value_count) out, or reduce the lists.",
        )
    return labels


def _check_fill_id(ids: Sequence[WantedColumn], fill: int | None) -> None:
    if fill is None:
        return
    outside = [f"{c.name} (0..{c.id_limit - 1})" for c in ids if not 0 <= fill < c.id_limit]
    if outside:
        raise SchemaError(
            f"fill_null_id is {fill}, which is not an id of: {', '.join(outside)}",
            hint="Choose an id that every categorical column has; 0 is always valid.",
        )


def _is_list(kind: DataType) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_text(kind: DataType) -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))
