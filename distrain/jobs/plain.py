"""Texts and numbers that JSON and every database can carry."""

import math
import re
from typing import Any

LARGEST = 2**63 - 1  # the largest whole number of a database

MOST_CHARACTERS = 8000
"""Of a message in a row: each change of a job copies its message into an event."""

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")  # NUL, and halves of surrogate pairs


def is_storable(text: str) -> bool:
    r"""Whether every database and JSON reader takes a text.

    >>> is_storable("a\tb"), is_storable("a\0b"), is_storable("\udcff")
    (True, False, False)
    """
    return (text.isascii() and "\0" not in text) or _UNSTORABLE.search(text) is None


def storable(text: str, most: int = MOST_CHARACTERS) -> str:
    r"""A text of at most `most` characters that every database and JSON reader takes.

    What users' code raises becomes a job's message. One that could not be written would keep all
    rows of its transaction from being written, again and again.

    >>> storable("a\0b\udcff"), storable("abcdef", 4)
    ('a\ufffdb\ufffd', 'abc…')
    """
    plain = text if is_storable(text) else _UNSTORABLE.sub("\ufffd", text)
    return plain if len(plain) <= most else plain[: most - 1] + "…"


def is_number(value: object) -> bool:
    """Whether a value is a finite number that a database can hold.

    >>> is_number(0.5), is_number(float("nan")), is_number(2**70), is_number(True)
    (True, False, False, False)
    """
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and -LARGEST <= value <= LARGEST  # false for NaN
    )


def finite(value: Any) -> Any:
    """JSON values with `None` in place of each number that JSON does not have.

    >>> finite({"loss": float("nan"), "seconds": [1.5, float("inf")]})
    {'loss': None, 'seconds': [1.5, None]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return value
