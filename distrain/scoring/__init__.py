"""Scores and metrics of a saved model on parquet files."""

from distrain.scoring.evaluation import Groups, check_group, evaluate_groups, evaluate_saved
from distrain.scoring.in_memory import evaluate_rows, score_rows
from distrain.scoring.logits import Scorer, ScorerInProcess, ScorerOnCluster
from distrain.scoring.prediction import (
    PredictRequest,
    PredictResult,
    check_request,
    finished_scores,
    predict,
)
from distrain.scoring.raw import RawOptions, labelled_rows
from distrain.scoring.resuming import kept_logits

__all__ = [
    "Groups",
    "PredictRequest",
    "PredictResult",
    "RawOptions",
    "Scorer",
    "ScorerInProcess",
    "ScorerOnCluster",
    "check_group",
    "check_request",
    "evaluate_groups",
    "evaluate_rows",
    "evaluate_saved",
    "finished_scores",
    "kept_logits",
    "labelled_rows",
    "predict",
    "score_rows",
]
