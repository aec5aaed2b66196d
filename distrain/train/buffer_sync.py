"""How the ranks keep a dense module's buffers alike: the running statistics of batch norms.

Each rank's batch norms see the rank's own rows. Without an exchange the ranks' running statistics
would part, and which of them is saved, or scores the validation rows, would be a matter of chance.
"""

import torch
from torch import Tensor, nn
from torch import distributed as dist

from distrain.train.whereabouts import PEERS, waiting


class BufferSync:
    """Brings a module's buffers to their mean over the ranks, once a step.

    The mean is of float64 sums, and all ranks get the same bits. Buffers of integers, such as the
    number of batches that a batch norm has seen, get the mean rounded up. Only buffers that a model
    saves count: the others are constants. A module without any costs nothing.

    Making one is a collective operation: all ranks begin with rank 0's buffers.

    Args:
        module: The module, on its device.
        num_ranks: How many train it together.
        group: Their process group; `None` for the default one.
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
        """Begin to add up, after the step's last forward pass."""
        if self._buffers:
            self._sums = self._packed()
            self._work = dist.all_reduce(self._sums, group=self._group, async_op=True)

    def finish(self) -> None:
        """Wait for the sums, and take over their mean."""
        if self._sums is None or self._work is None:
            return
        with waiting(PEERS):
            self._work.wait()
        self._unpack(self._sums / self._num_ranks)
        self._sums = self._work = None

    @torch.no_grad()
    def _packed(self) -> Tensor:
        """All values in one vector; float64 holds every count of batches too."""
        return torch.cat([buffer.reshape(-1).double() for buffer in self._buffers])

    @torch.no_grad()
    def _unpack(self, values: Tensor) -> None:
        parts = torch.split(values, [buffer.numel() for buffer in self._buffers])
        for buffer, part in zip(self._buffers, parts, strict=True):
            whole = part if buffer.is_floating_point() else part.ceil()
            buffer.copy_(whole.view(buffer.shape))


def saved_buffers(module: nn.Module) -> list[Tensor]:
    """The buffers that a module's `state_dict` has, each once, in its order.

    >>> [tuple(buffer.shape) for buffer in saved_buffers(nn.BatchNorm1d(3))]
    [(3,), (3,), ()]
    """
    parameters = {id(parameter) for parameter in module.parameters()}
    # A compiled module is in there twice.
    found = {id(t): t for t in module.state_dict(keep_vars=True).values() if isinstance(t, Tensor)}
    return [tensor for key, tensor in found.items() if key not in parameters]
