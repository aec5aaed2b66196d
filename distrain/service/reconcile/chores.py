"""A reconciler's chores: publish events, renew leases, wake loops, prune."""

import logging
import threading
from collections.abc import Callable, Mapping

from distrain.errors import DistrainError
from distrain.service.reconcile.holding import OwnLeases
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


def publish(store: Store, leases: OwnLeases) -> None:
    """Number events and move them to where streams read them, if no other process does."""
    if leases.hold_at_times("publisher") is None:
        return
    try:
        while store.publish(leases.must_hold("publisher"), _AT_ONCE) == _AT_ONCE:
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
