"""The narrowest types of ids: in pages, in the cache, and in batches on their way to a GPU.

Such batches also use ids of three bytes (`filling.batch_memory`), for which NumPy has no type.
"""

from __future__ import annotations

from typing import Any

import numpy as np

NARROW_TYPES: tuple[np.dtype[Any], ...] = (np.dtype("|u1"), np.dtype("<u2"))
"""The types of ids that take fewer than 4 bytes, the narrowest first."""


def narrow_type(id_limit: int) -> np.dtype[Any] | None:
    """Return the narrowest of these types that holds all ids below a limit; `None` if none does.

    >>> narrow_type(256), narrow_type(257), narrow_type(65_537)
    (dtype('uint8'), dtype('uint16'), None)
    """
    return next((kind for kind in NARROW_TYPES if id_limit <= 1 << 8 * kind.itemsize), None)
