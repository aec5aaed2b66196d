"""A process group that counts its collective operations, and the bytes that a rank gives to others.

It stands between torch.distributed and gloo, so it sees every operation, whoever calls it. An
operation that it does not know is an error, not a gap in the counts.
"""

from datetime import timedelta
from typing import Any

from torch import Tensor, distributed as dist

BACKEND = "counted"


class CountedGroup(dist.ProcessGroup):
    """Gloo's group of ranks, with counts.

    Attributes:
        messages: Collective operations since the last `reset`.
        sent_bytes: What this rank gave to others in them. Of all-reduces that is what the best
            algorithms send, `2 (W-1) / W` of the values, however gloo does it.
    """

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta):
        super().__init__(rank, size)  # type: ignore[call-arg]
        # torch annotates some of its operations only.
        self._gloo: Any = dist.ProcessGroupGloo(store, rank, size, timeout)
        self.reset()

    def reset(self) -> None:
        """Count from zero."""
        self.messages, self.sent_bytes = 0, 0

    def getBackendName(self) -> str:
        """Of torch, which asks for it."""
        return BACKEND

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> Any:  # type: ignore[override]
        """Of torch, as the others below."""
        away = 2 * (self.size() - 1) / self.size()
        self._count(round(away * sum(t.nbytes for t in tensors)))
        return self._gloo.allreduce(tensors, opts)

    def alltoall_base(
        self, out: Tensor, sent: Tensor, receive: list[int], send: list[int], opts: Any = None
    ) -> Any:
        """Without `send`, all ranks get equally many of the rows."""
        own = send[self.rank()] if send else len(sent) // self.size()
        row_bytes = sent[:1].nbytes if len(sent) else 0
        self._count(sent.nbytes - own * row_bytes)
        return self._gloo.alltoall_base(out, sent, receive, send, opts)

    def all_gather_single(self, out: Tensor, sent: Tensor, opts: Any = None) -> Any:
        """The name of torch 2.13 for `_allgather_base`."""
        self._count((self.size() - 1) * sent.nbytes)
        gather = getattr(self._gloo, "all_gather_single", None) or self._gloo._allgather_base
        return gather(out, sent, opts)

    def _allgather_base(self, out: Tensor, sent: Tensor, opts: Any = None) -> Any:
        return self.all_gather_single(out, sent, opts)

    def broadcast(self, tensors: list[Tensor], opts: Any = None) -> Any:  # type: ignore[override]
        """At the start of a training only."""
        self._count(sum(t.nbytes for t in tensors))
        return self._gloo.broadcast(tensors, opts)

    def barrier(self, opts: Any = None) -> Any:
        """It carries nothing; counted all the same."""
        self._count(0)
        return self._gloo.barrier(opts)

    def _count(self, sent_bytes: int) -> None:
        self.messages += 1
        self.sent_bytes += sent_bytes


def counted_groups(store: Any, rank: int, size: int, count: int) -> list[CountedGroup]:
    """Join the default group and others of the same ranks: `count` in all, each counted."""
    made: list[CountedGroup] = []

    def make(store: Any, rank: int, size: int, timeout: timedelta) -> CountedGroup:
        made.append(CountedGroup(store, rank, size, timeout))
        return made[-1]

    dist.Backend.register_backend(BACKEND, make, devices=["cpu"])
    timeout = timedelta(seconds=240)
    dist.init_process_group(BACKEND, store=store, rank=rank, world_size=size, timeout=timeout)
    for _ in range(count - 1):
        dist.new_group(backend=BACKEND, timeout=timeout)
    return made
