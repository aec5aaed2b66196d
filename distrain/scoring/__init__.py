"""Scores of a saved model: parquet in, parquet or metrics out."""

from distrain.scoring.evaluation import Groups, check_group, evaluate_groups, evaluate_saved
from distrain.scoring.job import PredictRequest, PredictResult, check_request, predict

__all__ = [
    "Groups",
    "check_group",
    "evaluate_groups",
    "evaluate_saved",
    "PredictRequest",
    "PredictResult",
    "check_request",
    "predict",
]
