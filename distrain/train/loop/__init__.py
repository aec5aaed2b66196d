"""The training loop of one rank, from set-up to the last evaluation."""

from distrain.train.loop.evaluation import (
    finite_metrics as finite_metrics,
    scored_batches as scored_batches,
)
from distrain.train.loop.trainer import Trainer as Trainer
