"""Scoring labelled rows with a model."""

import torch

from distrain.errors import ModelError
from distrain.loader import Loader
from distrain.metrics import BinaryMetrics
from distrain.metrics.device import DeviceBinaryMetrics
from distrain.models import ClickModel


@torch.no_grad()
def evaluate(model: ClickModel, loader: Loader, device: torch.device) -> BinaryMetrics:
    """The metrics of this rank's share of a table; no collective operation.

    Args:
        model: On `device`.
        loader: Gives labelled rows.
        device: Where the model is.

    Raises:
        ModelError: A logit is not finite.
        DataError: The rows cannot be used.
    """
    metrics = DeviceBinaryMetrics(device)
    was_training = model.training
    model.eval()
    with loader.epoch(0) as batches:
        for batch in batches:
            on_device = batch.to(device)
            assert on_device.label is not None
            metrics.update(model(on_device), on_device.label)
    model.train(was_training)
    try:
        return metrics.read_and_reset()
    except ValueError as error:  # the loader has checked the labels
        raise ModelError(
            f"the model cannot score these rows: {error}",
            hint="Its weights may hold NaN: lower the learning rate it was trained with.",
        ) from None
