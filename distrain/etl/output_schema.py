"""What prepared columns mean."""

from collections.abc import Mapping
from dataclasses import replace

from distrain.etl.workflow import Workflow
from distrain.schema import LABEL, ColumnSchema, Schema, Tags


def output_schema(
    workflow: Workflow,
    cardinalities: dict[str, int],
    embedding_dim: int | None = None,
    list_lengths: Mapping[str, tuple[int, int]] | None = None,
) -> Schema:
    """The schema of what `workflow` writes: label, then its columns in order.

    Args:
        workflow: Whose columns.
        cardinalities: Of its categorical ones.
        embedding_dim: Their embeddings' width; `None` leaves it open.
        list_lengths: Least and greatest length, by column that holds lists.
    """
    columns = [ColumnSchema(LABEL, "float32", (Tags.TARGET, Tags.BINARY_CLASSIFICATION))]
    domains = workflow.domains
    for name in workflow.columns:
        column = ColumnSchema(name, "float32", (Tags.CONTINUOUS,))
        if name in workflow.categorical:
            tags, cardinality = (Tags.CATEGORICAL,), cardinalities[name]
            column = ColumnSchema(name, "int32", tags, cardinality, embedding_dim)
        if domains.get(name, name) != name:
            column = replace(column, properties={"domain": domains[name]})
        if list_lengths and name in list_lengths:
            least, greatest = list_lengths[name]
            column = replace(
                column,
                is_list=True,
                is_ragged=least != greatest or not greatest,
                value_count=(least, greatest or None),
            )
        columns.append(column)
    return Schema(tuple(columns))
