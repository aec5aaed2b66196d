"""Random bits as a function of a key, a table's row and a position in it, not of earlier draws.

The generator of initial values is Philox4x32-10: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E.
Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). Its words of 32 bits are computed in
int64, where the products wrap around as required, so they are the same on every device.
`_philox.h` computes the same in C.

Rounding to bfloat16 uses fewer bits. A table in bfloat16 keeps 8 bits of a value. Rounding to the
nearest value loses every update smaller than half a step of the value, and training stalls.
Rounding up with a probability equal to the remainder is exact on average (Gupta et al. 2015, "Deep
Learning with Limited Numerical Precision"; fbgemm rounds its half-precision tables so). The bits
are a hash of a seed, a row's key and the place in the row: Chris Wellons' lowbias32
(https://github.com/skeeto/hash-prospector, public domain).
"""

from typing import Any

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF
_ROUNDS = 10
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85
_HALF_RANGE = 1 << 23
_GOLDEN = 0x9E3779B9


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: int) -> tuple[Tensor, ...]:
    """Return four random words of 32 bits, int64, for a counter of four words and a 64-bit key.

    The counter's lowest word comes first.

    >>> zero = torch.zeros((), dtype=torch.int64)
    >>> [f"{int(word):08x}" for word in philox((zero, zero, zero, zero), 0)]
    ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']
    """
    c0, c1, c2, c3 = counter
    low, high = key & _MASK, key >> 32 & _MASK
    for _ in range(_ROUNDS):
        first, second = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0 = (second >> 32 ^ c1 ^ low) & _MASK
        c2 = (first >> 32 ^ c3 ^ high) & _MASK
        c1, c3 = second & _MASK, first & _MASK
        low, high = low + _KEY_STEPS[0] & _MASK, high + _KEY_STEPS[1] & _MASK
    return c0, c1, c2, c3


def words(key: int, rows: Tensor, dim: int) -> Tensor:
    """Return 32-bit random words, `[n, dim]`, int64: `dim` words for each of the table's `rows`.

    `rows` is `[n]`, int64. Word `j` of a row is word `j % 4` of `philox` for the counter `(j // 4,
    row, 0)`, where the row takes two words. It depends only on the key, the row and `j`.
    """
    blocks = torch.arange(-(-dim // 4), device=rows.device)
    of_row = rows.unsqueeze(1)
    low, high = of_row & _MASK, of_row >> 32 & _MASK
    four = philox((blocks, low, high, torch.zeros_like(low)), key)
    return torch.stack(four, dim=2).flatten(1)[:, :dim]


def scaled(key: int, rows: Tensor, scale: float, out: Tensor) -> None:
    """Write random multiples of `scale`, from `-2**23 * scale` to `(2**23 - 1) * scale`, to `out`.

    `out` is `[n, dim]`, float32 or float64, for the table rows `rows`, `[n]`. Each value has the
    upper 24 bits of its word (see `words`). The product with `scale` is rounded once, so the bits
    are the same on every device.
    """
    whole = (words(key, rows, out.shape[1]) >> 8) - _HALF_RANGE
    torch.mul(whole.to(out.dtype), scale, out=out)


def scale_of(bound: float) -> float:
    return bound / _HALF_RANGE


def round_to_bfloat16(values: Tensor, seed: int | Tensor, keys: Tensor) -> Tensor:
    """Round each value at random to one of its neighbours in bfloat16.

    Values that bfloat16 can represent, infinities and NaN are kept.

    `values` is `[v, dim]`, float32. The mean of the results over all seeds is the value. `seed` is
    64 bits, different for each step, or a scalar tensor, int64, on the keys' device. `keys`,
    `[v]`, int64, identify the rows.

    >>> values, keys = torch.full((1000, 1), 1 + 2**-9), torch.arange(1000)
    >>> rounded = round_to_bfloat16(values, 7, keys).float()
    >>> sorted(set(rounded.flatten().tolist())), round(float((rounded > 1).float().mean()), 1)
    ([1.0, 1.0078125], 0.2)
    """
    bits = values.contiguous().view(torch.int32).long() & _MASK
    places = torch.arange(values.shape[1], device=values.device)
    noise = lowbias32(hashes_of_rows(seed, keys).unsqueeze(1) + places * _GOLDEN & _MASK) >> 16
    is_finite = bits & 0x7F800000 != 0x7F800000
    is_nan = bits & 0x7FFFFFFF > 0x7F800000
    rounded = (bits + noise * is_finite | is_nan * 0x400000) >> 16
    signed: Tensor = rounded - (rounded >> 15 << 16)
    return signed.to(torch.int16).view(torch.bfloat16)


def hashes_of_rows(seed: int | Tensor, keys: Tensor) -> Tensor:
    # A seed that is a number stays a number: a host tensor would be copied to the keys' device.
    low: Any = seed & _MASK
    start = lowbias32(lowbias32(low) ^ (seed >> 32 & _MASK))
    hashed: Tensor = lowbias32(lowbias32(start ^ (keys & _MASK)) ^ (keys >> 32 & _MASK))
    return hashed


def lowbias32(x: Any) -> Any:
    """Return the hash lowbias32 of a 32-bit number, or of each in an int64 tensor."""
    x = x ^ x >> 16
    # From here in place: fresh memory costs more than the arithmetic.
    x *= 0x7FEB352D
    x &= _MASK
    x ^= x >> 15
    x *= 0x846CA68B
    x &= _MASK
    x ^= x >> 16
    return x
