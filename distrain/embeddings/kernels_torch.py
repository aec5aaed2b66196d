"""The kernels of the tables in torch: any device, any floating type.

What each does is said in `kernels.py`. On a CPU they are the naive form of what the C kernels do,
with the same results bit by bit; on a GPU they are what runs.
"""

import torch
from torch import Tensor
from torch.nn import functional

from distrain.embeddings.stochastic import round_to_bfloat16

# One thread block sums one segment on a GPU. A column with three values would make segments of a
# third of the batch, so long segments are summed in pieces, then the pieces.
_PIECE_ROWS = 256
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
        out.index_copy_(1, places.to(out.device), values)


def collect(grads: Tensor, numbers: Tensor, places: Tensor, sums: Tensor) -> None:
    """See `kernels.collect`."""
    num_rows = numbers.shape[1]
    if numbers.numel() == 0:
        return
    device = grads.device
    in_order, order = torch.sort(numbers.reshape(-1), stable=True)
    # Where in `grads`, seen as [rows * places, dim], the values of each number lie.
    sources = (order % num_rows) * grads.shape[1] + places.to(device)[order // num_rows]
    is_start = torch.ones_like(in_order, dtype=torch.bool)
    torch.ne(in_order[1:], in_order[:-1], out=is_start[1:])
    starts = is_start.nonzero().squeeze(1)
    touched = in_order[starts].long()
    add = _sum_segments if device.type == "cpu" else _sum_in_pieces
    sums.index_copy_(
        0, touched, add(sources, grads.reshape(-1, grads.shape[2]), starts, sums[touched])
    )


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


def _sum_in_pieces(sources: Tensor, grads: Tensor, starts: Tensor, before: Tensor) -> Tensor:
    """The same in two levels: pieces of segments, then the pieces."""
    n = len(sources)
    place = torch.arange(n, device=grads.device)
    lengths = torch.diff(starts, append=starts.new_tensor([n]))
    in_segment = place - torch.repeat_interleave(starts, lengths, output_size=n)
    piece_starts = (in_segment % _PIECE_ROWS == 0).nonzero().squeeze(1)
    pieces = functional.embedding_bag(sources, grads, piece_starts, mode="sum")
    first_piece = torch.searchsorted(piece_starts, starts)
    every_piece = torch.arange(len(pieces), device=grads.device)
    return before + functional.embedding_bag(every_piece, pieces, first_piece, mode="sum")


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
