"""The repetition of requests: which, when, and for how long."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from distrain.client.errors import ServiceUnavailable
from distrain.client.transport import Call, Failed, Reply

_LEAST_READ_S = 1.0  # how long the last try is waited for where next to no time is left

_LATER = frozenset({429, 502, 503, 504})


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

    def pause_s(self, tries: int) -> float:
        """The pause after that many tries.

        >>> Retries(draw=lambda: 1.0).pause_s(3)
        1.0
        """
        return min(self.longest_s, self.first_s * 2.0 ** min(tries - 1, 30)) * (
            0.5 + self.draw() / 2
        )


def answered(
    call: Call,
    send: Callable[[Call], Reply | Failed],
    pause: Callable[[float, str], None],
    retries: Retries,
    address: str,
    keeps_cut: bool = False,
) -> Reply:
    """The answer to a request that is sent until there is one, or no time (ServiceUnavailable)."""
    began_s = time.monotonic()
    now_s, tries = began_s, 0
    while True:
        left_s = max(_LEAST_READ_S, began_s + retries.for_s - now_s)
        bounded = replace(call, read_s=min(call.read_s, left_s))
        reply = send(bounded)
        tries += 1
        why = _why_again(reply) or _why_dropped(reply, call)
        if isinstance(reply, Reply) and (
            not why or (keeps_cut and reply.is_good and reply.content)
        ):
            return reply
        failed = reply if isinstance(reply, Failed) else None
        may = call.repeats or (failed is not None and not failed.sent)
        pause_s = max(retries.pause_s(tries), _asked_s(reply, retries.draw()))
        now_s = time.monotonic()
        late = tries == retries.most_tries or now_s + pause_s - began_s > retries.for_s
        if not may or late or (failed and failed.for_good):
            if isinstance(reply, Reply) and not reply.cut:
                return reply
            raise _unavailable(call, address, why, tries, now_s - began_s, reply)
        pause(pause_s, f"{why}; again in {pause_s:.1f} s")


def _why_again(reply: Reply | Failed) -> str:
    """The reason for another try; "" if there is none."""
    if isinstance(reply, Failed):
        return reply.why
    if reply.cut:
        return reply.cut
    if reply.status in _LATER:
        return f"the service answered {reply.status}"
    return ""


def _why_dropped(reply: Reply | Failed, call: Call) -> str:
    """Why to repeat a question that an ending server dropped with an empty 500; or ""."""
    if isinstance(reply, Failed) or reply.status != 500 or call.method != "GET":
        return ""
    return "the service answered 500" if reply.document() is None else ""


def _asked_s(reply: Reply | Failed, draw: float) -> float:
    """The pause that the service asked for, and a little more, so that not all return at once."""
    if isinstance(reply, Failed):
        return 0.0
    seconds = retry_after_s(reply.headers.get("retry-after", ""), datetime.now(UTC))
    return seconds and seconds + 0.5 * draw


def retry_after_s(value: str, now: datetime) -> float:
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
    return max(0.0, (then - now).total_seconds())


def _unavailable(
    call: Call, address: str, why: str, tries: int, took_s: float, reply: Reply | Failed
) -> ServiceUnavailable:
    times = "once" if tries == 1 else f"{tries} times"
    hint = "Is it running, and is the address right? `distrain login ADDRESS` checks both."
    if not call.repeats and not (isinstance(reply, Failed) and not reply.sent):
        hint = "It may have been done: look before you repeat it."
    return ServiceUnavailable(
        f"the service gave no answer to {call.method} {call.path}: {why}",
        where={"server": address, "tried": f"{times} in {took_s:.0f} s"},
        hint=hint,
    )
