"""Marks a loader's own threads, which must not wait for a loader's threads to end."""

from __future__ import annotations

import threading

_this_thread = threading.local()


def mark_own_thread() -> None:
    _this_thread.is_own = True


def in_own_thread() -> bool:
    """Return True if the calling thread is a loader's, which must not wait for loader threads."""
    return getattr(_this_thread, "is_own", False)
