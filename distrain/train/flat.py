"""A module's parameters as one vector, so that one operation reads or writes them all."""

from itertools import accumulate

import torch
from torch import Tensor, nn

# Each parameter begins at a multiple of so many values: 64 bytes of fp32, where a fresh tensor
# would begin too. Matrix products on a CPU run faster there, and their rounding is that of
# parameters that lie by themselves.
_ALIGNMENT = 16


class FlatParameters:
    """All trainable parameters of a module in one vector, their gradients in a second one.

    The module's parameters and their `.grad` become views, and autograd adds to a gradient that is
    there in place. So one all-reduce exchanges all gradients, one kernel updates all parameters,
    and one fills all gradients with zeros. The gaps between parameters hold zeros in both vectors,
    and no optimizer moves a zero that has a gradient of zero.

    Do not move the module to another device or dtype afterwards, and do not set its gradients to
    `None`: either cuts it off from the vectors.

    Args:
        module: On its device, all its trainable parameters of one dtype.

    Attributes:
        vector: `[size]`, the parameters; its `.grad` is the vector of gradients, `[size]`.

    >>> layer = nn.Linear(2, 1)
    >>> flat = FlatParameters(layer)
    >>> flat.vector.data.fill_(3.0).shape, layer.bias.item()
    (torch.Size([32]), 3.0)
    """

    def __init__(self, module: nn.Module):
        parameters = [p for p in module.parameters() if p.requires_grad]
        kinds = {(p.device, p.dtype) for p in parameters}
        if len(kinds) != 1:
            raise ValueError(f"one vector needs parameters of one device and dtype, not {kinds}")
        device, dtype = kinds.pop()
        *starts, size = accumulate((_padded(p.numel()) for p in parameters), initial=0)
        values = torch.zeros(size, dtype=dtype, device=device)
        self.grads = torch.zeros_like(values)
        for parameter, start in zip(parameters, starts, strict=True):
            place = slice(start, start + parameter.numel())
            view = values[place].view(parameter.shape)
            view.copy_(parameter.data)
            parameter.data = view
            parameter.grad = self.grads[place].view(parameter.shape)
        self.vector = nn.Parameter(values)
        self.vector.grad = self.grads

    def grad_sq_norm(self) -> Tensor:
        """The sum of the squares of all gradients, a scalar."""
        norm: Tensor = torch.linalg.vector_norm(self.grads)
        return norm.square()


def _padded(count: int) -> int:
    return -(-count // _ALIGNMENT) * _ALIGNMENT
