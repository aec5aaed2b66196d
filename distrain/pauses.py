"""Computes the wait before the next try."""


def doubled_s(first_s: float, number: int, longest_s: float) -> float:
    """The pause before try `number`, from 0: it doubles with each, up to the longest.

    >>> [doubled_s(0.25, number, 10.0) for number in (0, 1, 2, 1000)]
    [0.25, 0.5, 1.0, 10.0]
    """
    return min(longest_s, first_s * 2.0 ** min(number, 60))
