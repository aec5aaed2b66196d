"""Metrics as states of constant size that update, merge across ranks, and compute."""

from distrain.metrics.binary import BinaryMetrics
from distrain.metrics.report import BinaryReport

__all__ = ["BinaryMetrics", "BinaryReport"]
