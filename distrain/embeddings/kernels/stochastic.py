"""Rounding to bfloat16 that is right on average.

A table in bfloat16 keeps 8 bits of a value. Rounded to nearest, an update smaller than half a step
of the value is lost every time, and training stalls; rounded up with the probability that its
remainder says, it is right on average (Gupta et al. 2015, "Deep Learning with Limited Numerical
Precision"; fbgemm rounds its half-precision tables so).

The random bits are a hash of a seed, a row's key and the place in the row, not the state of a
generator, so they do not depend on the order of the rows, on threads, ranks or device. The hash is
Chris Wellons' lowbias32 (https://github.com/skeeto/hash-prospector, public domain).
"""

from typing import Any

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF
_GOLDEN = 0x9E3779B9


def round_to_bfloat16(values: Tensor, seed: int | Tensor, keys: Tensor) -> Tensor:
    """Each value to one of its two neighbours in bfloat16; exact ones, infinities and NaN stay.

    Args:
        values: `[v, dim]`, float32; the mean of the results over seeds is the value.
        seed: 64 bits, another for each step; as a tensor a scalar, int64, on the keys' device.
        keys: `[v]`, int64, what tells a row from all others.

    >>> values, keys = torch.full((1000, 1), 1 + 2**-9), torch.arange(1000)
    >>> rounded = round_to_bfloat16(values, 7, keys).float()
    >>> sorted(set(rounded.flatten().tolist())), round(float((rounded > 1).float().mean()), 1)
    ([1.0, 1.0078125], 0.2)
    """
    bits = values.contiguous().view(torch.int32).long() & _MASK
    places = torch.arange(values.shape[1], device=values.device)
    noise = _hash(hashes_of_rows(seed, keys).unsqueeze(1) + places * _GOLDEN & _MASK) >> 16
    is_finite = bits & 0x7F800000 != 0x7F800000
    is_nan = bits & 0x7FFFFFFF > 0x7F800000
    rounded = (bits + noise * is_finite | is_nan * 0x400000) >> 16
    signed: Tensor = rounded - (rounded >> 15 << 16)
    return signed.to(torch.int16).view(torch.bfloat16)


def hashes_of_rows(seed: int | Tensor, keys: Tensor) -> Tensor:
    """32 random bits per row, `[v]`, int64."""
    # A number stays one: as a tensor of the host it would have to be copied to the keys' device.
    low: Any = seed & _MASK
    start = _hash(_hash(low) ^ (seed >> 32 & _MASK))
    hashed: Tensor = _hash(_hash(start ^ (keys & _MASK)) ^ (keys >> 32 & _MASK))
    return hashed


def _hash(x: Any) -> Any:
    """lowbias32 of a number of 32 bits, or of a tensor's in int64, where products wrap around."""
    x = x ^ x >> 16
    x = x * 0x7FEB352D & _MASK
    x = x ^ x >> 15
    x = x * 0x846CA68B & _MASK
    return x ^ x >> 16
