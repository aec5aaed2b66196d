"""Small texts for terminals. Pure."""

from collections.abc import Sequence

_BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float | None], width: int) -> str:
    """The last values as blocks of eight heights.

    >>> sparkline([0.0, None, 1.0, 2.0, 7.0], 4)
    '▁▂▃█'
    """
    known = [value for value in values if value is not None][-width:]
    if not known:
        return ""
    low, high = min(known), max(known)
    span = (high - low) or 1.0
    return "".join(_BLOCKS[round((value - low) / span * (len(_BLOCKS) - 1))] for value in known)


def shortened(text: str, width: int) -> str:
    """A job's id with both ends: its name, and what tells it from its like.

    >>> shortened("deep-and-cross-20260301-123000-ab12", 20)
    'deep-and…123000-ab12'
    """
    if len(text) <= width:
        return text
    tail = min(11, width // 2 + 1)
    return f"{text[: width - tail - 1]}…{text[-tail:]}"
