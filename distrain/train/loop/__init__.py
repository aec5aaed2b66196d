"""The training loop of one rank, from set-up to the last evaluation."""

from distrain.train.loop.evaluation import scored_batches
from distrain.train.loop.trainer import Trainer

__all__ = ["Trainer", "scored_batches"]
