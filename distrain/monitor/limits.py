"""The vertical range of a curve. Pure."""

import math
from collections.abc import Iterable, Sequence

EARLY = 0.05
"""Share of a curve's points, from its start, that may lie outside of the range."""
FEW = 4
"""A curve of fewer points is shown whole."""
_ROOM = 0.06


def curve_limits(
    curves: Iterable[Sequence[float | None]], whole: Iterable[float | None] = ()
) -> tuple[float, float] | None:
    """The range in which curves are drawn: of all points, but those of a wild start.

    The first steps of a training may have many times the loss of all others, and would flatten
    them. What lies among the first points, and further off the others than these spread, is left
    out. Nothing else ever is.

    Args:
        curves: The values of each, in order; `None` or not finite: unknown.
        whole: Values that are shown wherever they are, such as those of validation.

    Returns:
        The least and the greatest value, with some room; `None` without any values.

    >>> low, high = curve_limits([[9.0, 0.5, 0.45, 0.4]], whole=[0.41, 0.6])
    >>> low < 0.4, 0.6 < high < 0.7
    (True, True)
    >>> curve_limits([[None]]) is None
    True
    """
    early: list[float] = []
    settled = _known(whole)
    for values in curves:
        known = _known(values)
        begun = math.ceil(EARLY * len(known)) if len(known) >= FEW else 0
        early += known[:begun]
        settled += known[begun:]
    if not settled:
        return None
    low, high = min(settled), max(settled)
    around = max(high - low, 0.1 * max(abs(low), abs(high)))
    near = [value for value in early if low - around <= value <= high + around]
    low, high = min([low, *near]), max([high, *near])
    room = _ROOM * (high - low) or max(abs(high) * 0.01, 1e-6)
    return low - room, high + room


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]
