"""Marks the threads that loaders start: these threads must not join a loader's threads."""

from __future__ import annotations

import threading

_this_thread = threading.local()


def mark_own_thread() -> None:
    _this_thread.is_own = True


def in_own_thread() -> bool:
    """Return True if a loader started the calling thread.

    Such a thread must not join a loader's threads: it could wait for itself.
    """
    return getattr(_this_thread, "is_own", False)
