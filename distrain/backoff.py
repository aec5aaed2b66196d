"""Computes the wait before the next try."""


def doubled_s(first_s: float, number: int, longest_s: float) -> float:
    """Return the seconds to wait before retry `number`: `first_s` for retry 0, then doubled.

    The result is at most `longest_s`.

    >>> [doubled_s(0.25, number, 10.0) for number in (0, 1, 2, 1000)]
    [0.25, 0.5, 1.0, 10.0]
    """
    return min(longest_s, first_s * 2.0 ** min(number, 60))
