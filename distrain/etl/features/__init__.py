"""Any table, described by a features document: read, checked and staged for the workflow."""

from distrain.etl.features.config import FEATURES_FILE, FeatureConfig
from distrain.etl.features.inferring import Inferred, infer_features
from distrain.etl.features.inputs import (
    check_tables,
    read_tables,
    save_features,
    with_features,
    workflow_of,
)
from distrain.etl.features.table_file import check_named

__all__ = [
    "FEATURES_FILE",
    "FeatureConfig",
    "Inferred",
    "check_named",
    "check_tables",
    "infer_features",
    "read_tables",
    "save_features",
    "with_features",
    "workflow_of",
]
