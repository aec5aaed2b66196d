"""The averages of a rank's weights (`train.ema`), which are scored and saved instead of them."""

from collections.abc import Iterator
from contextlib import contextmanager

from distrain.train.step.graphed_step import GraphedStep
from distrain.train.step.step import TrainStep


@contextmanager
def averaged(step: TrainStep | GraphedStep) -> Iterator[None]:
    """Return a context in which all weights are replaced by their averages, if these are kept.

    Do not train in it.
    """
    tables = step.sparse_optimizer
    with tables.averaged(), step.dense.optimizer.averaged(tables.num_steps):
        yield


def take_averages(step: TrainStep | GraphedStep) -> None:
    """Replace all weights by their averages, if these are kept, at the end of the training."""
    tables = step.sparse_optimizer
    if tables.averaging is not None:
        tables.take_averages()
        step.dense.optimizer.take_averages(tables.num_steps)
