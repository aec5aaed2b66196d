"""Hosts on which ranks failed too often of late."""

from collections import defaultdict

AVOID_AFTER_FAILURES = 2
AVOID_S = 600.0  # a host with so many failures within this time is avoided until they are this old


class HostFailures:
    """The hosts of culprits, and when.

    >>> failures = HostFailures()
    >>> for at_s in (0.0, 60.0):
    ...     failures.blame("node-7", at_s)
    >>> failures.avoided(100.0)
    {'node-7': '2 failures, for another 500 s'}
    >>> failures.avoided(600.0)
    {}
    """

    def __init__(self) -> None:
        self._times: defaultdict[str, list[float]] = defaultdict(list)

    def blame(self, host: str, now_s: float) -> None:
        self._times[host] = [*self._recent(host, now_s), now_s]

    def avoided(self, now_s: float) -> dict[str, str]:
        """Hosts that failed too often, with the reason."""
        avoided = {}
        for host in list(self._times):
            recent = self._recent(host, now_s)
            if len(recent) >= AVOID_AFTER_FAILURES:
                left_s = recent[-AVOID_AFTER_FAILURES] + AVOID_S - now_s
                avoided[host] = f"{len(recent)} failures, for another {left_s:.0f} s"
        return avoided

    def _recent(self, host: str, now_s: float) -> list[float]:
        return [at_s for at_s in self._times[host] if now_s - at_s < AVOID_S]
