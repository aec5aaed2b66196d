"""One training step: look up, run the dense part, exchange, update."""

from collections.abc import Iterable
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Adagrad, Adam, Optimizer

from distrain.batch import Batch
from distrain.embeddings import SparseOptimizer
from distrain.models import ClickModel
from distrain.spec import OptimizerSpec
from distrain.train.phases import PhaseClock

_DDP_OPTIONS: dict[str, Any] = {
    "gradient_as_bucket_view": True,
    # The dense parts' buffers are constants, which need no exchange. torch 2.13 renamed the switch.
    "forward_sync_buffers"
    if "forward_sync_buffers" in signature(DistributedDataParallel).parameters
    else "broadcast_buffers": False,
}


class TrainStep:
    """Trains a model batch by batch, together with the other ranks.

    The loss is the mean over the global batch. Ranks may hold different numbers of rows, none
    included, so each rank weights its sum by `num_ranks / global_rows`: the mean over ranks that
    `DistributedDataParallel` takes is then the gradient of the global mean.

    Args:
        model: On its device.
        optimizer: What updates dense parameters and embedding rows.
        num_ranks: The gang's size; above 1 a process group must be there.
    """

    def __init__(self, model: ClickModel, optimizer: OptimizerSpec, num_ranks: int):
        self.model = model
        self.num_ranks = num_ranks
        self.dense: nn.Module = model.dense
        if num_ranks > 1:
            self.dense = DistributedDataParallel(model.dense, **_DDP_OPTIONS)
        self.dense_optimizer = dense_optimizer(self.dense.parameters(), optimizer)
        self.sparse_optimizer = SparseOptimizer(
            model.embeddings, optimizer.kind, eps=optimizer.eps, betas=optimizer.betas
        )

    def __call__(
        self, batch: Batch, global_rows: int, lr: float, clock: PhaseClock
    ) -> tuple[Tensor, Tensor]:
        """Train on one batch.

        A collective operation: every rank calls it in every step.

        Args:
            batch: This rank's rows, with labels, on the model's device.
            global_rows: Rows of this step over all ranks.
            lr: The learning rate.
            clock: Learns how long each part took.

        Returns:
            The logits before the update, `[rows]`, and the sum of the rows' losses, a scalar,
            both detached and on the device.

        Raises:
            SchemaError: The batch's columns are not the model's.
        """
        self.model.check_columns(batch)
        assert batch.label is not None
        with clock.phase("forward_backward"):
            route = self.model.embeddings.route(batch.categorical, batch.lists)
            embedded = self.model.embeddings.expand(route, self.model.embeddings.fetch(route))
            logits = self.dense(embedded, batch.continuous)
            loss_sum = binary_cross_entropy_with_logits(logits, batch.label, reduction="sum")
            torch.autograd.backward(loss_sum * (self.num_ranks / global_rows))
        with clock.phase("exchange"):
            sums = self.model.embeddings.collect(route, [leaf.grad for leaf in embedded])
            merged = self.model.embeddings.exchange(route, sums)
        with clock.phase("optimizer"):
            self.sparse_optimizer.apply(merged, lr, scale=1.0 / self.num_ranks)
            for group in self.dense_optimizer.param_groups:
                group["lr"] = lr
            self.dense_optimizer.step()
            self.dense_optimizer.zero_grad(set_to_none=False)
        return logits.detach(), loss_sum.detach()


def dense_optimizer(parameters: Iterable[nn.Parameter], spec: OptimizerSpec) -> Optimizer:
    """Torch's optimizer of that name."""
    parameters = list(parameters)
    match spec.kind:
        case "sgd":
            return SGD(parameters, lr=spec.lr)
        case "adagrad":
            return Adagrad(parameters, lr=spec.lr, eps=spec.eps or 1e-10)
        case "adam":
            return Adam(parameters, lr=spec.lr, betas=spec.betas, eps=spec.eps or 1e-8)
