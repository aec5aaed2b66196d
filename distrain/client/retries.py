"""Decides which requests are retried, when, and for how long."""

import random
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime

import httpx2

from distrain.backoff import doubled_s

_LATER = frozenset({429, 502, 503, 504})
UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
"""Errors after which the service cannot have received the request."""
# OpenSSL's X509_V_ERR_CERT_HAS_EXPIRED, _HOSTNAME_MISMATCH and _IP_ADDRESS_MISMATCH
_EXPIRED, _OTHER_HOST = 10, (62, 64)
_FOR_GOOD = (httpx2.LocalProtocolError, httpx2.UnsupportedProtocol)


@dataclass(frozen=True)
class Retries:
    """The limits of a client's retries.

    Attributes:
        for_s: Total time in seconds, from the first try on.
        first_s: Pause after the first try; it doubles with each try. `draw` shortens each pause by
            up to half.
        longest_s: The longest pause, unless the service requests a longer one (`Retry-After`).
        draw: Returns numbers between 0 and 1, so that clients do not retry at the same moment.
        most_tries: The largest number of tries; `None`: no limit but the time.
    """

    for_s: float = 120.0
    first_s: float = 0.25
    longest_s: float = 10.0
    draw: Callable[[], float] = random.random
    most_tries: int | None = None

    def pause_s(self, tries: int, asked_s: float = 0.0) -> float:
        """Return the seconds to wait after the try with the number `tries`.

        They are at least `asked_s`, the seconds that the service requested with `Retry-After`.

        >>> Retries(draw=lambda: 1.0).pause_s(3)
        1.0
        """
        own_s = doubled_s(self.first_s, tries - 1, self.longest_s)
        later_s = asked_s and asked_s + 0.5 * self.draw()  # spreads clients out
        return max(own_s * (0.5 + self.draw() / 2), later_s)


def retry_reason(answer: httpx2.Response) -> str:
    """Return why a request should be retried after this response; "" if it should not.

    It should after the statuses of `_LATER`. A GET should also after a 500 whose body is not JSON.
    """
    if answer.status_code in _LATER:
        return f"the service answered {answer.status_code}"
    # A server that is shutting down drops requests with a 500 that has no JSON body.
    dropped = answer.status_code == 500 and answer.request.method == "GET"
    return "the service answered 500" if dropped and json_of(answer) is None else ""


def is_permanent(error: BaseException | None) -> bool:
    """Return True if a retry cannot succeed, as with an invalid certificate."""
    return isinstance(error, _FOR_GOOD) or _certificate_error(error) is not None


def certificate_hint(error: BaseException | None, option: str) -> str:
    """Return a hint if a server's certificate was not accepted, "" for other errors.

    `option` is the setting, as the hint names it, of the file of the certificate authority.
    """
    found = _certificate_error(error)
    if found is None:
        return ""
    if found.verify_code == _EXPIRED:
        return "Renew the server's certificate, and restart the server."
    if found.verify_code in _OTHER_HOST:
        return "Use a name or address of the server that its certificate contains."
    return f"Name the file of the CA that signed the server's certificate with {option}."


def _certificate_error(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return error
        error = error.__cause__ or error.__context__
    return None


def json_of(answer: httpx2.Response) -> object:
    """Return a response's content as JSON values; `None` if it is not JSON."""
    try:
        return answer.json()
    except ValueError:
        return None


def retry_after_s(value: str) -> float:
    """Return the seconds of a `Retry-After` header, or until its date, at most a day.

    Returns 0 if the header is invalid or the date is past.

    >>> retry_after_s("7"), retry_after_s("Sun, 01 Mar 2020 12:00:30 GMT"), retry_after_s("-1")
    (7.0, 0.0, 0.0)
    >>> retry_after_s("Fri Jan  1 00:00:00 9998")  # a date without a zone is in UTC
    86400.0
    """
    if value.isdecimal():
        return float(min(int(value[:9]), 86_400))
    try:
        date = parsedate_to_datetime(value)
        date = date if date.tzinfo else date.replace(tzinfo=UTC)
        return min(max(date.timestamp() - time.time(), 0.0), 86_400.0)
    except (ValueError, OverflowError):
        return 0.0
