"""The leases of this process, its name as their owner, and their end by its own clock."""

import hashlib
import logging
import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from distrain.errors import DistrainError
from distrain.service.settings import Leases as Terms
from distrain.service.store.errors import LeaseLost
from distrain.service.store.store import Store
from distrain.service.values import Lease
from distrain.workers.cluster_file import ProcessId

log = logging.getLogger(__name__)

ASK_EVERY_S = 1.0


class OwnLeases:
    """Takes, renews and releases leases; those of an owner that `has_ended` are taken at once."""

    def __init__(
        self,
        store: Store,
        owner: str,
        clock: Callable[[], float] = time.monotonic,
        terms: Terms | None = None,
        has_ended: Callable[[str], bool] = lambda owner: False,
    ):
        self._has_ended = has_ended
        self._store, self._owner, self._clock = store, owner, clock
        self._terms = terms or Terms()
        self._lock = threading.Lock()
        self._held: dict[str, tuple[Lease, float]] = {}  # with the end of trust
        self._renewed_s: dict[str, float] = {}
        self._asked_s: dict[str, float] = {}

    def hold(self, name: str) -> Lease | None:
        """The lease, taken or renewed if need be; `None` while another has it."""
        lease = self.held(name)
        # It is for `renew_all` to prolong it, with the others; this is for when that comes late.
        late_s = (self._terms.renew_s + self._terms.ttl_s - self._terms.margin_s) / 2
        if lease is not None and self._clock() - self._renewed_s[name] < late_s:
            return lease
        return self._take(name)

    def hold_at_times(self, name: str) -> Lease | None:
        """The lease, asked for at most once a second while another process has it."""
        lease, now_s = self.held(name), self._clock()
        if lease is None and now_s - self._asked_s.get(name, -math.inf) >= ASK_EVERY_S:
            self._asked_s[name] = now_s
            lease = self.hold(name)
        return lease

    def held(self, name: str) -> Lease | None:
        """The lease if it may still be trusted."""
        with self._lock:
            lease, until_s = self._held.get(name, (None, 0.0))
        return lease if self._clock() < until_s else None

    def must_hold(self, name: str) -> Lease:
        """The lease; raises LeaseLost if it may not be trusted."""
        lease = self.held(name)
        if lease is None:
            raise LeaseLost("this process does not hold the lease", where={"lease": name})
        return lease

    def newer(self, name: str) -> Lease:
        """The lease under a newer generation; raises LeaseLost: another was faster."""
        before = self.must_hold(name)
        self._store.release(before)
        self._drop(name)
        lease = self._take(name)
        if lease is None or lease.generation <= before.generation:
            raise LeaseLost("another process took the lease", where={"lease": name})
        return lease

    def renew_all(self) -> None:
        """Renew all once one is due; a thread of its own calls this all the time."""
        with self._lock:
            held = [lease for lease, _ in self._held.values()]
            oldest_s = min((self._renewed_s[lease.name] for lease in held), default=math.inf)
        began_s = self._clock()
        if began_s - oldest_s < self._terms.renew_s:
            return
        try:
            renewed = self._store.renew(held, self._terms.ttl_s)
        except DistrainError as error:
            log.warning("no lease was renewed: %s", error)
            return
        for lease in renewed:
            self._keep(lease, began_s)
        kept = {lease.name for lease in renewed}
        for lease in held:
            if lease.name not in kept:
                self._drop(lease.name, lease.generation)

    def release_all(self) -> None:
        with self._lock:
            held = [lease for lease, _ in self._held.values()]
            self._held.clear()
        for lease in held:
            try:
                self._store.release(lease)
            except DistrainError as error:
                log.warning("lease %s runs out by itself: %s", lease.name, error)

    def _take(self, name: str) -> Lease | None:
        began_s = self._clock()
        lease = self._store.take_lease(name, self._owner, self._terms.ttl_s)
        if lease is None:
            lease = self._take_from_ended(name)
        if lease is None:
            self._drop(name)
            return None
        self._keep(lease, began_s)
        return lease

    def _take_from_ended(self, name: str) -> Lease | None:
        owner = self._store.lease_owner(name)
        if owner is None or not self._has_ended(owner):
            return None
        lease = self._store.take_lease(name, self._owner, self._terms.ttl_s, ended=owner)
        if lease is not None:
            log.info("lease %s: the process that had it has ended", name)
        return lease

    def _keep(self, lease: Lease, began_s: float) -> None:
        with self._lock:
            before = self._held.get(lease.name)
            if before is not None and before[0].generation > lease.generation:
                return
            self._held[lease.name] = (lease, began_s + self._terms.ttl_s - self._terms.margin_s)
            self._renewed_s[lease.name] = began_s

    def _drop(self, name: str, generation: int | None = None) -> None:
        with self._lock:
            held = self._held.get(name)
            if held is not None and generation in (None, held[0].generation):
                del self._held[name]


_HOST_CHARACTERS = 60


def owner_name() -> str:
    """A name of this process that no other process has had."""
    me = ProcessId.of(os.getpid())
    started = me.started_ticks if me is not None else 0
    host = socket.gethostname()[:_HOST_CHARACTERS]
    return ":".join((host, str(os.getpid()), str(started), _machine(), secrets.token_hex(6)))


def has_ended(owner: str) -> bool:
    """Whether the process of this name has surely ended: one of this machine and boot, gone now."""
    machine = _machine()
    match owner.rsplit(":", 4):
        case [_, pid_text, ticks_text, of, _] if pid_text.isdecimal() and ticks_text.isdecimal():
            pid, started_ticks = int(pid_text), int(ticks_text)
        case _:
            return False
    if not machine or of != machine or not pid:
        return False
    try:
        os.kill(pid, 0)
        found = ProcessId.seen(pid)  # `None` of one that nobody has waited for yet
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # as of a process of another user
        return False
    return found is None or found.started_ticks != started_ticks


def _machine() -> str:
    """This boot of this machine, and its namespace of process numbers; "" if unknown."""
    with suppress(OSError):
        me = ProcessId.of(os.getpid())
        if me is not None:
            seen = f"{me.boot_id} {me.host} {os.readlink('/proc/self/ns/pid')}"
            return hashlib.sha256(seen.encode()).hexdigest()[:12]
    return ""
