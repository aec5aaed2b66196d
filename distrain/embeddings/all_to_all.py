"""All-to-alls of rows that fill both directions of each connection, on gloo too.

Before gloo sends a peer anything, the peer must have said that it is ready. Gloo's own all-to-all
says so after it began to send, so the word waits behind those bytes, and two ranks send in turns:
between two nodes that is half of what their link carries. Here a rank says first what it is ready
for, and then sends. Gloo's all-gather goes around a ring, whose two ranks send in turns as well.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol

from torch import Tensor, distributed as dist


class Arrival(Protocol):
    """Values on their way, such as torch's `Work`."""

    def wait(self) -> object:
        """Until they are there, and what was sent may be changed."""


class _Transfers(list["dist.Work | None"]):
    def wait(self) -> None:
        for work in self:
            if work is not None:  # never None for a member of the group
                work.wait()


def begin_all_to_all(
    received: Tensor,
    rows: Tensor,
    receive: Sequence[int],
    send: Sequence[int],
    group: dist.ProcessGroup | None,
) -> Arrival:
    """Begin to give each rank its rows, and to get this rank's from each; collective.

    Args:
        received: Takes them, `[sum(receive), ...]` in rank order; contiguous, as `rows` is.
        rows: `[sum(send), ...]`, in rank order. Neither may be touched until they have arrived.
        receive: How many rows each rank has for this one.
        send: How many rows this one has for each rank.
    """
    if not _is_gloo(group) or rows.device.type != "cpu":
        # Gloo's own moves a GPU's tensors through the host; its sends take the host's alone.
        work: Arrival = dist.all_to_all_single(
            received, rows, list(receive), list(send), group=group, async_op=True
        )
        return work
    return _begin(_slices(received, receive), _slices(rows, send), group)


def begin_gather_of_two(out: Tensor, values: Tensor, group: dist.ProcessGroup | None) -> Arrival:
    """Begin to gather two ranks' values `[n]` into `[2 * n]`; touch neither until they arrived."""
    return _begin(list(out.chunk(2)), [values, values], group)


def are_two_on_gloo(group: dist.ProcessGroup | None, values: Tensor) -> bool:
    """Whether a group is two ranks that meet through gloo, and values lie where it sends from."""
    return values.device.type == "cpu" and _is_gloo(group) and dist.get_world_size(group) == 2


def _begin(
    places: Sequence[Tensor], origins: Sequence[Tensor], group: dist.ProcessGroup | None
) -> Arrival:
    own, ranks = dist.get_rank(group), len(places)
    # Each begins with its neighbour, so that nobody is sent to by all at once.
    peers = [(own + step) % ranks for step in range(1, ranks)]
    begun = _Transfers(
        dist.irecv(places[peer], group=group, group_src=peer) for peer in peers if len(places[peer])
    )
    begun += [
        dist.isend(origins[peer], group=group, group_dst=peer)
        for peer in peers
        if len(origins[peer])
    ]
    places[own].copy_(origins[own])
    return begun


def all_to_all(
    received: Tensor,
    rows: Tensor,
    receive: Sequence[int],
    send: Sequence[int],
    group: dist.ProcessGroup | None,
) -> None:
    """The same, and wait until the rows are there; on a GPU only its stream waits."""
    begin_all_to_all(received, rows, receive, send, group).wait()


def _is_gloo(group: dist.ProcessGroup | None) -> bool:
    return dist.is_initialized() and dist.get_backend(group) == "gloo"


def _slices(values: Tensor, lengths: Sequence[int]) -> list[Tensor]:
    ends = accumulate(lengths)
    return [values[end - length : end] for end, length in zip(ends, lengths, strict=True)]
