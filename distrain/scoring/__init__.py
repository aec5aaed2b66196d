"""Scores of a saved model: parquet in, parquet out."""

from distrain.scoring.job import PredictRequest, PredictResult, check_request, predict

__all__ = ["PredictRequest", "PredictResult", "check_request", "predict"]
