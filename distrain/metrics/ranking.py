"""Metrics of short recommendation lists, over all items, without sampling.

A user's recommended items are compared with *relevant* items, for example later purchases. Lists
of items are values and offsets: user `i` has `values[offsets[i]:offsets[i + 1]]`.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.integer[Any]]

NO_ITEM = -1
"""The placeholder after the last item of a ranking."""


class ItemLists(NamedTuple):
    """A set of items for each user.

    Attributes:
        values: `[sum of the lists' lengths]`, ids of items, 0 or more.
        offsets: `[users + 1]`, from 0 to the number of values.
    """

    values: Ids
    offsets: Ids

    @property
    def users(self) -> Ids:
        """The user of each value, `[values]`."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))


@dataclass(frozen=True)
class RankingReport:
    """Means over users; each is `None` if no user has a relevant item.

    Attributes:
        k: Items per list.
        users: Number of users with a relevant item; others are in none of the means.
        recall: The share of a user's relevant items that are among the k.
        capped_recall: The same hits as a share of `min(k, relevant items)`.
        hit_rate: Whether any relevant item is among the k.
        ndcg: Hits discounted by the logarithm of their rank, relative to the best order.
        mrr: The reciprocal rank of the first relevant item among the k, 0 if there is none.
        coverage: The share of all items that are recommended to any of these users; `None` if the
            number of items is unknown.
    """

    k: int
    users: int
    recall: float | None
    capped_recall: float | None
    hit_rate: float | None
    ndcg: float | None
    mrr: float | None = None
    coverage: float | None = None


class RankingMetrics:
    """Sums over users, of constant size, from which a `RankingReport` is computed.

    Merged states agree with one state of all users up to float64 rounding.

    Args:
        k: Number of items recommended to a user, at least 1.
        users: Number of users counted.
        sums: Sums over users of recall, capped recall, hit rate, NDCG and reciprocal rank, float64
            `[5]`.
        shown: For each item whether it was recommended to any user, `[items]`; `None` computes no
            coverage.

    >>> metrics = RankingMetrics(2)
    >>> bought = ItemLists(np.array([7, 8, 9, 3]), np.array([0, 3, 4]))
    >>> metrics.update(np.array([[8, 1], [4, 5]]), bought)
    >>> metrics.compute().recall  # a third for the first user, nothing for the second
    0.16666666666666666
    """

    def __init__(
        self,
        k: int,
        users: int = 0,
        sums: NDArray[np.float64] | None = None,
        shown: NDArray[np.bool_] | None = None,
    ):
        if k < 1:
            raise ValueError(f"k is {k}, not 1 or more")
        self.k = k
        self.users = users
        self.sums = np.zeros(5) if sums is None else sums
        self.shown = shown

    def update(self, ranked: Ids, relevant: ItemLists) -> None:
        """Count some users.

        Args:
            ranked: `[users, k or more]`, each user's items, best first, without repeats; `NO_ITEM`
                after the last one.
            relevant: The relevant items, for the same users in the same order.

        Raises:
            ValueError: The shapes do not match, an item is repeated, or one is beyond the items of
                `shown`; nothing was counted.
        """
        shown = self._checked(ranked, relevant)
        hits = _members(shown, relevant)
        counts = _distinct_counts(relevant)
        has_any = counts > 0
        if self.shown is not None:
            self.shown[shown[has_any][shown[has_any] != NO_ITEM]] = True
        hits, counts = hits[has_any], counts[has_any]
        found = hits.sum(1)
        gains = 1 / np.log2(np.arange(self.k) + 2)
        capped = np.minimum(counts, self.k)
        best = np.cumsum(gains)[capped - 1]
        first = np.where(found > 0, 1 / (1 + hits.argmax(1)), 0.0)
        columns = (found / counts, found / capped, found > 0, (hits @ gains) / best, first)
        self.sums += [float(column.sum()) for column in columns]
        self.users += len(counts)

    def merge(self, other: "RankingMetrics") -> "RankingMetrics":
        """Return a new state with the users of both.

        Raises `ValueError` if they differ in `k` or in the number of items.
        """
        if other.k != self.k:
            raise ValueError(f"metrics at {self.k} and at {other.k} cannot be merged")
        sizes = [None if one.shown is None else len(one.shown) for one in (self, other)]
        if sizes[0] != sizes[1]:
            raise ValueError(f"metrics over {sizes[0]} and over {sizes[1]} items cannot be merged")
        shown = None
        if self.shown is not None and other.shown is not None:
            shown = self.shown | other.shown
        return RankingMetrics(self.k, self.users + other.users, self.sums + other.sums, shown)

    def compute(self) -> RankingReport:
        """Return the means over the users so far."""
        if not self.users:
            return RankingReport(self.k, 0, None, None, None, None)
        coverage = None if self.shown is None or not len(self.shown) else float(self.shown.mean())
        recall, capped, hits, ndcg, mrr = (self.sums / self.users).tolist()
        return RankingReport(self.k, self.users, recall, capped, hits, ndcg, mrr, coverage)

    def _checked(self, ranked: Ids, relevant: ItemLists) -> Ids:
        users = len(relevant.offsets) - 1
        if ranked.ndim != 2 or len(ranked) != users or ranked.shape[1] < self.k:
            raise ValueError(
                f"the rankings of {users} users are [{users}, {self.k} or more], "
                f"not {list(ranked.shape)}"
            )
        shown = ranked[:, : self.k]
        in_order = np.sort(shown, axis=1)
        twice = (in_order[:, 1:] == in_order[:, :-1]) & (in_order[:, 1:] != NO_ITEM)
        if twice.any():
            raise ValueError(f"the user at index {int(twice.any(1).argmax())} is shown items twice")
        if self.shown is not None and shown.max(initial=NO_ITEM) >= len(self.shown):
            raise ValueError(f"item {int(shown.max())} is shown, of {len(self.shown)} items")
        return shown


class TopItems:
    """Each user's k best items so far; ties favour the lower id.

    Call `update` with chunks of the items. The size and order of chunks do not change the result,
    and only the scores of one chunk are in memory at a time.

    Args:
        users: Number of users.
        k: Number of items, at least 1.

    Attributes:
        ranked: Ids of the items, `[users, k]`, int64, best first; `NO_ITEM` after the last item.

    >>> top = TopItems(1, 2)
    >>> top.update(np.array([[0.1, 0.9]]), np.array([0, 1]))
    >>> top.update(np.array([[0.5]]), np.array([2]))
    >>> top.ranked
    array([[1, 2]])
    """

    def __init__(self, users: int, k: int):
        if k < 1:
            raise ValueError(f"k is {k}, not 1 or more")
        self.ranked = np.full((users, k), NO_ITEM, np.int64)
        self._worst_first = np.full((users, k), np.inf)

    def update(self, scores: NDArray[Any], items: Ids, exclude: ItemLists | None = None) -> None:
        """Add a chunk of items, and keep the k best so far.

        Args:
            scores: `[users, items of the chunk]`, higher for better items, finite.
            items: Their ids; an id occurs once over all chunks.
            exclude: Items to exclude for each user, in the same order of users; they may be of
                other chunks.

        Raises:
            ValueError: A score is not finite; nothing was counted.
        """
        if not np.isfinite(scores).all():
            raise ValueError("a score is not a finite number")
        worst_first = np.negative(scores, dtype=np.float64)
        if exclude is not None and len(items):
            by_id = np.argsort(items)
            found = np.searchsorted(items, exclude.values, sorter=by_id).clip(max=len(items) - 1)
            places = by_id[found]
            here = items[places] == exclude.values
            worst_first[exclude.users[here], places[here]] = np.inf
        self._take(worst_first, np.broadcast_to(items, worst_first.shape))

    def _take(self, worst_first: NDArray[np.float64], items: NDArray[Any]) -> None:
        k = self.ranked.shape[1]
        keys = np.concatenate([self._worst_first, worst_first], axis=1)
        ids = np.concatenate([self.ranked, np.where(np.isfinite(worst_first), items, NO_ITEM)], 1)
        order = np.lexsort((ids, keys), axis=1)[:, :k]
        self.ranked = np.take_along_axis(ids, order, axis=1)
        self._worst_first = np.take_along_axis(keys, order, axis=1)


def top_items(scores: NDArray[Any], k: int, exclude: ItemLists | None = None) -> NDArray[np.int64]:
    """Return each user's k best items of one chunk, with ids `0 .. items-1`; see `TopItems`.

    Args:
        scores: `[users, items]`, higher for better items, finite.
        k: Number of items, at least 1.
        exclude: Items to exclude for each user, in the same order of users.

    Returns:
        `[users, k]`, best first; `NO_ITEM` after the last item.

    Raises:
        ValueError: A score is not finite.

    >>> top_items(np.array([[0.1, 0.9, 0.5]]), 2, ItemLists(np.array([1]), np.array([0, 1])))
    array([[2, 0]])
    """
    top = TopItems(len(scores), k)
    top.update(scores, np.arange(scores.shape[1]), exclude)
    return top.ranked


def _members(shown: Ids, lists: ItemLists) -> NDArray[np.bool_]:
    """Return a mask of the items in `shown`, `[users, k]`, that are in the list of their user."""
    span = 1 + max(int(shown.max(initial=0)), int(lists.values.max(initial=0)))
    users = np.arange(len(shown))[:, None]
    codes = np.where(shown == NO_ITEM, -1, users * span + shown)
    return np.isin(codes, lists.users * span + lists.values)


def _distinct_counts(lists: ItemLists) -> NDArray[np.int64]:
    """Return the number of distinct items in each user's list; `[users]`."""
    span = 1 + int(lists.values.max(initial=0))
    codes = np.unique(lists.users * span + lists.values)
    return np.bincount(codes // span, minlength=len(lists.offsets) - 1)
