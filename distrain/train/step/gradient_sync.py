"""The vectors in which the ranks' dense gradients are added up, and the module's buffers.

All ranks begin with rank 0's parameters and buffers. After a step they have the same sums and the
same buffers, bit by bit.
"""

from itertools import accumulate

import torch
from torch import Tensor, distributed as dist, nn

from distrain.train.timing.phases import PEERS, waiting

# Each parameter begins at a multiple of this number of values: 64 bytes of fp32, like a new tensor.
# Matrix products on a CPU are faster with this alignment, and are rounded like those of separate
# parameters.
_ALIGNMENT = 16


class FlatParameters:
    """Puts all trainable parameters of a module into one vector, and their gradients into another.

    The module's parameters and their `.grad` become views, and autograd adds to existing gradients
    in place. So gradients are exchanged without copies, one kernel updates all parameters, and one
    sets all gradients to zero. The gaps between parameters hold zeros in both vectors, and no
    optimizer changes a zero whose gradient is zero.

    Do not move the module to another device or dtype afterwards, and do not set its gradients to
    `None`: it would no longer use the vectors.

    Args:
        module: On its device, all its trainable parameters of one dtype.

    Attributes:
        vector: `[size]`, the parameters; its `.grad` is the vector of gradients, `[size]`.
        parameters: The module's parameters, in the order of the vector.
        starts: The index in the vector at which each parameter begins.

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
        self.parameters, self.starts = tuple(parameters), tuple(starts)
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


def _padded(count: int) -> int:
    return -(-count // _ALIGNMENT) * _ALIGNMENT


class BufferSync:
    """Sets a module's buffers to their mean over the ranks, once a step.

    A rank computes batch norms from its rows only. Without an exchange, the running statistics of
    ranks would diverge, and the saved ones would be arbitrary. The mean is computed from float64
    sums, and all ranks get the same bits. Integer buffers, such as the number of batches of a batch
    norm, get the mean rounded up. Only buffers in the `state_dict` are included: the others are
    constants. A module without buffers needs no exchange.

    Creating an instance is a collective operation: all ranks begin with rank 0's buffers.
    """

    def __init__(self, module: nn.Module, num_ranks: int, group: dist.ProcessGroup | None = None):
        self._buffers = saved_buffers(module) if num_ranks > 1 else []
        self._num_ranks = num_ranks
        self._group = group
        self._sums: Tensor | None = None
        self._work: dist.Work | None = None
        if self._buffers:
            values = self._packed()
            dist.broadcast(values, group=group, group_src=0)
            self._unpack(values)

    def start(self) -> None:
        if self._buffers:
            self._sums = self._packed()
            self._work = dist.all_reduce(self._sums, group=self._group, async_op=True)

    def finish(self) -> None:
        if self._sums is None or self._work is None:
            return
        with waiting(PEERS):
            self._work.wait()
        self._unpack(self._sums / self._num_ranks)
        self._sums = self._work = None

    @torch.no_grad()
    def _packed(self) -> Tensor:
        """Return the values of all buffers in one float64 vector; counts of batches stay exact."""
        return torch.cat([buffer.reshape(-1).double() for buffer in self._buffers])

    @torch.no_grad()
    def _unpack(self, values: Tensor) -> None:
        parts = torch.split(values, [buffer.numel() for buffer in self._buffers])
        for buffer, part in zip(self._buffers, parts, strict=True):
            whole = part if buffer.is_floating_point() else part.ceil()
            buffer.copy_(whole.view(buffer.shape))


def saved_buffers(module: nn.Module) -> list[Tensor]:
    """Return the buffers in a module's `state_dict`, in its order, without duplicates.

    >>> [tuple(buffer.shape) for buffer in saved_buffers(nn.BatchNorm1d(3))]
    [(3,), (3,), ()]
    """
    parameters = {id(parameter) for parameter in module.parameters()}
    found = {id(t): t for t in module.state_dict(keep_vars=True).values() if isinstance(t, Tensor)}
    return [tensor for key, tensor in found.items() if key not in parameters]
