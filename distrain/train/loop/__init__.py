"""The training loop of one rank, from set-up to the last evaluation."""

from distrain.train.loop.evaluation import finite_metrics, scored_batches
from distrain.train.loop.trainer import Trainer

__all__ = ["Trainer", "finite_metrics", "scored_batches"]
