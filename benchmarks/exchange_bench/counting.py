"""A process group that counts its collective operations, and the bytes that a rank sends to others.

It wraps gloo's process group, so it sees every operation of every caller. An operation that it does
not implement is an error, so none goes uncounted.
"""

from datetime import timedelta
from typing import Any

from torch import Tensor, distributed as dist

BACKEND = "counted"


class CountedGroup(dist.ProcessGroup):
    """Gloo's process group, with counts.

    Attributes:
        messages: Collective operations since the last `reset`.
        sent_bytes: Bytes that this rank sent to others in them. For an all-reduce it is what the
            best algorithms send, `2 (W-1) / W` of the values, for any algorithm that gloo uses.
    """

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta):
        super().__init__(rank, size)  # type: ignore[call-arg]
        # torch annotates only some of its operations.
        self._gloo: Any = dist.ProcessGroupGloo(store, rank, size, timeout)
        self.reset()

    def reset(self) -> None:
        """Set the counts to zero."""
        self.messages, self.sent_bytes = 0, 0

    def getBackendName(self) -> str:
        """Return the name of the backend; torch calls it."""
        return BACKEND

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> Any:  # type: ignore[override]
        """Count and pass on torch's call, like the methods below."""
        away = 2 * (self.size() - 1) / self.size()
        self._count(round(away * sum(t.nbytes for t in tensors)))
        return self._gloo.allreduce(tensors, opts)

    def alltoall_base(
        self, out: Tensor, sent: Tensor, receive: list[int], send: list[int], opts: Any = None
    ) -> Any:
        """Count and pass on; if `send` is empty, all ranks get equally many rows."""
        own = send[self.rank()] if send else len(sent) // self.size()
        row_bytes = sent[:1].nbytes if len(sent) else 0
        self._count(sent.nbytes - own * row_bytes)
        return self._gloo.alltoall_base(out, sent, receive, send, opts)

    def all_gather_single(self, out: Tensor, sent: Tensor, opts: Any = None) -> Any:
        """Count and pass on; torch 2.13 uses this name instead of `_allgather_base`."""
        self._count((self.size() - 1) * sent.nbytes)
        gather = getattr(self._gloo, "all_gather_single", None) or self._gloo._allgather_base
        return gather(out, sent, opts)

    def _allgather_base(self, out: Tensor, sent: Tensor, opts: Any = None) -> Any:
        return self.all_gather_single(out, sent, opts)

    def broadcast(self, tensors: list[Tensor], opts: Any = None) -> Any:  # type: ignore[override]
        """Count and pass on; called only at the start of a training."""
        self._count(sum(t.nbytes for t in tensors))
        return self._gloo.broadcast(tensors, opts)

    def barrier(self, opts: Any = None) -> Any:
        """Count and pass on; a barrier sends 0 bytes, but is a message."""
        self._count(0)
        return self._gloo.barrier(opts)

    def _count(self, sent_bytes: int) -> None:
        self.messages += 1
        self.sent_bytes += sent_bytes


def counted_group(store: Any, rank: int, size: int) -> CountedGroup:
    """Join the default process group, and return it."""
    made: list[CountedGroup] = []

    def make(store: Any, rank: int, size: int, timeout: timedelta) -> CountedGroup:
        made.append(CountedGroup(store, rank, size, timeout))
        return made[-1]

    dist.Backend.register_backend(BACKEND, make, devices=["cpu"])
    timeout = timedelta(seconds=240)
    dist.init_process_group(BACKEND, store=store, rank=rank, world_size=size, timeout=timeout)
    return made[0]
