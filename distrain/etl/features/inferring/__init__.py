"""A features document from a sample of a table."""

from distrain.etl.features.inferring.infer import Inferred, infer_features
from distrain.etl.features.inferring.sample import rows_of

__all__ = ["Inferred", "infer_features", "rows_of"]
