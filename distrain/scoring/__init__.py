"""Scores and metrics of a saved model on parquet files."""

from distrain.scoring.evaluation import Groups, check_group, evaluate_groups, evaluate_saved
from distrain.scoring.prediction import (
    PredictRequest,
    PredictResult,
    check_request,
    finished_scores,
    predict,
)

__all__ = [
    "Groups",
    "PredictRequest",
    "PredictResult",
    "check_group",
    "check_request",
    "evaluate_groups",
    "evaluate_saved",
    "finished_scores",
    "predict",
]
