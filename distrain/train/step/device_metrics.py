"""The metrics state of a rank, kept on its device so that counting never makes the host wait."""

import numpy as np
import torch
from torch import Tensor

from distrain.metrics import BINS_PER_LOGIT, LOGIT_LIMIT, NUM_BINS, BinaryMetrics


class DeviceBinaryMetrics:
    """`BinaryMetrics` accumulated by torch; the counts are those that numpy would find.

    All state lies in one int64 buffer (the two float64 sums are views of its last words), so
    reading it takes one copy and one wait. Nothing in `update` depends on values, so the call can
    be captured in a CUDA graph.

    >>> metrics = DeviceBinaryMetrics(torch.device("cpu"))
    >>> metrics.update(torch.tensor([-2.0, -1.0, 1.0, 2.0]), torch.tensor([0.0, 1.0, 0.0, 1.0]))
    >>> metrics.read_and_reset().compute().auc
    0.75
    """

    def __init__(self, device: torch.device):
        self._state = torch.zeros(2 * NUM_BINS + 3, dtype=torch.int64, device=device)
        self._counts = self._state[: 2 * NUM_BINS]
        self._unusable = self._state[2 * NUM_BINS]
        sums = self._state[2 * NUM_BINS + 1 :].view(torch.float64)
        self._log_loss_sum, self._prediction_sum = sums[0], sums[1]

    @torch.no_grad()
    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Count some rows, without waiting for the device.

        Rows whose logit is not finite or whose label is neither 0 nor 1 are set aside, and
        `read_and_reset` reports them.

        Args:
            logits: `[rows]`, any float dtype, on this state's device; no rows are fine.
            labels: `[rows]`, 0 or 1 in any dtype, on this state's device.
        """
        if logits.ndim != 1 or logits.shape != labels.shape:
            raise ValueError(
                f"logits {list(logits.shape)} and labels {list(labels.shape)} must both be [rows]"
            )
        # Copies, so that what follows may work in place.
        x, y = logits.to(torch.float64, copy=True), labels.to(torch.float64, copy=True)
        # 0 for every usable row, NaN or another number for the rest.
        usable = ((x - x) + (y * y - y)) == 0
        unusable = usable.logical_not()
        x, y = x.masked_fill_(unusable, 0.0), y.masked_fill_(unusable, 0.0)
        bins = x.clamp(-LOGIT_LIMIT, LOGIT_LIMIT).float().add_(LOGIT_LIMIT).mul_(BINS_PER_LOGIT)
        index = bins.long().clamp_(max=NUM_BINS - 1).add_(y.long(), alpha=NUM_BINS)
        self._counts.scatter_add_(0, index, usable.long())
        self._unusable.add_(unusable.sum())
        losses = torch.nn.functional.logsigmoid(y.mul_(2).sub_(1).mul_(x)).neg_()
        self._log_loss_sum.add_(losses.mul_(usable).sum())
        self._prediction_sum.add_(x.sigmoid_().mul_(usable).sum())

    def copy_of_state(self) -> Tensor:
        """A copy of the counts since the last reading, `[2 * NUM_BINS + 3]`, int64."""
        return self._state.clone()

    def add_state(self, state: Tensor) -> None:
        """Add another state's counts; onto an empty state, that gives the same bits.

        >>> other, metrics = (DeviceBinaryMetrics(torch.device("cpu")) for _ in range(2))
        >>> other.update(torch.tensor([0.5]), torch.tensor([1.0]))
        >>> metrics.add_state(other.copy_of_state())
        >>> metrics.read_and_reset().rows
        1
        """
        more = state.to(self._state.device)
        self._state[: 2 * NUM_BINS + 1] += more[: 2 * NUM_BINS + 1]
        sums = self._state[2 * NUM_BINS + 1 :].view(torch.float64)
        sums += more[2 * NUM_BINS + 1 :].view(torch.float64)

    def read_and_reset(self) -> BinaryMetrics:
        """The rows since the last call, and an empty state; waits for the device once."""
        state = self._state.cpu().clone().numpy()
        self._state.zero_()
        unusable = int(state[2 * NUM_BINS])
        if unusable:
            rows = unusable + int(state[: 2 * NUM_BINS].sum())
            raise ValueError(
                f"{unusable} of {rows} rows have a logit that is not finite "
                "or a label that is neither 0 nor 1"
            )
        log_loss_sum, prediction_sum = state[2 * NUM_BINS + 1 :].view(np.float64)
        return BinaryMetrics(
            state[:NUM_BINS],
            state[NUM_BINS : 2 * NUM_BINS],
            float(log_loss_sum),
            float(prediction_sum),
        )
