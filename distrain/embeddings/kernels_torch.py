"""The kernels of the tables in torch: any device, any floating type.

What each does is said in `kernels.py`. On a CPU they are the naive form of what the C kernels do,
with the same results bit by bit; on a GPU they are what runs.
"""

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

from distrain.embeddings.segments import pieces_of
from distrain.embeddings.stochastic import round_to_bfloat16

_LANES = 16


def unique(ids: Tensor, offsets: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See `kernels.unique`; returns numbers, distinct ids, and how many each column has."""
    device = ids.device
    num_columns = len(counts)
    lengths = counts.flatten()
    places = _ranges(offsets.flatten(), lengths).to(device)
    columns = torch.arange(num_columns).repeat_interleave(counts.sum(1)).to(device)
    keys = columns << 32 | ids[places].long()
    in_order, order = torch.sort(keys, stable=True)
    is_first = torch.ones_like(in_order, dtype=torch.bool)
    torch.ne(in_order[1:], in_order[:-1], out=is_first[1:])
    # Sorting is stable, so the first of a run of equal keys is their first appearance.
    first_places = order[is_first]
    by_appearance = torch.argsort(first_places)
    number_of_run = torch.empty_like(by_appearance)
    number_of_run[by_appearance] = torch.arange(len(by_appearance), device=device)
    numbers = torch.empty(len(ids), dtype=torch.int32, device=device)
    numbers[places[order]] = number_of_run[torch.cumsum(is_first, 0) - 1].int()
    distinct = keys[first_places[by_appearance]]
    per_column = torch.bincount(distinct >> 32, minlength=num_columns).cpu()
    return numbers, (distinct & 0xFFFFFFFF).int(), per_column


def gather(weight: Tensor, keys: Tensor) -> Tensor:
    """See `kernels.gather`."""
    rows = weight.index_select(0, keys)
    return rows.float() if weight.dtype in (torch.bfloat16, torch.float16) else rows


def expand(rows: Tensor, numbers: Tensor, places: Tensor, out: Tensor) -> None:
    """See `kernels.expand`."""
    values = rows.index_select(0, numbers.T.reshape(-1)).view(len(out), len(numbers), rows.shape[1])
    if len(numbers) == out.shape[1]:
        out.copy_(values)
    else:
        out.index_copy_(1, _on(out.device, places), values)


def collect(grads: Tensor, numbers: Tensor, places: Tensor, sums: Tensor) -> None:
    """See `kernels.collect`."""
    if numbers.numel() == 0:
        return
    if grads.device.type != "cpu":
        collect_in_pieces(grads, numbers, places, sums)
        return
    in_order, sources = _sorted_sources(grads, numbers, places)
    is_start = torch.ones_like(in_order, dtype=torch.bool)
    torch.ne(in_order[1:], in_order[:-1], out=is_start[1:])
    starts = is_start.nonzero().squeeze(1)
    touched = in_order[starts].long()
    rows = grads.reshape(-1, grads.shape[2])
    sums.index_copy_(0, touched, _sum_segments(sources, rows, starts, sums[touched]))


def collect_in_pieces(grads: Tensor, numbers: Tensor, places: Tensor, sums: Tensor) -> None:
    """`collect` for a GPU: long segments in two levels, and the host waits for nothing.

    Which numbers there are is not asked: those without a gradient are segments of length 0.
    """
    in_order, sources = _sorted_sources(grads, numbers, places)
    every = torch.arange(len(sums), dtype=in_order.dtype, device=sums.device)
    starts = torch.searchsorted(in_order, every)
    rows = grads.reshape(-1, grads.shape[2])
    pieces, of_segments, offsets = pieces_of(rows, sources, starts, in_order)
    sums += functional.embedding_bag(of_segments, pieces, offsets, mode="sum")


def _sorted_sources(grads: Tensor, numbers: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers in order, and where in `grads`, seen as [rows * places, dim], each one's lies."""
    num_rows = numbers.shape[1]
    in_order, order = torch.sort(numbers.reshape(-1), stable=True)
    columns = _on(grads.device, places)[order // num_rows]
    return in_order, (order % num_rows) * grads.shape[1] + columns


def _on(device: torch.device, places: Tensor) -> Tensor:
    """Places on a device; only the first time is there a copy, for which the host waits."""
    return places if device.type == "cpu" else _made_once(device, tuple(places.tolist()))


@lru_cache(maxsize=256)
def _made_once(device: torch.device, values: tuple[int, ...]) -> Tensor:
    return torch.tensor(values, device=device)


def _sum_segments(sources: Tensor, grads: Tensor, starts: Tensor, before: Tensor) -> Tensor:
    """What came `before` plus the segments of `grads[sources]`, one gradient after another."""
    if not bool(before.any()):
        return functional.embedding_bag(sources, grads, starts, mode="sum")
    # As if `before` were the first gradient of each segment.
    numbers = torch.arange(len(starts))
    sources = torch.cat([sources + len(starts), numbers])
    segment = torch.searchsorted(starts, torch.arange(len(sources) - len(starts)), right=True) - 1
    order = torch.argsort(torch.cat([segment * 2 + 1, numbers * 2]), stable=True)
    return functional.embedding_bag(
        sources[order], torch.cat([before, grads]), starts + numbers, mode="sum"
    )


def update_sgd(
    weight: Tensor,
    keys: Tensor,
    grads: Tensor,
    *,
    lr: float,
    rounding_seed: int = 0,
    global_keys: Tensor | None = None,
) -> None:
    """See `kernels.update_sgd`."""
    rows = gather(weight, keys).add_(grads, alpha=-lr)
    _put(weight, keys, rows, rounding_seed, global_keys)


def update_adagrad(
    weight: Tensor,
    total: Tensor,
    keys: Tensor,
    grads: Tensor,
    *,
    lr: float,
    eps: float,
    rounding_seed: int = 0,
    global_keys: Tensor | None = None,
) -> None:
    """See `kernels.update_adagrad`."""
    squares = total.index_select(0, keys).addcmul_(grads, grads)
    total.index_copy_(0, keys, squares)
    rows = gather(weight, keys).addcdiv_(grads, sqrt(squares).add_(eps), value=-lr)
    _put(weight, keys, rows, rounding_seed, global_keys)


def update_rowwise_adagrad(
    weight: Tensor,
    total: Tensor,
    keys: Tensor,
    grads: Tensor,
    *,
    lr: float,
    eps: float,
    rounding_seed: int = 0,
    global_keys: Tensor | None = None,
) -> None:
    """See `kernels.update_rowwise_adagrad`."""
    squares = total.index_select(0, keys).add_(mean_of_squares(grads))
    total.index_copy_(0, keys, squares)
    rate = torch.full_like(squares, lr).div_(sqrt(squares).add_(eps))
    rows = gather(weight, keys).sub_(grads * rate.unsqueeze(1))
    _put(weight, keys, rows, rounding_seed, global_keys)


def update_adam(
    weight: Tensor,
    mean: Tensor,
    square: Tensor,
    keys: Tensor,
    grads: Tensor,
    *,
    step_size: float,
    betas: tuple[float, float],
    eps: float,
    rounding_seed: int = 0,
    global_keys: Tensor | None = None,
) -> None:
    """See `kernels.update_adam`."""
    beta1, beta2 = betas
    new_mean = mean.index_select(0, keys).lerp_(grads, 1 - beta1)
    mean.index_copy_(0, keys, new_mean)
    new_square = square.index_select(0, keys).mul_(beta2)
    new_square.addcmul_(grads, grads, value=1 - beta2)
    square.index_copy_(0, keys, new_square)
    denominator = sqrt(new_square).add_(eps)
    rows = gather(weight, keys).addcdiv_(new_mean, denominator, value=-step_size)
    _put(weight, keys, rows, rounding_seed, global_keys)


def mean_of_squares(grads: Tensor) -> Tensor:
    """Each row's mean square, `[v]`, added in the order in which vectors of 16 lanes add it.

    Lane k sums the squares of values k, k + 16, k + 32, ...; then the upper half of the lanes is
    added to the lower half until one is left.
    """
    num_rows, dim = grads.shape
    squares = functional.pad(grads * grads, (0, -dim % _LANES))
    squares = squares.view(num_rows, -(-dim // _LANES), _LANES)
    lanes = torch.zeros_like(squares[:, 0])
    for block in squares.unbind(1):
        lanes = lanes + block
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    return lanes.squeeze(1) / dim


def sqrt(x: Tensor) -> Tensor:
    """The square root, rounded as IEEE 754 says; torch's on a CPU may err by the last bit."""
    if x.dtype == torch.float32 and x.device.type == "cpu":
        return x.double().sqrt_().float()
    return x.sqrt()


def _put(
    weight: Tensor, keys: Tensor, rows: Tensor, rounding_seed: int, global_keys: Tensor | None
) -> None:
    if weight.dtype == torch.bfloat16:
        rows = round_to_bfloat16(rows, rounding_seed, keys if global_keys is None else global_keys)
    weight.index_copy_(0, keys, rows.to(weight.dtype))


def _ranges(starts: Tensor, lengths: Tensor) -> Tensor:
    """`starts[i] .. starts[i]+lengths[i]-1` for each i, one after another."""
    before = torch.cumsum(lengths, 0) - lengths
    return torch.arange(int(lengths.sum())) + (starts - before).repeat_interleave(lengths)
