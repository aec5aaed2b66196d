"""One way for tests to wait: for a condition, with a deadline that only a defect reaches."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DEADLINE_S = 120.0
_SHORTEST_S, _LONGEST_S = 0.02, 0.25  # between two questions


def until(
    condition: Callable[[], T], what: str | Callable[[], str] = "", within_s: float = DEADLINE_S
) -> T:
    """Return the first true value of a condition, which is asked again and again.

    Args:
        condition: A function without arguments.
        what: What is waited for, for the message; a function is called for it at the deadline.
        within_s: The deadline, in seconds. Give one only if the default is too short.

    Raises:
        AssertionError: The condition was not true before the deadline.
    """
    begun_s = time.monotonic()
    while not (value := condition()):
        waited_s = time.monotonic() - begun_s
        if waited_s > within_s:
            told = what() if callable(what) else what
            raise AssertionError(f"not true within {within_s:g} s: {told or condition}")
        # Who waits long asks rarely: the processors have work to do.
        time.sleep(min(max(_SHORTEST_S, waited_s / 20), _LONGEST_S))
    return value
