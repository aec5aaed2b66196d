"""Sizes of memory as people write them."""

import re

from distrain.errors import SpecError

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def parse_bytes(size: int | str) -> int:
    """A number of bytes.

    Raises:
        SpecError: It is no positive size, or its unit is unknown.

    >>> parse_bytes("128 MiB"), parse_bytes("1.5GB"), parse_bytes(4096)
    (134217728, 1500000000, 4096)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", str(size))
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None or float(match[1]) * unit < 1:
        raise SpecError(
            f"{size!r} is no size in bytes", hint="Write it like 134217728, 128MiB or 1.5GB."
        )
    return int(float(match[1]) * unit)
