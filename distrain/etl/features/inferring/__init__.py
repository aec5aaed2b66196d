"""A features document from a sample of a table."""

from distrain.etl.features.inferring.infer import Inferred, infer_features

__all__ = ["Inferred", "infer_features"]
