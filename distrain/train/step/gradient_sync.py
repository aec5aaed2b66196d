"""How the ranks' dense gradients are added up: pieces of one flat vector, or torch's own way.

Either way all ranks begin with rank 0's parameters and buffers, and end a step with the same sums,
and the same buffers, bit by bit.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from inspect import signature
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, distributed as dist, nn
from torch.nn.parallel import DistributedDataParallel

from distrain.train.step.buckets import GradientBuckets
from distrain.train.step.clipping import total_sq_norm
from distrain.train.timing import PEERS, waiting

# Each parameter begins at a multiple of this many values: 64 bytes of fp32, where a fresh tensor
# would begin too. Matrix products on a CPU run faster there, and their rounding is that of
# parameters that lie by themselves.
_ALIGNMENT = 16


class GradientSync:
    """Adds up gradients over the ranks; by itself only what both ways share.

    Attributes:
        forward: The module to call.
        parameters: What the optimizer updates, with gradients that stay where they are.
        trained: The module's parameters that have gradients.
    """

    forward: nn.Module
    parameters: Sequence[nn.Parameter]
    trained: Sequence[nn.Parameter]

    def __init__(self, module: nn.Module, num_ranks: int, group: dist.ProcessGroup | None):
        self._buffers = BufferSync(module, num_ranks, group)

    def slice(self, last: bool) -> AbstractContextManager[None]:
        """Around forward and backward of one slice of a step's rows."""
        return nullcontext()

    def arm(self) -> None:
        """Let the coming backward pass, the step's last one, begin the sums of what it has done."""

    def start(self) -> None:
        """Begin to add up, after the step's last backward pass."""
        self._buffers.start()

    def finish(self) -> None:
        """Wait until the gradients are the sums over the ranks, and the buffers their means."""
        self._buffers.finish()

    def grad_sq_norm(self) -> Tensor:
        """The sum of the squares of this rank's gradients, a scalar."""
        return total_sq_norm(p.grad for p in self.parameters if p.grad is not None)


class FlatSync(GradientSync):
    """All gradients in one vector, added up in buckets, which begin during the backward pass."""

    def __init__(self, module: nn.Module, num_ranks: int, group: dist.ProcessGroup | None = None):
        self.forward = module
        self.flat = FlatParameters(module)
        self.parameters = (self.flat.vector,)
        self.trained = self.flat.parameters
        super().__init__(module, num_ranks, group)
        self.buckets: GradientBuckets | None = None
        if num_ranks > 1:
            dist.broadcast(self.flat.vector.data, group=group, group_src=0)
            self.buckets = GradientBuckets(
                self.flat.grads,
                self.flat.parameters,
                self.flat.starts,
                partial(dist.all_reduce, group=group, async_op=True),
            )

    def arm(self) -> None:
        if self.buckets is not None:
            self.buckets.arm()

    def start(self) -> None:
        if self.buckets is not None:
            self.buckets.start()
        super().start()

    def finish(self) -> None:
        """Wait for the sums; on a GPU only its stream waits, not the host."""
        if self.buckets is not None:
            with waiting(PEERS):
                self.buckets.finish()
        super().finish()


class DdpSync(GradientSync):
    """`DistributedDataParallel`, with sums where it has means; it exchanges during backward."""

    def __init__(
        self, module: nn.Module, in_one: bool = True, group: dist.ProcessGroup | None = None
    ):  # `in_one`: each step is one slice
        self.forward = self._ddp = DistributedDataParallel(
            module,
            process_group=group,
            gradient_as_bucket_view=True,
            static_graph=in_one,
            **_NO_BUFFERS,
        )
        self._ddp.register_comm_hook(group, _sum_over_ranks)
        self.parameters = self.trained = [p for p in module.parameters() if p.requires_grad]
        super().__init__(module, dist.get_world_size(group), group)

    def slice(self, last: bool) -> AbstractContextManager[None]:
        """Only the last slice's backward pass exchanges; it computes and waits in one."""
        return waiting(PEERS) if last else self._ddp.no_sync()


_NO_BUFFERS: dict[str, Any] = {
    # `BufferSync` exchanges them, after the step. torch 2.13 renamed the switch.
    "forward_sync_buffers"
    if "forward_sync_buffers" in signature(DistributedDataParallel).parameters
    else "broadcast_buffers": False,
}


def _sum_over_ranks(
    group: dist.ProcessGroup | None,
    bucket: dist.GradBucket,
) -> torch.futures.Future[Tensor]:
    work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    assert work is not None
    added: torch.futures.Future[Tensor] = work.get_future().then(lambda done: done.value()[0])
    return added


class FlatParameters:
    """All trainable parameters of a module in one vector, their gradients in a second one.

    The module's parameters and their `.grad` become views, and autograd adds to a gradient that is
    there in place. So gradients are exchanged where they lie, one kernel updates all parameters,
    and one fills all gradients with zeros. The gaps between parameters hold zeros in both vectors,
    and no optimizer moves a zero that has a gradient of zero.

    Do not move the module to another device or dtype afterwards, and do not set its gradients to
    `None`: either cuts it off from the vectors.

    Args:
        module: On its device, all its trainable parameters of one dtype.

    Attributes:
        vector: `[size]`, the parameters; its `.grad` is the vector of gradients, `[size]`.
        parameters: The module's, in the order in which they lie in it.
        starts: Where each of them begins.

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
    """Brings a module's buffers to their mean over the ranks, once a step.

    Each rank's batch norms see the rank's own rows. Without an exchange the running statistics
    would part, and which of them is saved, or scores the validation rows, would be up to chance.

    The mean is of float64 sums, and all ranks get the same bits. Buffers of integers, such as the
    number of batches that a batch norm has seen, get the mean rounded up. Only buffers that a model
    saves count: the others are constants. A module without any costs nothing.

    Making one is a collective operation: all ranks begin with rank 0's buffers.
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
