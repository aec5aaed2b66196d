"""Making the ranks agree on the gradients of the rows that any of them touched."""

import torch
from torch import Tensor
from torch import distributed as dist

from distrain.embeddings.merge import merge_rows


def exchange_rows(
    keys: Tensor, sums: Tensor, group: dist.ProcessGroup | None = None
) -> tuple[Tensor, Tensor]:
    """Add the ranks' partial sums; every rank of the group must call it, also without rows.

    The ranks' rows are gathered, padded to the longest, and added in rank order, so every rank
    gets bitwise the same result. One rank, or no process group, means no exchange.

    Args:
        keys: `[u]`, int64, distinct, as `merge_rows` returns them; each rank's own.
        sums: `[u, dim]`; every rank's of the same dtype.
        group: The ranks; `None` for the default group.

    Returns:
        The distinct keys of all ranks in rising order `[v]`, and their sums over the ranks
        `[v, dim]`.
    """
    if not dist.is_initialized() or dist.get_world_size(group) == 1:
        return keys, sums
    num_ranks = dist.get_world_size(group)
    own_count = torch.tensor([len(keys)], device=keys.device)
    counts = _gathered(own_count, num_ranks, group).flatten().tolist()
    most = max(counts)
    if most == 0:
        return keys, sums
    all_keys = _gathered(_padded(keys, most), num_ranks, group)
    all_sums = _gathered(_padded(sums, most), num_ranks, group)
    return merge_rows(
        torch.cat([all_keys[rank, :count] for rank, count in enumerate(counts)]),
        torch.cat([all_sums[rank, :count] for rank, count in enumerate(counts)]),
    )


def _padded(rows: Tensor, count: int) -> Tensor:
    padded = rows.new_zeros(count, *rows.shape[1:])
    padded[: len(rows)] = rows
    return padded


def _gathered(rows: Tensor, num_ranks: int, group: dist.ProcessGroup | None) -> Tensor:
    """The ranks' `rows` one after another, `[num_ranks, *rows.shape]`."""
    out = rows.new_empty(num_ranks, *rows.shape)
    dist.all_gather(list(out), rows, group=group)
    return out
