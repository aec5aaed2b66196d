"""Measuring the two constants of `Costs` between the ranks of a process group, at start-up."""

import time
from collections.abc import Callable

import torch
from torch import Tensor, distributed as dist

from distrain.models.embeddings.peers import all_gather_flat
from distrain.models.embeddings.sharding.costs import Costs

_SMALL_BYTES = 64
_MOST_TIMES = 15
_MOST_SECONDS = 0.04  # spent on repetitions of each of the four cases
# Of all that a rank sends in one operation, however many peers it goes to. Large enough for a
# link's full speed, small enough for a slow network.
_LARGE_BYTES = {"cpu": 2 << 20, "cuda": 64 << 20}


def calibrate(group: dist.ProcessGroup | None, device: torch.device) -> Costs:
    """Time small and large all-gathers and all-to-alls, for 0.1 to 0.2 s; collective.

    A collective counts as long as its slowest rank took, in each rank's fastest repetition:
    start-up is a busy time. All ranks get the same numbers, and so make the same plan.
    """
    num_ranks = dist.get_world_size(group)
    small_s = max(_seconds(op, _SMALL_BYTES, group, device) for op in _OPERATIONS)
    in_all = _LARGE_BYTES.get(device.type, _LARGE_BYTES["cpu"])
    large_bytes = max(2 * _SMALL_BYTES, in_all // num_ranks)
    large_s = sum(_seconds(op, large_bytes, group, device) for op in _OPERATIONS)
    # Both operations send this much from each rank: one block for each peer.
    sent = len(_OPERATIONS) * (num_ranks - 1) * (large_bytes - _SMALL_BYTES)
    moving_s = max(large_s - len(_OPERATIONS) * small_s, large_s / 10)
    return Costs(bytes_per_s=sent / moving_s, latency_s=small_s)


def least_over_ranks(value: int, group: dist.ProcessGroup | None, device: torch.device) -> int:
    """The least of the ranks' values; a collective operation, on the device of the backend."""
    least = torch.tensor([value], dtype=torch.int64, device=device)
    dist.all_reduce(least, op=dist.ReduceOp.MIN, group=group)
    return int(least.item())


def _all_gather(block: Tensor, num_ranks: int, group: dist.ProcessGroup | None) -> None:
    all_gather_flat(block.new_empty(num_ranks * len(block)), block, group)


def _all_to_all(block: Tensor, num_ranks: int, group: dist.ProcessGroup | None) -> None:
    blocks = block.repeat(num_ranks)
    dist.all_to_all_single(torch.empty_like(blocks), blocks, group=group)


_Operation = Callable[[Tensor, int, dist.ProcessGroup | None], None]
_OPERATIONS: tuple[_Operation, ...] = (_all_gather, _all_to_all)


def _seconds(
    operation: _Operation, block_bytes: int, group: dist.ProcessGroup | None, device: torch.device
) -> float:
    block = torch.zeros(block_bytes, dtype=torch.uint8, device=device)
    num_ranks = dist.get_world_size(group)

    def once() -> float:
        _wait(device)
        began_s = time.perf_counter()
        operation(block, num_ranks, group)
        _wait(device)
        return time.perf_counter() - began_s

    once()  # opens connections
    first_s = _slowest(once(), group, device)
    # All ranks reckon with the same time, so all repeat as often.
    times = min(_MOST_TIMES, int(_MOST_SECONDS / first_s))
    return min(
        first_s, _slowest(min((once() for _ in range(times)), default=first_s), group, device)
    )


def _slowest(seconds: float, group: dist.ProcessGroup | None, device: torch.device) -> float:
    most = torch.tensor([seconds], dtype=torch.float64, device=device)
    dist.all_reduce(most, op=dist.ReduceOp.MAX, group=group)
    return float(most.item())


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
