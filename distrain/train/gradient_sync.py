"""How the ranks' dense gradients are added up: one flat all-reduce, or torch's own way.

Either way all ranks begin with rank 0's parameters and buffers, and end a step with the same sums,
and the same buffers, bit by bit.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from inspect import signature
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from distrain.train.buffer_sync import BufferSync
from distrain.train.clipping import total_sq_norm
from distrain.train.flat import FlatParameters
from distrain.train.whereabouts import PEERS, waiting


class GradientSync(Protocol):
    """Adds up gradients over the ranks."""

    @property
    def forward(self) -> Callable[..., Any]:
        """The module to call."""

    @property
    def parameters(self) -> Sequence[nn.Parameter]:
        """What the optimizer updates, with gradients that stay where they are."""

    def slice(self, last: bool) -> AbstractContextManager[None]:
        """Around forward and backward of one slice of a step's rows."""

    def start(self) -> None:
        """Begin to add up, after the step's last backward pass."""

    def finish(self) -> None:
        """Wait until the gradients are the sums over the ranks, and the buffers their means."""

    def grad_sq_norm(self) -> Tensor:
        """The sum of the squares of this rank's gradients, a scalar."""


class FlatSync:
    """All gradients in one vector, added up by one all-reduce while the caller does other work.

    Args:
        module: The module, on its device; its parameters become views of one vector.
        num_ranks: How many train it together.
        group: Their process group; `None` for the default one.
    """

    def __init__(self, module: nn.Module, num_ranks: int, group: dist.ProcessGroup | None = None):
        self.forward = module
        self.flat = FlatParameters(module)
        self.parameters = (self.flat.vector,)
        self._num_ranks = num_ranks
        self._group = group
        self._work: dist.Work | None = None
        self._buffers = BufferSync(module, num_ranks, group)
        if num_ranks > 1:
            dist.broadcast(self.flat.vector.data, group=group, group_src=0)

    def slice(self, last: bool) -> AbstractContextManager[None]:
        """Nothing: gradients add up until `start`."""
        return nullcontext()

    def start(self) -> None:
        """Begin the all-reduce."""
        if self._num_ranks > 1:
            self._work = dist.all_reduce(self.flat.grads, group=self._group, async_op=True)
        self._buffers.start()

    def finish(self) -> None:
        """Wait for it; on a GPU only its stream waits, not the host."""
        if self._work is not None:
            with waiting(PEERS):
                self._work.wait()
            self._work = None
        self._buffers.finish()

    def grad_sq_norm(self) -> Tensor:
        """The sum of the squares of this rank's gradients, a scalar."""
        return self.flat.grad_sq_norm()


class DdpSync:
    """`DistributedDataParallel`, with sums where it has means; it exchanges during backward.

    Args:
        module: The module, on its device.
        micro_batches: How many slices a step has.
        group: The ranks; `None` for the default group.
    """

    def __init__(
        self, module: nn.Module, micro_batches: int = 1, group: dist.ProcessGroup | None = None
    ):
        self._ddp = DistributedDataParallel(
            module,
            process_group=group,
            gradient_as_bucket_view=True,
            static_graph=micro_batches == 1,
            **_NO_BUFFERS,
        )
        self._ddp.register_comm_hook(group, _sum_over_ranks)
        self._buffers = BufferSync(module, dist.get_world_size(group), group)
        self.forward = self._ddp
        self.parameters = [p for p in module.parameters() if p.requires_grad]

    def slice(self, last: bool) -> AbstractContextManager[None]:
        """Only the last slice's backward pass exchanges; it computes and waits in one."""
        return waiting(PEERS) if last else self._ddp.no_sync()

    def start(self) -> None:
        """Begin with the buffers; the backward pass has exchanged the gradients."""
        self._buffers.start()

    def finish(self) -> None:
        """Wait for the buffers; the backward pass has waited for the gradients."""
        self._buffers.finish()

    def grad_sq_norm(self) -> Tensor:
        """The sum of the squares of this rank's gradients, a scalar."""
        return total_sq_norm(p.grad for p in self.parameters if p.grad is not None)


_NO_BUFFERS: dict[str, Any] = {
    # `BufferSync` exchanges them, after the step. torch 2.13 renamed the switch.
    "forward_sync_buffers"
    if "forward_sync_buffers" in signature(DistributedDataParallel).parameters
    else "broadcast_buffers": False,
}


def _sum_over_ranks(
    group: dist.ProcessGroup | None,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[Tensor]:
    work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    assert work is not None
    added: torch.futures.Future[Tensor] = work.get_future().then(lambda done: done.value()[0])
    return added
