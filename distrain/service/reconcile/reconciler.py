"""A reconciler's threads: a loop for each cluster, and tasks that publish, wake and prune."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

from distrain.errors import DistrainError
from distrain.service.clusters.choosing import make_launcher
from distrain.service.clusters.launcher import Launcher, SchedulerAddress
from distrain.service.clusters.scheduler_client import SchedulerClient
from distrain.service.decisions.wait_reasons import not_configured
from distrain.service.reconcile.cluster_connection import Contact
from distrain.service.reconcile.cluster_loop import ClusterLoop
from distrain.service.reconcile.cluster_world import ClusterWorld
from distrain.service.reconcile.run_folders import RunFolders
from distrain.service.settings import Settings
from distrain.service.store.store import Store

PUBLISH_EVERY_S = 0.15
WATCH_EVERY_S = 0.2
PRUNE_EVERY_S = 3600.0
_AT_ONCE = 500


def every(period_s: float, work: Callable[[], None], stop: threading.Event) -> None:
    """Call `work` every `period_s` seconds until `stop` is set; errors are logged.

    The first call is after the first period. A `DistrainError` like that of the previous call is
    not logged again.
    """
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
            log.exception("a periodic task of the reconciler failed")


def publish(store: Store) -> None:
    """Give numbers to new events, so that streams send them; only in the publisher.

    One process of the service is the publisher: it holds the lock `publisher`.
    """
    if store.locks.hold("publisher") is None:
        return
    while store.publish(_AT_ONCE) == _AT_ONCE:
        pass


class Watcher:
    """When called, wakes the loops of clusters whose jobs changed since the last call.

    `Store.marks` shows the changes: a job was submitted, resumed or cancelled, or a queued one was
    changed. The first call wakes all clusters with such jobs.
    """

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


END_WITHIN_S = 10.0  # timeout for running calls when the process ends

log = logging.getLogger(__name__)


class Reconciler:
    """Synchronises clusters with the jobs in the database, if this process gets their locks.

    Only tests pass `folders` and `launcher`.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        *,
        folders: RunFolders | None = None,
        launcher: Callable[[str], Launcher] | None = None,
    ):
        self._settings, self._store = settings, store
        folders = folders or RunFolders(settings, store.service_id)
        launcher = launcher or (lambda name: make_launcher(name, settings))
        self.loops = {
            name: ClusterLoop(
                name,
                store,
                ClusterWorld(name, store, folders),
                Contact(name, profile, launcher(name), self._connect, time.monotonic),
                self._num_jobs,
            )
            for name, profile in settings.clusters.items()
        }

    def run(self, stop: threading.Event) -> None:
        """Reconcile until `stop` is set; returns only then.

        Several processes may do this; each cluster is reconciled by the process that has its lock.
        """
        end = threading.Event()
        for name, num_jobs in self._store.stranded_counts(self.loops).items():
            log.warning("%s, and has %d jobs that have not ended", not_configured(name), num_jobs)
        threads = [self._thread(f"cluster-{n}", loop.run, end) for n, loop in self.loops.items()]
        threads += [
            self._thread(name, partial(every, period_s, work), end)
            for name, period_s, work in self._chores(end)
        ]
        for thread in threads:
            thread.start()
        try:
            stop.wait()
        finally:
            end.set()
            for loop in self.loops.values():
                loop.wake.set()
            until_s = time.monotonic() + END_WITHIN_S
            for thread in threads:
                thread.join(max(0.0, until_s - time.monotonic()))
            hung = [thread.name for thread in threads if thread.is_alive()]
            if hung:
                log.warning(
                    "these threads did not end within %g s: %s", END_WITHIN_S, ", ".join(hung)
                )
            self._store.locks.release()

    def _chores(self, end: threading.Event) -> list[tuple[str, float, Callable[[], None]]]:
        wake = {name: loop.wake.set for name, loop in self.loops.items()}
        return [
            ("publisher", PUBLISH_EVERY_S, partial(publish, self._store)),
            ("watcher", WATCH_EVERY_S, Watcher(self._store, wake)),
            ("pruner", PRUNE_EVERY_S, partial(self._prune, end)),
        ]

    def _thread(
        self, name: str, work: Callable[[threading.Event], None], end: threading.Event
    ) -> threading.Thread:
        # A daemon thread: a hanging filesystem call must not keep the process alive.
        return threading.Thread(target=work, args=(end,), name=name, daemon=True)

    def _num_jobs(self) -> int:
        return sum(loop.num_jobs for loop in self.loops.values())

    def _connect(self, name: str, found: SchedulerAddress) -> SchedulerClient:
        profile, us = self._settings.clusters[name], self._store.service_id
        url = self._settings.listen.link_url(same_machine=profile.is_started)
        return SchedulerClient(found.url, found.token, profile.tls, service=us, public_url=url)

    def _prune(self, end: threading.Event) -> None:
        """Delete expired rows, if this process is the publisher.

        One process of the service is the publisher: it holds the lock `publisher`; other processes
        do nothing. `end` stops the deletion early.
        """
        if self._store.locks.since("publisher") is None:
            return
        gone = self._store.prune(self._settings.retention, must_stop=end.is_set)
        if any(gone.values()):
            log.info("pruned %s", {name: count for name, count in gone.items() if count})
