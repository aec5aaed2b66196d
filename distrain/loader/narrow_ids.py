"""Narrow integer types for ids, in decoded pages and in the cache."""

from __future__ import annotations

from typing import Any

import numpy as np

NARROW_TYPES: tuple[np.dtype[Any], ...] = (np.dtype("|u1"), np.dtype("<u2"))
"""NumPy's types for ids of fewer than 4 bytes, the narrowest first."""


def narrow_type(id_limit: int) -> np.dtype[Any] | None:
    """Return the first of `NARROW_TYPES` that holds all ids below `id_limit`; `None` if none does.

    >>> narrow_type(256), narrow_type(257), narrow_type(65_537)
    (dtype('uint8'), dtype('uint16'), None)
    """
    return next((kind for kind in NARROW_TYPES if id_limit <= 1 << 8 * kind.itemsize), None)
