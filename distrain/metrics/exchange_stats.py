"""Statistics of the steps' table lookups, and of the bytes that ranks exchange for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class ExchangeStats:
    """The lookups of a rank's steps in its embedding tables, and the exchange for them.

    `steps` and `route_s` are 0 in the statistics of a single batch's route.

    Attributes:
        lookups: Ids looked up.
        distinct: Distinct rows among the ids looked up, counted step by step.
        updated: Rows that this rank updated, counted step by step.
        sent_bytes: Bytes from this rank to others for the tables: ids, rows, and sums of gradients,
            without the gradients of the dense layers.
        route_s: Seconds of computing routes, including waits for other ranks.
    """

    steps: int = 0
    lookups: int = 0
    distinct: int = 0
    updated: int = 0
    sent_bytes: int = 0
    route_s: float = 0.0

    def __add__(self, other: ExchangeStats) -> ExchangeStats:
        amounts = vars(other)
        return ExchangeStats(**{name: own + amounts[name] for name, own in vars(self).items()})

    def to_json(self) -> dict[str, float]:
        """Return all fields by name, and `unique_ratio` and `sent_bytes_per_step`.

        >>> ExchangeStats(steps=2, lookups=8, distinct=4, sent_bytes=60).to_json()["unique_ratio"]
        0.5
        """
        return _with_ratios(asdict(self))


def add_up_exchanges(per_rank: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the sums of the ranks' statistics (`to_json`) for the same steps; empty for no ranks.

    `steps` is not summed: it is the largest of the ranks' numbers.

    >>> one = ExchangeStats(steps=2, lookups=8, distinct=4, sent_bytes=60).to_json()
    >>> both = add_up_exchanges([one, one])
    >>> both["steps"], both["sent_bytes"], both["sent_bytes_per_step"], both["unique_ratio"]
    (2, 120, 60.0, 0.5)
    """
    total = follow_up_exchanges(per_rank)
    if not total:
        return {}
    steps = max(of_rank.get("steps", 0) for of_rank in per_rank)
    return _with_ratios(total | {"steps": steps})


def follow_up_exchanges(in_turn: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the sums of one rank's statistics (`to_json`) of consecutive reports.

    Also `steps` is summed. The result is empty for no reports.

    >>> one = ExchangeStats(steps=2, lookups=8, distinct=4, sent_bytes=60).to_json()
    >>> both = follow_up_exchanges([one, one])
    >>> both["steps"], both["sent_bytes"], both["sent_bytes_per_step"]
    (4, 120, 30.0)
    """
    reported = [window for window in in_turn if window]
    if not reported:
        return {}
    names = ExchangeStats.__dataclass_fields__
    return _with_ratios({name: sum(window.get(name, 0) for window in reported) for name in names})


def _with_ratios(sums: Mapping[str, float]) -> dict[str, float]:
    return {
        **sums,
        "unique_ratio": sums["distinct"] / max(1, sums["lookups"]),
        "sent_bytes_per_step": sums["sent_bytes"] / max(1, sums["steps"]),
    }
