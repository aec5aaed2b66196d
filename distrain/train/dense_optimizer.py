"""torch's optimizers for the dense parameters, in their fused form where there is one."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam, Optimizer

from distrain.spec import OptimizerSpec


class DenseOptimizer:
    """Updates dense parameters by torch's optimizer of that name.

    Fused kernels do an update in one pass; over one flat vector that is one kernel for all
    parameters. Where torch has none for the device, its loop over parameters does the same.

    On a GPU the learning rate is a tensor there, so that a captured graph reads today's.

    Args:
        parameters: With gradients that stay where they are; all on one device.
        spec: Which optimizer. "rowwise_adagrad" is about rows of tables: dense parameters, which
            have none, get Adagrad.

    Attributes:
        torch_optimizer: What does the work, and holds the state.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], spec: OptimizerSpec):
        self.parameters = list(parameters)
        first = self.parameters[0]
        fused = _has_fused(spec, first)
        self._lr: Tensor | None = None
        if fused and first.device.type == "cuda":
            self._lr = torch.full((), spec.lr, dtype=torch.float32, device=first.device)
        self.torch_optimizer = _make(
            self.parameters, spec, spec.lr if self._lr is None else self._lr, fused
        )

    @property
    def capturable(self) -> bool:
        """Whether a CUDA graph may hold its step: the learning rate is read on the device."""
        return self._lr is not None

    @torch.no_grad()
    def step(self, lr: float | Tensor, scale: Tensor | None = None) -> None:
        """Update the parameters.

        Args:
            lr: The learning rate. A captured graph must get it as a tensor on its device.
            scale: A scalar tensor on the parameters' device: a factor on the gradients, which are
                multiplied by it in place. `None` means 1.
        """
        if scale is not None:
            torch._foreach_mul_([p.grad for p in self.parameters if p.grad is not None], scale)
        if self._lr is None:
            for group in self.torch_optimizer.param_groups:
                group["lr"] = float(lr)
        elif isinstance(lr, Tensor):
            self._lr.copy_(lr)
        else:
            self._lr.fill_(lr)
        self.torch_optimizer.step()

    def zero_grad(self) -> None:
        """Set all gradients to zero, where they are."""
        self.torch_optimizer.zero_grad(set_to_none=False)


def _make(
    parameters: Sequence[nn.Parameter], spec: OptimizerSpec, lr: float | Tensor, fused: bool
) -> Optimizer:
    options: dict[str, Any] = {"lr": lr, "fused": fused}
    match spec.kind:
        case "sgd":
            return SGD(parameters, **options)
        case "adagrad" | "rowwise_adagrad":
            return Adagrad(parameters, eps=spec.eps or 1e-10, **options)
        case "adam":
            return Adam(parameters, betas=spec.betas, eps=spec.eps or 1e-8, **options)


def _has_fused(spec: OptimizerSpec, like: nn.Parameter) -> bool:
    """Whether this torch has the optimizer's fused kernel for such parameters: by trying it."""
    trial = nn.Parameter(torch.zeros(1, dtype=like.dtype, device=like.device))
    trial.grad = torch.zeros_like(trial)
    try:
        _make([trial], spec, spec.lr, fused=True).step()
    except (RuntimeError, NotImplementedError):
        return False
    return True
