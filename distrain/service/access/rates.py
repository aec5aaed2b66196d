"""The rate of callers' requests: token buckets, in this process. Pure but for what it remembers."""

from dataclasses import dataclass, field

_MOST_KEPT = 10_000


@dataclass
class Rates:
    """Token buckets that hold two seconds' worth, or `burst`; a process's event loop owns them."""

    per_s: float
    burst: float = 0.0
    _left: dict[str, tuple[float, float]] = field(default_factory=dict)

    def wait_s(self, caller: str, now_s: float) -> float:
        """Take one call from a caller's bucket, or give the seconds until their next one."""
        most = max(1.0, self.burst, 2 * self.per_s)
        left, then_s = self._left.pop(caller, (most, now_s))
        left = min(most, left + (now_s - then_s) * self.per_s)
        enough = left >= 1
        self._left[caller] = (left - 1 if enough else left, now_s)  # the latest caller comes last
        if len(self._left) > _MOST_KEPT:  # the one that asked longest ago has a full bucket again
            del self._left[next(iter(self._left))]
        return 0.0 if enough else (1 - left) / self.per_s
