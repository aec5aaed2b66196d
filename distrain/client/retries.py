"""The repetition of requests: which, when, and for how long."""

import random
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx2

from distrain.pauses import doubled_s

_LATER = frozenset({429, 502, 503, 504})
UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
"""Errors after which the service cannot have the request."""
_FOR_GOOD = (httpx2.LocalProtocolError, httpx2.UnsupportedProtocol)


@dataclass(frozen=True)
class Retries:
    """How long and how often a client tries again.

    Attributes:
        for_s: How long in all, from the first try on.
        first_s: The pause after the first try; it doubles with each.
        longest_s: The longest pause, unless the service names a longer one (`Retry-After`).
        draw: Gives numbers between 0 and 1: clients do not come back at the same moment.
        most_tries: How often a request is sent; `None`: as often as there is time.
    """

    for_s: float = 120.0
    first_s: float = 0.25
    longest_s: float = 10.0
    draw: Callable[[], float] = random.random
    most_tries: int | None = None

    def pause_s(self, tries: int, asked_s: float = 0.0) -> float:
        """The pause after that many tries; `asked_s`: what the service asked for.

        >>> Retries(draw=lambda: 1.0).pause_s(3)
        1.0
        """
        own_s = doubled_s(self.first_s, tries - 1, self.longest_s)
        later_s = asked_s and asked_s + 0.5 * self.draw()  # not all return at the same moment
        return max(own_s * (0.5 + self.draw() / 2), later_s)


def why_again(answer: httpx2.Response) -> str:
    """The reason to repeat a request in spite of its answer; "" if there is none."""
    if answer.status_code in _LATER:
        return f"the service answered {answer.status_code}"
    # A server that is being stopped drops questions with a 500 that is not ours.
    dropped = answer.status_code == 500 and answer.request.method == "GET"
    return "the service answered 500" if dropped and json_of(answer) is None else ""


def is_for_good(error: BaseException | None) -> bool:
    """Whether another try can only end the same way, as with a certificate."""
    if isinstance(error, _FOR_GOOD):
        return True
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def json_of(answer: httpx2.Response) -> object:
    """The content of an answer as JSON values; `None` if it is none."""
    try:
        return answer.json()
    except ValueError:
        return None


def retry_after_s(value: str, now: datetime | None = None) -> float:
    """The header `Retry-After` in seconds, or 0.

    >>> now = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
    >>> retry_after_s("7", now), retry_after_s("Sun, 01 Mar 2026 12:00:30 GMT", now)
    (7.0, 30.0)
    >>> retry_after_s("soon", now), retry_after_s("-1", now)
    (0.0, 0.0)
    """
    if value.strip().isdigit():
        return float(min(int(value.strip()[:9]), 86_400))
    try:
        then = parsedate_to_datetime(value)
    except ValueError:
        return 0.0
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    return max(0.0, (then - (now or datetime.now(UTC))).total_seconds())
