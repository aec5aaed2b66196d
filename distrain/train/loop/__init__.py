"""The training loop of one rank, from set-up to the last evaluation."""

from distrain.train.loop.evaluation import (
    count_in as count_in,
    finite_metrics as finite_metrics,
    main_rows as main_rows,
    not_bounded as not_bounded,
    own_metrics as own_metrics,
    scored_batches as scored_batches,
)
from distrain.train.loop.trainer import Trainer as Trainer
