"""What happened in a job, moment by moment, in bounded memory. Pure."""

from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

KEPT_MOMENTS = 100
"""Moments of each kind that are kept: a job may write a checkpoint every few seconds."""


@dataclass(frozen=True)
class Moment:
    """Something on a job's time line.

    Attributes:
        at_s: When, in unix time.
        kind: `state`, `restart`, `checkpoint`, `notice` or `validated`.
        attempt: Of which attempt.
        step: Steps taken since the start of the job, where known.
        text: What happened, as people should read it.
    """

    at_s: float
    kind: str
    attempt: int
    step: int | None
    text: str

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


class Timeline:
    """The last `KEPT_MOMENTS` of each kind."""

    def __init__(self) -> None:
        self._by_kind: dict[str, deque[Moment]] = {}

    def add(self, moment: Moment) -> None:
        """Take in one that came after all others of its kind."""
        self._by_kind.setdefault(moment.kind, deque(maxlen=KEPT_MOMENTS)).append(moment)

    @property
    def moments(self) -> list[Moment]:
        """All that are kept, the oldest first."""
        return sorted((m for kind in self._by_kind.values() for m in kind), key=lambda m: m.at_s)
