"""Scoring labelled rows with a model."""

from collections.abc import Callable

import numpy as np
import torch

from distrain.embeddings import Peers
from distrain.errors import NonFiniteOutput
from distrain.loader import Loader
from distrain.metrics import BinaryMetrics
from distrain.metrics.device import DeviceBinaryMetrics
from distrain.models import ClickModel
from distrain.train.whereabouts import READER, waiting


@torch.no_grad()
def evaluate(
    model: ClickModel,
    loader: Loader,
    device: torch.device,
    before_batch: Callable[[], None] = lambda: None,
) -> BinaryMetrics:
    """The metrics of this rank's share of a table; no collective operation but the tables' own.

    Args:
        model: On `device`.
        loader: Gives labelled rows.
        device: Where the model is.
        before_batch: Called before each batch; what it raises ends the scoring.

    Raises:
        NonFiniteOutput: A logit is not finite.
        DataError: The rows cannot be used.
    """
    metrics = DeviceBinaryMetrics(device)
    was_training = model.training
    model.eval()
    with loader.epoch(0) as batches:
        for _ in range(loader.num_steps):
            before_batch()
            with waiting(READER):
                batch = next(batches)
            on_device = batch.to(device)
            assert on_device.label is not None
            metrics.update(model(on_device), on_device.label)
    model.train(was_training)
    try:
        return metrics.read_and_reset()
    except ValueError as error:  # the loader has checked the labels
        raise NonFiniteOutput(
            f"the model cannot score these rows: {error}",
            hint="Its weights may hold NaN: lower the learning rate it was trained with.",
        ) from None


def merged_auc(metrics: BinaryMetrics, peers: Peers, device: torch.device) -> float | None:
    """The AUC of the rows of all ranks; a collective operation.

    Args:
        metrics: Of this rank's rows.
        peers: This rank among the others.
        device: What their process group works on.

    Returns:
        The same on every rank; `None` where all labels are alike.
    """
    counts = np.stack([metrics.negatives, metrics.positives])
    negatives, positives = peers.add_up(torch.from_numpy(counts).to(device)).cpu().numpy()
    return BinaryMetrics(negatives, positives).compute().auc
