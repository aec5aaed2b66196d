"""Ids of a dictionary page as the format's text says them, slowly: what `_pages.c` is held to."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def number(value: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    low, rest = value & 127, value >> 7
    return bytes([low | 128]) + number(rest) if rest else bytes([low])


def packed(ids: Sequence[int], width: int) -> bytes:
    """A packed run; the last group of eight is filled up with zeros."""
    groups = -(-len(ids) // 8)
    bits = sum(one << place * width for place, one in enumerate(ids))
    return number(groups << 1 | 1) + bits.to_bytes(groups * width, "little")


def repeated(one: int, count: int, width: int) -> bytes:
    """A run of one id."""
    return number(count << 1) + one.to_bytes(-(-width // 8), "little")


def ids_of(page: bytes, width: int, count: int) -> NDArray[np.int64]:
    """The first `count` ids of runs."""
    ids: list[int] = []
    at = 0
    while len(ids) < count:
        head = shift = 0
        while True:
            byte, at = page[at], at + 1
            head |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        length = (head >> 1) * width if head & 1 else -(-width // 8)
        bits, at = int.from_bytes(page[at : at + length], "little"), at + length
        if head & 1:
            ids += [bits >> place * width & (1 << width) - 1 for place in range((head >> 1) * 8)]
        else:
            ids += [bits] * (head >> 1)
    return np.array(ids[:count], np.int64)
