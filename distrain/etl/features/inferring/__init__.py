"""A features document from a sample of a table."""

from distrain.etl.features.inferring.infer import (
    Inferred as Inferred,
    infer_features as infer_features,
    rows_of as rows_of,
)
