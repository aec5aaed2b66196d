"""Small schemas and batches for the model tests."""

import pytest
import torch
import torch_checks

from distrain.loader.batch import Batch
from distrain.schema import ColumnSchema, Schema, Tags


def _small_schema(num_categorical=3, num_continuous=2, **column):
    return Schema(
        (
            ColumnSchema("clicked", "float32", (Tags.TARGET, Tags.BINARY_CLASSIFICATION)),
            *(
                ColumnSchema(f"c{i}", "int32", (Tags.CATEGORICAL,), cardinality=5 + 7 * i, **column)
                for i in range(num_categorical)
            ),
            *(ColumnSchema(f"x{i}", "float32", (Tags.CONTINUOUS,)) for i in range(num_continuous)),
        )
    )


def _schema_and_batch(num_categorical, num_continuous, rows):
    schema = _small_schema(num_categorical, num_continuous)
    generator = torch.Generator().manual_seed(0)
    # Laid out as the loader does: each column contiguous.
    ids = torch.empty(num_categorical, rows, dtype=torch.int32)
    for i, column in enumerate(schema.categorical):
        ids[i] = torch.randint(0, column.cardinality, (rows,), generator=generator)
    continuous = torch.randn(num_continuous, rows, generator=generator)
    label = torch.randint(0, 2, (rows,), generator=generator).float()
    names = schema.categorical.names, schema.continuous.names
    return schema, Batch(ids.T, continuous.T, label, *names)


@pytest.fixture(scope="session")
def small_schema():
    """Makes a schema: a target, categorical columns of 5, 12, 19, ... ids, continuous ones."""
    return _small_schema


@pytest.fixture(scope="session")
def schema_and_batch():
    """Makes such a schema and a batch of random rows."""
    return _schema_and_batch


@pytest.fixture(scope="session")
def attached():
    """Attaches a block or a task in float64; returns the shape it gives."""
    return torch_checks.attached
