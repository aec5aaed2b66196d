"""Any table, described by a features document: read, checked and staged for the workflow."""

from distrain.etl.features.config import (
    FEATURES_FILE as FEATURES_FILE,
    FeatureConfig as FeatureConfig,
)
from distrain.etl.features.inferring import Inferred as Inferred, infer_features as infer_features
from distrain.etl.features.inputs import (
    check_tables as check_tables,
    read_tables as read_tables,
    save_features as save_features,
    with_features as with_features,
    workflow_of as workflow_of,
)
from distrain.etl.features.table_file import check_named as check_named
