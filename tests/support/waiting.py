"""One way for tests to wait: for a condition, with a deadline that only a defect reaches."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DEADLINE_S = 120.0
_POLL_S = 0.02


def until(condition: Callable[[], T], what: str = "", within_s: float = DEADLINE_S) -> T:
    """Return the first true value of a condition, which is asked again and again.

    Args:
        condition: A function without arguments.
        what: What is waited for, for the message.
        within_s: The deadline, in seconds. Give one only if the default is too short.

    Raises:
        AssertionError: The condition was not true before the deadline.
    """
    deadline_s = time.monotonic() + within_s
    while not (value := condition()):
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not true within {within_s:g} s: {what or condition}")
        time.sleep(_POLL_S)
    return value
