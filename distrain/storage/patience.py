"""Trying again what a storage that is away, or overloaded, may do another time."""

from __future__ import annotations

import logging
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from itertools import count
from typing import TypeVar

from distrain.errors import DistrainError, Unavailable
from distrain.storage.transient import may_pass

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 15.0

_LAST_TRY_S = 60.0
"""A try may itself last that long: libraries have timeouts and retries of their own."""

_LOOK_S = 0.25
"""How often somebody who pauses looks whether it should go on."""

_T = TypeVar("_T")

log = logging.getLogger("distrain.storage")

_this_thread = threading.local()

# By thread: until when it may wait, on the monotonic clock.
_waits: dict[int, float] = {}


def pause_s(number: int, key: str) -> float:
    """How long to wait after failure `number`, from 0.

    Pauses double up to `LONGEST_PAUSE_S`. Of each, between a half and all is waited, by a checksum
    of `key`: whoever reads other places comes back at other times, and the same always at the same.

    >>> [round(pause_s(number, "a"), 2) for number in (0, 1, 2, 20)]
    [0.25, 0.72, 1.92, 9.88]
    """
    whole_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(number, 16))
    return whole_s * (0.5 + zlib.crc32(f"{key} {number}".encode()) / 2**33)


def patiently(read: Callable[[], _T], where: Mapping[str, object], retry_s: float) -> _T:
    """Call `read` again, with growing pauses, as long as its errors are such as may pass.

    Args:
        read: Reads something; it leaves nothing behind when it fails. It must not call this itself.
        where: What it reads, for the log and the error: file, row group.
        retry_s: How long to try, from the first failure on; 0 tries once.

    Returns:
        What `read` returned.

    Raises:
        Unavailable: It still failed after that time, or this thread was told to stop.
        Exception: What `read` raised, if it is nothing that passes.
    """
    began_s = 0.0
    try:
        for number in count():
            try:
                return read()
            except Exception as error:
                if not may_pass(error):
                    raise
                now_s = time.monotonic()
                began_s = began_s or now_s
                left_s = began_s + retry_s - now_s
                if left_s <= 0 or _is_stopped():
                    raise _given_up(error, where, number + 1, now_s - began_s) from error
                next_s = min(pause_s(number, repr(where)), left_s)
                _tell(error, where, number + 1, next_s)
            _waits[threading.get_ident()] = began_s + retry_s + _LAST_TRY_S
            _pause(next_s)
    finally:
        _waits.pop(threading.get_ident(), None)
    raise AssertionError("unreachable")


def is_waiting() -> bool:
    """Whether some thread of this process waits for a storage and tries again.

    One whose time is over by far does not: it is stuck in a call.
    """
    now_s = time.monotonic()
    return any(until_s > now_s for until_s in list(_waits.values()))


def stop_when(is_over: Callable[[], bool]) -> None:
    """Have the calling thread give up waiting once `is_over` says so."""
    _this_thread.is_over = is_over


def _is_stopped() -> bool:
    is_over: Callable[[], bool] | None = getattr(_this_thread, "is_over", None)
    return is_over is not None and is_over()


def _pause(seconds: float) -> None:
    end_s = time.monotonic() + seconds
    while (left_s := end_s - time.monotonic()) > 0 and not _is_stopped():
        time.sleep(min(left_s, _LOOK_S))


def first_line(error: BaseException) -> str:
    """An error in a line."""
    text = error.message if isinstance(error, DistrainError) else str(error)
    return next(iter(text.splitlines()), "") or type(error).__name__


def _tell(error: Exception, where: Mapping[str, object], tries: int, next_s: float) -> None:
    places = ", ".join(f"{place} {value}" for place, value in where.items())
    message = "waiting for storage: %s (%s); try %d failed, the next in %.1f s"
    log.warning(message, first_line(error), places, tries, next_s)


def _given_up(
    error: Exception, where: Mapping[str, object], tries: int, waited_s: float
) -> Unavailable:
    told = "1 try" if tries == 1 else f"{tries} tries in {waited_s:.0f} s"
    return Unavailable(
        f"the storage does not answer ({told}): {first_line(error)}",
        where=where,
        hint="Check that its server and the network are up; data.retry_s says how long ranks wait.",
    )
