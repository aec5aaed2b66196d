"""What an exchange of touched rows costs, as formulas: bytes, collectives, seconds.

A store is all tables of one width and placement; its collectives are shared by its tables. With
W ranks, U distinct rows of a rank's batch and rows of R bytes a rank sends in a step

| placement | collectives | bytes |
|---|---|---|
| replicated | counts, ids, sums | `(W-1) * U * (4 + R)` |
| row_wise, host_cached | counts, ids, rows, sums | `(W-1)/W * U * (4 + 2R)` |

Row-wise sends about 2/W of the bytes in one more collective, so it is faster above some U:
`crossover_unique`. Values travel as fp32, however they are stored. No torch in here:
`distrain plan` and every rank compute the same.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from distrain.models.embeddings.columns import PLACEMENTS

ID_BYTES = 4
SENT_BYTES_PER_VALUE = 4
MORE_COLLECTIVES = PLACEMENTS["row_wise"].collectives - PLACEMENTS["replicated"].collectives

ZIPF_EXPONENT = 1.2
"""How uneven ids are taken to be where nobody counted.

On the first 7,500 rows of Criteo's 1TB click logs, with the cardinalities of NVTabular's notebooks,
the 26 columns have 25,468 distinct values; exponent 1.1 predicts 40,182, 1.2 27,751, 1.3 18,908 and
uniform ids 102,946.
"""

_BINS = 400


@dataclass(frozen=True)
class Costs:
    bytes_per_s: float  # what a rank sends in a second of a large collective
    latency_s: float  # what a collective takes that sends next to nothing

    def __post_init__(self) -> None:
        if not (0 < self.bytes_per_s < math.inf and 0 <= self.latency_s < math.inf):
            raise ValueError(f"costs are positive numbers, not {self}")


DEFAULT_COSTS = {
    # The median of six calibrations between two gloo ranks on a machine of 2 cores, which was busy
    # (0.38 to 0.75 GB/s, 216 to 317 us).
    "cpu": Costs(0.55e9, 250e-6),
    # Derived for GPUs on one NVLink node, never measured.
    "cuda": Costs(350e9, 20e-6),
}
"""What a plan reckons with where no rank has measured, by type of device."""


@dataclass(frozen=True)
class Sent:
    """Bytes that a rank sends in a step: distinct ids, rows from their owners, gradients' sums."""

    ids: float
    rows: float
    sums: float

    @property
    def total(self) -> float:
        return self.ids + self.rows + self.sums


def sent_bytes(
    placement: str, unique: float, dim: int, num_ranks: int, *, asked: float | None = None
) -> Sent:
    """What a rank sends in a step for `unique` distinct rows, of which `asked` are asked for.

    >>> sent_bytes("replicated", 1000, 16, 4).total, sent_bytes("row_wise", 1000, 16, 4).total
    (204000.0, 99000.0)
    """
    row_bytes = SENT_BYTES_PER_VALUE * dim
    if not PLACEMENTS[placement].is_dealt:
        copies = float(num_ranks - 1)
        return Sent(copies * unique * ID_BYTES, 0.0, copies * unique * row_bytes)
    share = (num_ranks - 1) / num_ranks
    values = share * unique * row_bytes
    return Sent(share * (unique if asked is None else asked) * ID_BYTES, values, values)


def split_bytes(sent: float, placement: str, ranks: int, here: int) -> tuple[float, float]:
    """Of what a rank sends to all ranks: bytes over its node's links, and over its network card.

    `here` neighbouring ranks share a node. An all-gather goes around a ring of all ranks, so each
    block comes to a node once and is divided among its cards; an all-to-all goes straight to each
    peer.

    >>> split_bytes(7.0, "row_wise", 8, 4), split_bytes(7.0, "replicated", 8, 4)
    ((3.0, 4.0), (7.0, 1.0))
    """
    if ranks <= here:
        return sent, 0.0
    if not PLACEMENTS[placement].is_dealt:  # an all-gather, in which all blocks pass each rank
        return sent if here > 1 else 0.0, sent / (ranks - 1) * (ranks / here - 1)
    least = ranks % here or here  # a last node with fewer ranks sends most over its cards
    return sent * (here - 1) / (ranks - 1), sent * (ranks - least) / (ranks - 1)


def latency_s(placement: str, num_ranks: int, costs: Costs) -> float:
    """What a store's collectives take in a step before they have sent anything."""
    return PLACEMENTS[placement].collectives * costs.latency_s if num_ranks > 1 else 0.0


def crossover_unique(
    dim: int, num_ranks: int, costs: Costs, more_collectives: int = MORE_COLLECTIVES
) -> float:
    """Distinct rows of a rank's step above which row-wise is faster; infinite on two ranks.

    >>> fast = Costs(350e9, 20e-6)
    >>> round(crossover_unique(16, 4, fast)), round(crossover_unique(16, 8, fast))
    (66667, 19417)
    """
    if num_ranks <= 2:
        return math.inf
    saved = (
        sent_bytes("replicated", 1, dim, num_ranks).total
        - sent_bytes("row_wise", 1, dim, num_ranks).total
    )
    return more_collectives * costs.latency_s * costs.bytes_per_s / saved


@lru_cache(maxsize=4096)
def expected_unique(rows: int, lookups: int, exponent: float = ZIPF_EXPONENT) -> float:
    """The expected number of distinct rows that `lookups` touch, for ids by Zipf's law.

    The id of rank k has a share of `k ** -exponent`. Ranks are taken together in some hundred bins,
    each with the share of its middle. Exponent 0 means uniform ids, for which the expectation is
    exact; no other distribution of independent ids has a greater one, so that is the upper bound.

    >>> expected_unique(2, 2, exponent=0.0)
    1.5
    >>> round(expected_unique(10_000_000, 65_536))
    11688
    """
    if rows == 1 or lookups == 0:
        return float(min(rows, lookups))
    step = (rows + 1) ** (1 / _BINS)
    edges = sorted({min(rows + 1, math.floor(step**k)) for k in range(_BINS)} | {rows + 1})
    bins = [(end - start, (start + end - 1) / 2) for start, end in pairwise(edges)]
    mass = sum(width * middle**-exponent for width, middle in bins)
    expected = 0.0
    for width, middle in bins:
        share = middle**-exponent / mass
        missed = math.exp(lookups * math.log1p(-share)) if share < 1 else 0.0
        expected += width * (1 - missed)
    return min(expected, float(rows), float(lookups))
