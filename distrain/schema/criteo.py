"""The columns of Criteo's click logs."""

from collections.abc import Mapping

from distrain.schema.column import ColumnSchema, Tags
from distrain.schema.schema import Schema

LABEL = "label"
CONTINUOUS = tuple(f"I{i}" for i in range(1, 14))
CATEGORICAL = tuple(f"C{i}" for i in range(1, 27))


def criteo_schema(
    cardinalities: Mapping[str, int] | None = None, *, embedding_dim: int | None = None
) -> Schema:
    """Return the schema of prepared Criteo rows: label, I1..I13 as float32, C1..C26 as int32 ids.

    Args:
        cardinalities: The number of ids of each categorical column, by name; columns that are
            absent get no cardinality.
        embedding_dim: The `embedding_dim` of every categorical column.

    >>> len(criteo_schema())
    40
    """
    known = cardinalities or {}
    return Schema(
        (
            ColumnSchema(LABEL, "float32", (Tags.TARGET, Tags.BINARY_CLASSIFICATION)),
            *(ColumnSchema(name, "float32", (Tags.CONTINUOUS,)) for name in CONTINUOUS),
            *(
                ColumnSchema(
                    name,
                    "int32",
                    (Tags.CATEGORICAL,),
                    cardinality=known.get(name),
                    embedding_dim=embedding_dim,
                )
                for name in CATEGORICAL
            ),
        )
    )
