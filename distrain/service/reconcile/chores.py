"""A reconciler's chores: publish events, renew leases, wake loops, prune."""

import logging
import threading
import time
from collections.abc import Callable, Mapping

from distrain.errors import DistrainError
from distrain.service.reconcile.holding import Leases
from distrain.service.store import LeaseLost, Store

PUBLISH_EVERY_S = 0.15
WATCH_EVERY_S = 0.2
RENEW_LOOK_S = 0.5
WEBHOOKS_EVERY_S = 0.3
PRUNE_EVERY_S = 3600.0
_AT_ONCE = 500

log = logging.getLogger(__name__)


def every(period_s: float, work: Callable[[], None], stop: threading.Event) -> None:
    """Do some work again and again until `stop` is set; a failure is tried again."""
    trouble = ""
    while not stop.wait(period_s):
        try:
            work()
            trouble = ""
        except DistrainError as error:
            if str(error) != trouble:
                log.warning("%s", error)
            trouble = str(error)
        except Exception:
            log.exception("a chore of the reconciler failed")


class Publisher:
    """Numbers events and moves them to where streams read them, if no other process does."""

    def __init__(self, store: Store, leases: Leases):
        self._store, self._leases = store, leases
        self._asked_s: float | None = None

    def __call__(self) -> None:
        lease = self._leases.held("publisher")
        if lease is None:
            now_s = time.monotonic()
            if self._asked_s is not None and now_s - self._asked_s < 1.0:
                return
            self._asked_s = now_s
            lease = self._leases.hold("publisher")
        if lease is None:
            return
        try:
            while self._store.publish(self._leases.must_hold("publisher"), _AT_ONCE) == _AT_ONCE:
                pass
        except LeaseLost:
            log.info("another process publishes events")


class Watcher:
    """Wakes a cluster's loop when a job of it was submitted, resumed, changed or cancelled."""

    def __init__(self, store: Store, wake: Mapping[str, Callable[[], None]]):
        self._store, self._wake = store, wake
        self._marks: dict[str, tuple[int, int]] = {}

    def __call__(self) -> None:
        marks = self._store.marks()
        changed = [name for name, mark in marks.items() if self._marks.get(name) != mark]
        self._marks = marks
        for name in changed:
            if name in self._wake:
                self._wake[name]()
