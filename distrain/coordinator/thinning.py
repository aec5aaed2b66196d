"""Which neighbouring old reports become one, when they take too much room. Pure.

Reports are numbered from 0. One that stands for several stands for 2, 4, 8, ... of them, the first
of which has a number that this divides. So whatever two ranks have joined, the ends of the coarser
reports are ends of the finer ones, too, and the ranks' reports can be merged at those.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Item:
    """A report that is kept.

    Attributes:
        kind: Of its event.
        first: The number of the first report that it stands for.
        count: How many it stands for.
        size_bytes: What it takes in the file.
    """

    kind: str
    first: int
    count: int
    size_bytes: int


def joinable(items: Sequence[Item], kind: str, num_recent: int) -> dict[int, int]:
    """Neighbours to be joined next: of those that stand for the fewest reports, all old pairs.

    Args:
        items: All that are kept, in order.
        kind: Only these.
        num_recent: How many of the newest of that kind stay as they are.

    Returns:
        The index of each pair's earlier one, with that of the later one.

    >>> items = [Item("steps_done", n, 1, 9) for n in range(6)]
    >>> joinable(items, "steps_done", num_recent=2)
    {0: 1, 2: 3}
    """
    places = [place for place, item in enumerate(items) if item.kind == kind]
    old = places[: max(0, len(places) - num_recent)]
    pairs: dict[int, dict[int, int]] = {}
    for one, other in pairwise(old):
        a, b = items[one], items[other]
        if a.count == b.count and a.first % (2 * a.count) == 0 and b.first == a.first + a.count:
            pairs.setdefault(a.count, {})[one] = other
    return pairs[min(pairs)] if pairs else {}
