"""The dense part of a rank's training step, behind one small interface."""

from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn
from torch import distributed as dist

from distrain.spec import TrainSpec
from distrain.train.dense_forward import DenseForward, compiler_errors
from distrain.train.dense_optimizer import DenseOptimizer
from distrain.train.gradient_sync import DdpSync, FlatSync, GradientSync
from distrain.train.precision import arithmetic


class DenseTraining:
    """Runs, synchronises and updates the dense module of one rank.

    A step, in the order of its calls; with micro-batches the indented lines come once for each::

        zero_grad()
            with slice(last): forward(embedded, continuous), ..., backward(loss)
        start_sync()
        ...                     # other work, which the exchange overlaps
        finish_sync()           # gradients are now the sums over the ranks
        grad_sq_norm()          # if the norm is wanted
        step(lr, scale)

    Gradients are *added up* over the ranks, so a rank's loss is its share of the global loss: the
    sum of its rows' losses divided by the rows of all ranks. No factor of the number of ranks
    appears anywhere.

    The optimizer's fused kernels, the flat vectors and the precision follow `train`; see
    `docs/spec.md`. Making one is a collective operation: all ranks begin with rank 0's parameters.

    Args:
        module: `module(embedded, continuous) -> logits`, on its device, where it must stay.
        train: Says how: `dense_sync`, `precision`, `compile`, `micro_batches`, `optimizer`.
        num_ranks: How many train it together; above 1 a process group must be there.
        group: Their process group; `None` for the default one.

    Raises:
        SpecError: The device has no such precision.
    """

    def __init__(
        self,
        module: nn.Module,
        train: TrainSpec,
        num_ranks: int = 1,
        group: dist.ProcessGroup | None = None,
    ):
        self._precision = train.precision
        self._device = next(module.parameters()).device
        self._compiled = train.compile
        forward = DenseForward(module, train.precision, train.compile)
        self.sync: GradientSync
        if train.dense_sync == "ddp" and num_ranks > 1:
            self.sync = DdpSync(forward, train.micro_batches, group)
        else:
            self.sync = FlatSync(forward, num_ranks, group)
        self.optimizer = DenseOptimizer(self.sync.parameters, train.optimizer)
        self.zero_grad()

    def slice(self, last: bool) -> AbstractContextManager[None]:
        """Around forward and backward of one slice of the step's rows.

        Args:
            last: Whether it is the step's last slice.
        """
        return self.sync.slice(last)

    def forward(self, embedded: tuple[Tensor, ...], continuous: Tensor) -> Tensor:
        """The logits, `[rows]`, fp32 (float64 for a module of float64); 0 rows are allowed.

        Raises:
            ModelError: torch could not compile the module.
        """
        with arithmetic(self._precision, self._device), compiler_errors(self._compiled):
            logits: Tensor = self.sync.forward(embedded, continuous)
        return logits

    def backward(self, loss: Tensor) -> None:
        """Add this slice's gradients to the parameters' and set those of the leaves.

        Args:
            loss: A scalar: this slice's share of the global loss.
        """
        with arithmetic(self._precision, self._device), compiler_errors(self._compiled):
            torch.autograd.backward(loss)

    def start_sync(self) -> None:
        """Begin to add the ranks' gradients up; every rank calls it in every step."""
        self.sync.start()

    def finish_sync(self) -> None:
        """Wait until the gradients are the sums over the ranks."""
        self.sync.finish()

    def grad_sq_norm(self) -> Tensor:
        """The sum of the squares of all gradients, a scalar on the device."""
        return self.sync.grad_sq_norm()

    def step(self, lr: float | Tensor, scale: Tensor | None = None) -> None:
        """Update the parameters.

        Args:
            lr: The learning rate.
            scale: A scalar tensor on the device: a factor on the gradients; `None` means 1.
        """
        self.optimizer.step(lr, scale)

    def zero_grad(self) -> None:
        """Set all gradients to zero."""
        self.optimizer.zero_grad()
