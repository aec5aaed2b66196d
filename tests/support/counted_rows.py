"""Metric states of rows, counted as a rank counts them."""

from typing import Any

import numpy as np
import torch

from distrain.train.step.device_metrics import DeviceMetrics


def counted(kind: str, *rows: np.ndarray[Any, Any], parts: int = 1) -> Any:
    """The state of scores, labels and perhaps weights, counted in so many parts."""
    metrics = DeviceMetrics(torch.device("cpu"), kind, rows[0].shape[-1])
    for part in np.array_split(np.arange(len(rows[0])), parts):
        metrics.update(*(torch.from_numpy(one[part]) for one in rows))
    return metrics.read_and_reset()
