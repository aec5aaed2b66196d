"""Delivers events to webhooks: in order to each, at least once, some webhooks at a time.

A webhook's row has a cursor, which moves when the receiver has answered: a process that is killed
in between leaves the event to be sent again, with the same id. One process delivers, under a lease.
"""

import json
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from distrain.errors import DistrainError
from distrain.service.access.rules import Action, role_allows
from distrain.service.decide.api_values import event_document
from distrain.service.settings import Settings
from distrain.service.store.auditing import Webhook
from distrain.service.store.errors import LeaseLost
from distrain.service.store.store import Store
from distrain.service.values import Event, Lease, Principal
from distrain.service.webhooks.posting import Posted, send, webhook_secret

LEASE = "webhooks"
GIVE_UP_S = 3 * 86400.0
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 3600.0
_PAGE = 200
_TURN_S = 10.0  # after this long a webhook waits for its next turn
_NOTE_EVERY_S = 5.0
_THREADS = 8

log = logging.getLogger(__name__)


class HoldsLeases(Protocol):
    def hold_at_times(self, name: str) -> Lease | None: ...

    def held(self, name: str) -> Lease | None: ...


def pause_s(failures: int) -> float:
    """The pause after so many failures in a row.

    >>> [pause_s(n) for n in (1, 2, 5, 40)]
    [1.0, 2.0, 16.0, 3600.0]
    """
    return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(failures - 1, 20))


def event_id(event: Event) -> str:
    """An id that stays when the event is sent again; its time tells apart a restore's numbers."""
    return f"{event.seq}-{event.at_s * 1000:.0f}"


def body_of(hook: Webhook, kind: str, told_id: str, data: Any) -> bytes:
    document = {"id": told_id, "kind": kind, "webhook": hook.id, "data": data}
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()


class Deliverer:
    """Looks for webhooks with undelivered events, and delivers them in threads."""

    def __init__(
        self, store: Store, settings: Settings, key: Callable[[], bytes], leases: HoldsLeases
    ):
        self._store, self._settings, self._key, self._leases = store, settings, key, leases
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._busy: set[str] = set()
        # Events that a webhook does not want are passed over here; rows follow now and then.
        self._passed: dict[str, int] = {}
        self._noted_s: dict[str, float] = {}
        self._due: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def __call__(self) -> None:
        """Look once; called again and again by one thread."""
        hooks = [hook for hook in self._store.webhooks() if hook.disabled_at_s is None]
        if not hooks or self._leases.hold_at_times(LEASE) is None:
            with self._lock:
                self._passed.clear()
            return
        now_s, last = self._store.now_s(), self._store.last_seq()
        for hook in hooks:
            waits_s = (hook.next_at_s or 0.0) - now_s
            # Longer than any pause: the clock was put back.
            if not 0 < waits_s <= _LONGEST_PAUSE_S and self._has_news(hook, last):
                self._hand_out(hook.id)

    def close(self, within_s: float = 6.0) -> None:
        """End the threads; one that waits for a receiver is left behind."""
        self._ending.set()
        for _ in self._threads:
            self._due.put(None)
        until_s = time.monotonic() + within_s
        for thread in self._threads:
            thread.join(max(0.0, until_s - time.monotonic()))

    def _has_news(self, hook: Webhook, last: int) -> bool:
        passed = self._passed.get(hook.id, 0)
        noted_s = self._noted_s.get(hook.id, 0.0)
        late_note = passed > hook.cursor and time.monotonic() - noted_s >= _NOTE_EVERY_S
        return max(hook.cursor, passed) < last or late_note

    def _hand_out(self, hook_id: str) -> None:
        if self._ending.is_set():
            return
        with self._lock:
            if hook_id in self._busy:
                return
            self._busy.add(hook_id)
            busy = len(self._busy)
        if len(self._threads) < min(busy, _THREADS):
            # Daemons: a name that is not resolved does not keep the process.
            name = f"webhooks-{len(self._threads)}"
            self._threads.append(threading.Thread(target=self._work, name=name, daemon=True))
            self._threads[-1].start()
        self._due.put(hook_id)

    def _work(self) -> None:
        while (hook_id := self._due.get()) is not None:
            try:
                if not self._ending.is_set():
                    self._turn(hook_id)
            except LeaseLost:
                log.info("another process delivers to webhooks")
            except DistrainError as error:
                log.warning("webhook %s waits: %s", hook_id, error)
            except Exception:
                log.exception("webhook %s waits", hook_id)
            finally:
                with self._lock:
                    self._busy.discard(hook_id)

    def _turn(self, hook_id: str) -> None:
        hook = self._store.webhook(hook_id)  # anew: who handed it out may have read it long ago
        until_s = time.monotonic() + _TURN_S
        cursor = 0 if hook is None else max(hook.cursor, self._passed.get(hook_id, 0))
        while hook is not None and time.monotonic() < until_s:
            events = self._store.events_after(cursor, _PAGE)
            if events and events[0].seq != cursor + 1:
                self._give_up(hook, cursor, "events that it was not told were pruned")
                return
            for event in events:
                if self._wants(hook, event):
                    hook = self._tell(hook, event)
                    if hook is None:
                        return
                cursor = event.seq
                if time.monotonic() >= until_s or self._ending.is_set():
                    break
            if len(events) < _PAGE:
                break
        if hook is not None:
            self._note_passed(hook, cursor)

    def _wants(self, hook: Webhook, event: Event) -> bool:
        if event.project != hook.project or (hook.kinds and event.kind not in hook.kinds):
            return False
        is_admin, roles = self._store.principal(hook.owner)
        owner = Principal(hook.owner, is_admin or hook.owner in self._settings.admins, roles)
        return role_allows(owner, Action.SEE_JOB, event.project, event.owner)

    def _tell(self, hook: Webhook, event: Event) -> Webhook | None:
        """Deliver an event; `None`: not now, or the webhook is gone."""
        now = self._store.webhook(hook.id)
        if now is None or self._leases.held(LEASE) is None:
            return None
        told_id = event_id(event)
        posted = send(
            hook.url,
            webhook_secret(self._key(), hook.id),
            told_id,
            body_of(hook, event.kind, told_id, event_document(event)),
            allow_private=self._settings.webhooks.allow_private,
        )
        if posted.error is not None:
            self._note_failure(now, event.seq - 1, posted)
            return None
        self._move(hook.id, event.seq)
        return now

    def _note_failure(self, hook: Webhook, cursor: int, posted: Posted) -> None:
        now_s = self._store.now_s()
        since_s = hook.failing_since_s or now_s
        if now_s - since_s >= GIVE_UP_S:
            self._give_up(hook, cursor, f"it failed for 3 days: {posted.error}")
            return
        failures = hook.failures + 1
        self._move(
            hook.id,
            cursor,
            failures=failures,
            next_at_s=now_s + pause_s(failures),
            failing_since_s=since_s,
            error=posted.error,
        )

    def _give_up(self, hook: Webhook, cursor: int, why: str) -> None:
        log.warning("webhook %s is told nothing any more: %s", hook.id, why)
        self._move(
            hook.id,
            cursor,
            failures=hook.failures,
            failing_since_s=hook.failing_since_s,
            disabled_at_s=self._store.now_s(),
            error=why,
        )

    def _note_passed(self, hook: Webhook, cursor: int) -> None:
        now = self._store.webhook(hook.id)
        late = time.monotonic() - self._noted_s.get(hook.id, 0.0) >= _NOTE_EVERY_S
        if now is None or now.cursor >= cursor:
            return
        if late:
            self._move(hook.id, cursor)
        elif self._leases.held(LEASE) is not None:
            with self._lock:
                self._passed[hook.id] = cursor

    def _move(self, hook_id: str, cursor: int, **columns: Any) -> None:
        lease = self._leases.held(LEASE)
        if lease is None:
            raise LeaseLost("this process does not hold the lease", where={"lease": LEASE})
        self._store.move_webhook(hook_id, cursor=cursor, lease=lease, **columns)
        with self._lock:
            self._passed[hook_id] = cursor
            self._noted_s[hook_id] = time.monotonic()
