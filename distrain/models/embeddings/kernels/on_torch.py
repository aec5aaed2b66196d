"""Kernels of the tables in torch, for any device and any floating type.

`dispatch.py` documents each kernel. On a CPU they are the fallback of the C kernels, with the same
results bit by bit. On a GPU they run where Triton kernels do not (`fixed_shape.runs_triton`).
"""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

from distrain.loader.host_memory import to_device
from distrain.models.embeddings.kernels.random_bits import round_to_bfloat16
from distrain.models.embeddings.kernels.segments import RowRule, sums_in_pieces, unknown_rule

_LANES = 16


def unique(ids: Tensor, offsets: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    device = ids.device
    num_columns = len(counts)
    places, columns = _places_and_columns(device, offsets, counts)
    keys = columns << 32 | ids[places].long()
    in_order, order = torch.sort(keys, stable=True)
    is_first = torch.ones_like(in_order, dtype=torch.bool)
    torch.ne(in_order[1:], in_order[:-1], out=is_first[1:])
    # Sorting is stable, so the first of a run of equal keys is their first appearance.
    first_places = order[is_first]
    by_appearance = torch.argsort(first_places)
    number_of_run = torch.empty_like(by_appearance)
    number_of_run[by_appearance] = torch.arange(len(by_appearance), device=device)
    inverse = torch.empty(len(ids), dtype=torch.int32, device=device)
    inverse[places[order]] = number_of_run[torch.cumsum(is_first, 0) - 1].int()
    distinct = keys[first_places[by_appearance]]
    per_column = torch.bincount(distinct >> 32, minlength=num_columns).cpu()
    return inverse, (distinct & 0xFFFFFFFF).int(), per_column


def gather(weight: Tensor, keys: Tensor) -> Tensor:
    rows = weight.index_select(0, keys)
    return rows.float() if weight.dtype in (torch.bfloat16, torch.float16) else rows


def expand(rows: Tensor, inverse: Tensor, places: Tensor, out: Tensor) -> None:
    values = rows.index_select(0, inverse.T.reshape(-1)).view(len(out), len(inverse), rows.shape[1])
    if len(inverse) == out.shape[1]:
        out.copy_(values)
    else:
        out.index_copy_(1, placed_on(out.device, places), values)


def collect(grads: Tensor, inverse: Tensor, places: Tensor, sums: Tensor) -> None:
    if inverse.numel() == 0:
        return
    if grads.device.type != "cpu":
        collect_in_pieces(grads, inverse, places, sums)
        return
    in_order, sources = _sorted_sources(grads, inverse, places)
    is_start = torch.ones_like(in_order, dtype=torch.bool)
    torch.ne(in_order[1:], in_order[:-1], out=is_start[1:])
    starts = is_start.nonzero().squeeze(1)
    touched = in_order[starts].long()
    rows = grads.reshape(-1, grads.shape[2])
    sums.index_copy_(0, touched, _sum_segments(sources, rows, starts, sums[touched]))


def collect_in_pieces(grads: Tensor, inverse: Tensor, places: Tensor, sums: Tensor) -> None:
    """Do the same as `collect`, on a GPU and without waiting for it.

    The gradients are sorted by their row of `sums` and added by `sums_in_pieces`. A row may have
    none.
    """
    in_order, sources = _sorted_sources(grads, inverse, places)
    starts = starts_of(in_order, len(sums))
    rows = grads.reshape(-1, grads.shape[2])
    sums += sums_in_pieces(rows, sources, starts, in_order)


def starts_of(in_order: Tensor, count: int) -> Tensor:
    """Return the first position of each number below `count` in the sorted numbers `in_order`.

    The result is `[count]`, int64. A number that is missing gets the position of the next larger.
    """
    every = torch.arange(count, dtype=in_order.dtype, device=in_order.device)
    return torch.searchsorted(in_order, every)


def _sorted_sources(grads: Tensor, inverse: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    num_rows = inverse.shape[1]
    in_order, order = torch.sort(inverse.reshape(-1), stable=True)
    columns = placed_on(grads.device, places)[order // num_rows]
    return in_order, (order % num_rows) * grads.shape[1] + columns


def placed_on(device: torch.device, places: Tensor) -> Tensor:
    """Return `places` on a device.

    Only the first call with the same places copies them to a GPU; the host waits for the copy.
    """
    return places if device.type == "cpu" else cached_tensor(device, tuple(places.tolist()))


@lru_cache(maxsize=256)
def cached_tensor(device: torch.device, values: tuple[int, ...]) -> Tensor:
    """Return numbers as an int64 tensor on a device; equal calls return one cached tensor."""
    return torch.tensor(values, dtype=torch.int64, device=device)


def _sum_segments(sources: Tensor, grads: Tensor, starts: Tensor, before: Tensor) -> Tensor:
    """Return `before[i]` plus the rows of segment i of `grads[sources]`, added in order.

    Segment i begins at `starts[i]` and ends at the next start.
    """
    if not bool(before.any()):
        return functional.embedding_bag(sources, grads, starts, mode="sum")
    # As if `before` were the first gradient of each segment.
    every = torch.arange(len(starts))
    sources = torch.cat([sources + len(starts), every])
    segment = torch.searchsorted(starts, torch.arange(len(sources) - len(starts)), right=True) - 1
    order = torch.argsort(torch.cat([segment * 2 + 1, every * 2]), stable=True)
    return functional.embedding_bag(
        sources[order], torch.cat([before, grads]), starts + every, mode="sum"
    )


def update(
    rule: RowRule,
    weight: Tensor,
    state: Sequence[Tensor],
    keys: Tensor,
    grads: Tensor,
    rate: float,
    rounding_seed: int = 0,
    global_keys: Tensor | None = None,
) -> None:
    old = [own.index_select(0, keys) for own in state]
    at = torch.full((), rate, dtype=torch.float64, device=weight.device)
    rows, *new = updated(rule, gather(weight, keys), old, grads, at)
    for own, values in zip(state, new, strict=True):
        own.index_copy_(0, keys, values)
    if weight.dtype == torch.bfloat16:
        rows = round_to_bfloat16(rows, rounding_seed, keys if global_keys is None else global_keys)
    weight.index_copy_(0, keys, rows.to(weight.dtype))


def updated(
    rule: RowRule, rows: Tensor, old: list[Tensor], grads: Tensor, rate: Tensor
) -> tuple[Tensor, ...]:
    """Return the new values of some rows of a weight, then those of their optimizer state.

    `rows` and `old` have the current values, `grads` the gradients, and `rate` is the learning
    rate, a scalar, float64.

    | rule | update, in this order |
    |---|---|
    | sgd | `weight -= rate * grad`, with the bits of `torch.optim.SGD` in float32 |
    | adagrad | `sum += grad^2`, `weight -= rate * grad / (sqrt(sum) + eps)` |
    | rowwise_adagrad | `row_sum += mean(grad^2)`, `weight -= rate / (sqrt(row_sum) + eps) * grad` |
    | adam | `exp_avg += (1 - beta1) * (grad - exp_avg)`, |
    | | `exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * grad^2`, |
    | | `weight -= rate * exp_avg / (sqrt(exp_avg_sq) + eps)` |

    The row-wise formula is that of fbgemm's EXACT_ROWWISE_ADAGRAD, the others are torch's.

    Raises `InputError` for an unknown rule.
    """
    match rule.name:
        case "sgd":
            return (torch.addcmul(rows, grads, -rate),)
        case "adagrad":
            squares = old[0].addcmul(grads, grads)
            return rows + -rate * grads / (sqrt(squares) + rule.eps), squares
        case "rowwise_adagrad":
            squares = old[0] + mean_of_squares(grads)
            rates = rate / (sqrt(squares) + rule.eps)
            return rows - grads * rates.unsqueeze(1), squares
        case "adam":
            mean = old[0].lerp(grads, 1 - rule.betas[0])
            square = (old[1] * rule.betas[1]).addcmul(grads, grads, value=1 - rule.betas[1])
            denominator = sqrt(square) + rule.eps
            return rows + -rate * mean / denominator, mean, square
        case _:
            raise unknown_rule(rule)


def mean_of_squares(grads: Tensor) -> Tensor:
    """Return each row's mean square, `[v]`, with the order of additions of the C kernel.

    Lane k of 16 sums the squares of values k, k + 16, ...; then halves of the lanes are added.
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
    """Return the square root, rounded by IEEE 754; torch's on a CPU may err in the last bit."""
    if x.dtype == torch.float32 and x.device.type == "cpu":
        return x.double().sqrt_().float()
    return x.sqrt()


def _places_and_columns(
    device: torch.device, offsets: Tensor, counts: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the positions of all ids, one column after another, and the column of each id.

    `offsets` and `counts` are those of `dispatch.unique`. The results are as long as the ids, so
    they are made on the device. If all columns have one length, as columns with one id per row do,
    they are cached. Lists have other lengths in each batch.
    """
    lengths = counts[counts > 0]
    if len(lengths) > 1 and bool((lengths == lengths[0]).all()):
        shape, at, long = tuple(counts.shape), offsets.flatten().tolist(), counts.flatten().tolist()
        return _kept_places(device, shape, tuple(at), tuple(long))
    return _make_places(device, offsets, counts)


@lru_cache(maxsize=4)  # each is 27 MB for 26 columns of 65,536 rows
def _kept_places(
    device: torch.device, shape: tuple[int, ...], offsets: tuple[int, ...], counts: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    at, long = torch.tensor(offsets, dtype=torch.int64), torch.tensor(counts, dtype=torch.int64)
    made = _make_places(device, at.view(shape), long.view(shape))
    if device.type == "cuda":  # a later caller may work on another stream
        torch.cuda.current_stream(device).synchronize()
    return made


def _make_places(device: torch.device, offsets: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    num_columns, num_segments = counts.shape
    lengths = counts.flatten()
    total = int(lengths.sum())
    shifts = offsets.flatten() - (torch.cumsum(lengths, 0) - lengths)
    columns = torch.arange(num_columns).repeat_interleave(num_segments)
    lengths, shifts, columns = to_device(torch.stack([lengths, shifts, columns]), device)
    # With `output_size`, torch does not wait to read the size from the device.
    places = torch.arange(total, device=device)
    places += shifts.repeat_interleave(lengths, output_size=total)
    return places, columns.repeat_interleave(lengths, output_size=total)
