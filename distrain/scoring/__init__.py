"""Scores of a saved model: parquet in, parquet out."""

from distrain.scoring.job import PredictRequest, PredictResult, predict

__all__ = ["PredictRequest", "PredictResult", "predict"]
