"""Ranks that share embedding tables, and the transfer of rows between them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, distributed as dist


class PendingWork(Protocol):
    """A transfer that has begun, such as torch's `Work`."""

    def wait(self) -> object:
        """Wait until the values have arrived and the sent values may be changed."""


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
    group: dist.ProcessGroup | None = None,
) -> PendingWork:
    """Begin to send rows to each rank, and to receive rows from each; collective.

    `received`, `[sum(receive), ...]`, and `rows`, `[sum(send), ...]`, are in rank order and
    contiguous, and must not be used until they have arrived. `receive` counts the rows from each
    rank, `send` the rows for each.
    """
    if not _is_gloo(group) or rows.device.type != "cpu":
        # Gloo's all_to_all moves a GPU's tensors through the host; its sends accept host memory
        # only.
        work: PendingWork = dist.all_to_all_single(
            received, rows, list(receive), list(send), group=group, async_op=True
        )
        return work
    return _begin(_slices(received, receive), _slices(rows, send), group)


def _begin(
    places: Sequence[Tensor], origins: Sequence[Tensor], group: dist.ProcessGroup | None = None
) -> PendingWork:
    own, ranks = dist.get_rank(group), len(places)
    # Each rank begins with its neighbour, so that no rank receives from all at once.
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
    group: dist.ProcessGroup | None = None,
) -> None:
    """Run `begin_all_to_all` and wait for the rows; on a GPU only its stream waits."""
    begin_all_to_all(received, rows, receive, send, group).wait()


def _is_gloo(group: dist.ProcessGroup | None = None) -> bool:
    return dist.is_initialized() and dist.get_backend(group) == "gloo"


def _slices(values: Tensor, lengths: Sequence[int]) -> list[Tensor]:
    ends = accumulate(lengths)
    return [values[end - length : end] for end, length in zip(ends, lengths, strict=True)]


@dataclass(frozen=True)
class Peers:
    """One of the ranks that share tables, and its communication. `Peers()` is a single rank.

    Each method except `wait_for_rows` is a collective operation: every rank calls it, in the same
    order.

    A single rank needs no process group, but cannot call `gather_rows_on_rank_0` and the
    `exchange_...` and `begin_...` methods.
    """

    rank: int = 0
    num_ranks: int = 1

    @property
    def device(self) -> torch.device:
        """The device for exchanged tensors: this process's GPU for NCCL, otherwise the host."""
        if self.num_ranks > 1 and dist.get_backend() == "nccl":
            return torch.device("cuda", torch.cuda.current_device())
        return torch.device("cpu")

    def gather_counts(self, counts: Tensor) -> Tensor:
        """Return every rank's int64 counts, `[num_ranks, *counts.shape]`, on the CPU.

        If `counts` are on a GPU, the host waits until the result is copied.
        """
        return self._all_gather(counts).cpu()

    def exchange_counts(self, counts: Tensor) -> Tensor:
        """Send `counts[r]` to each rank r; return what all ranks sent to this one, on the CPU.

        `counts` is `[num_ranks, ...]`, int64, of one shape on all ranks, and so is the result. If
        `counts` are on a GPU, the host waits until the result is copied.
        """
        received = torch.empty_like(counts)
        self._all_to_all(received, counts.contiguous())
        return received.cpu()

    def gather_padded(self, rows: Tensor, most: int) -> Tensor:
        """Return all ranks' rows, each rank's padded with zeros to `most` rows.

        The result is `[num_ranks * most, ...]`.
        """
        if most == 0:
            return rows
        return self._all_gather(_padded(rows, most)).flatten(0, 1)

    def gather_rows(self, rows: Tensor, lengths: Sequence[int]) -> list[Tensor]:
        """Return the rows of each rank r, `[lengths[r], ...]`.

        `rows` must have the same dtype and inner shape on all ranks.
        """
        most = max(lengths)
        if most == 0:
            return [rows] * self.num_ranks
        gathered = self._all_gather(_padded(rows, most))
        return [gathered[rank, :length] for rank, length in enumerate(lengths)]

    def gather_rows_on_rank_0(self, rows: Tensor, lengths: Sequence[int]) -> list[Tensor] | None:
        """Return the result of `gather_rows` on rank 0, and `None` on other ranks."""
        most = max(lengths)
        if most == 0:
            return [rows] * self.num_ranks if self.rank == 0 else None
        padded = _padded(rows, most).contiguous()
        out = None
        if self.rank == 0:
            out = list(padded.new_empty(self.num_ranks, *padded.shape))
        dist.gather(padded, out, group_dst=0)
        if out is None:
            return None
        return [values[:length] for values, length in zip(out, lengths, strict=True)]

    def exchange_rows(self, rows: Tensor, send: Sequence[int], receive: Sequence[int]) -> Tensor:
        """Send `rows` to the ranks, and return the rows received from them, both in rank order.

        `rows` is `[sum(send), ...]`, the result `[sum(receive), ...]`.
        """
        received = rows.new_empty(sum(receive), *rows.shape[1:])
        self._all_to_all(received, rows.contiguous(), list(receive), list(send))
        return received

    def begin_exchange_rows(
        self, rows: Tensor, send: Sequence[int], receive: Sequence[int]
    ) -> "PendingRows":
        """Begin an `exchange_rows`; `wait_for_rows` waits and returns its result."""
        received = rows.new_empty(sum(receive), *rows.shape[1:])
        sent = rows.contiguous()
        work = begin_all_to_all(received, sent, receive, send)
        return PendingRows(received, sent, work)

    def begin_gather(self, rows: Tensor, most: int) -> "PendingRows":
        """Begin to gather all ranks' rows, each rank's padded with zeros to `most` rows.

        `wait_for_rows` waits and returns them, `[num_ranks, most, ...]`.
        """
        sent = _padded(rows, most).contiguous()
        received = rows.new_empty(self.num_ranks, most, *rows.shape[1:])
        work = None
        if most:
            flat = received.view(-1)
            work = all_gather_flat(flat, sent.view(-1), async_op=True)
        return PendingRows(received, sent, work)

    def wait_for_rows(self, arriving: "PendingRows") -> Tensor:
        """Wait for rows and return them; on a GPU only its current stream waits.

        Not collective: other ranks may call it at other times.
        """
        if arriving.work is not None:
            arriving.work.wait()
        return arriving.received

    def all_reduce_sum(self, values: Tensor) -> Tensor:
        """Return the sum of `values` over the ranks, in rank order: all ranks get the same bits.

        It has the shape and dtype of `values`; a single rank gets `values` itself.
        """
        if self.num_ranks == 1:
            return values
        total = torch.zeros_like(values)
        for part in self._all_gather(values):
            total += part
        return total

    def all_reduce_counts(self, counts: Tensor) -> Tensor:
        """Return the sum of int64 `counts` over the ranks, which is exact in any order.

        It has the shape of `counts`; a single rank gets `counts` itself.
        """
        if self.num_ranks == 1:
            return counts
        total = counts.clone()
        dist.all_reduce(total)
        return total

    def all_reduce_max(self, numbers: Sequence[int]) -> list[int]:
        """Return the maximum over the ranks of each number; the host waits for the result."""
        if self.num_ranks == 1:
            return list(numbers)
        largest = torch.tensor(numbers, dtype=torch.int64, device=self.device)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        return [int(number) for number in largest.tolist()]

    def _all_gather(self, rows: Tensor) -> Tensor:
        if self.num_ranks == 1:
            return rows.unsqueeze(0)
        out = rows.new_empty(self.num_ranks, *rows.shape)
        all_gather_flat(out.view(-1), rows.reshape(-1))
        return out

    def _all_to_all(
        self,
        received: Tensor,
        rows: Tensor,
        receive: list[int] | None = None,
        send: list[int] | None = None,
    ) -> None:
        if receive is None or send is None:  # few bytes, so one operation is enough
            dist.all_to_all_single(received, rows)
        else:
            all_to_all(received, rows, receive, send)


def all_gather_flat(out: Tensor, values: Tensor, *, async_op: bool = False) -> PendingWork | None:
    """Gather `values`, `[n]`, of each rank into `out`, `[ranks * n]`, without a list of tensors.

    Collective. With `async_op`, returns the transfer, which the caller must wait for. Otherwise
    `out` is complete (on a GPU, for its current stream); ignore the result.
    """
    on_gloo = values.device.type == "cpu" and _is_gloo()
    if on_gloo and dist.get_world_size() == 2:
        arrival = _begin(list(out.chunk(2)), [values, values])
        if not async_op:
            arrival.wait()
        return arrival
    # torch 2.13 renamed this function, and warns about the old name.
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    work: PendingWork | None = gather(out, values, async_op=async_op)
    return work


def gather_texts(peers: Peers, device: torch.device, text: str) -> list[str]:
    """Return every rank's text, in rank order; a collective operation."""
    if peers.num_ranks == 1:
        return [text]
    content = torch.tensor(list(text.encode()), dtype=torch.uint8, device=device)
    length = torch.tensor([len(content)], dtype=torch.int64, device=device)
    lengths = peers.gather_counts(length).flatten().tolist()
    return [bytes(rows.tolist()).decode() for rows in peers.gather_rows(content, lengths)]


class PendingRows(NamedTuple):
    """Rows in transfer between ranks; neither tensor may be used until `Peers.wait_for_rows`."""

    received: Tensor
    sent: Tensor
    work: PendingWork | None


def _padded(rows: Tensor, length: int) -> Tensor:
    if len(rows) == length:
        return rows
    padded = rows.new_zeros(length, *rows.shape[1:])
    padded[: len(rows)] = rows
    return padded
