"""The contact to a cluster's scheduler: starts it when jobs wait, ends it when it is idle."""

import logging
from collections.abc import Callable

from distrain.errors import DistrainError
from distrain.service.clusters import Found, Launcher, Scalable, SchedulerClient
from distrain.service.reconcile.scaling import Scaling
from distrain.service.settings import ClusterProfile

START_EVERY_S = 10.0

Connect = Callable[[str, Found], SchedulerClient]
"""A client of a cluster's scheduler, by the cluster's name and its address."""

log = logging.getLogger(__name__)


class Contact:
    def __init__(
        self,
        name: str,
        profile: ClusterProfile,
        launcher: Launcher,
        connect: Connect,
        clock: Callable[[], float],
    ):
        self._name, self._profile = name, profile
        self._launcher, self._connect, self._clock = launcher, connect, clock
        self._found: Found | None = None
        self._started_s: float | None = None
        self._idle_since_s: float | None = None
        self.client: SchedulerClient | None = None
        self.trouble = ""  # why there is no client, in words
        self.starting = False
        self.scaling: Scaling | None = None  # where the service sets the number of workers
        self.most_workers: int | None = None
        if isinstance(launcher, Scalable):
            self.scaling = Scaling(name, launcher, profile.idle_stop_s, clock)
            self.most_workers = launcher.max_workers

    def look(self, *, is_needed: bool) -> None:
        try:
            found = self._launcher.find()
            if found is None:
                self._look_at_launcher(is_needed)
            elif self.scaling is None and self._is_idle_too_long(is_needed):
                self._launcher.stop()
                found, self.trouble = None, "it was idle and has been stopped"
            self._use(found)
        except DistrainError as error:
            self.starting = False
            if str(error) != self.trouble:
                log.warning("cluster %s: %s", self._name, error)
            self.trouble = str(error)

    def close(self) -> None:
        self._use(None)

    def _use(self, found: Found | None) -> None:
        if found == self._found:
            return
        if self.client is not None:
            self.client.close()
        self.client = self._found = None  # also if the new one cannot be made
        self.client = None if found is None else self._connect(self._name, found)
        self._found = found
        if found is not None:
            self.starting, self.trouble = False, ""

    def _look_at_launcher(self, is_needed: bool) -> None:
        now_s = self._clock()
        recent = self._started_s is not None and now_s - self._started_s < START_EVERY_S
        if is_needed and not recent and self._profile.traits.is_started:
            self._started_s = now_s
            self._launcher.start(self._profile.num_workers)
        state = self._launcher.state()
        self.starting = state.phase in ("waiting", "starting")
        self.trouble = state.detail or f"it is {state.phase}"

    def _is_idle_too_long(self, is_needed: bool) -> bool:
        most_s = self._profile.idle_stop_s
        if is_needed or most_s is None or not self._profile.traits.is_started:
            self._idle_since_s = None
            return False
        if self._idle_since_s is None:
            self._idle_since_s = self._clock()
        return self._clock() - self._idle_since_s >= most_s
