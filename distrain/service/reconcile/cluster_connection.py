"""Connects to a cluster's scheduler, starts and stops it, and scales its workers."""

import logging
from collections.abc import Callable

from distrain.errors import DistrainError
from distrain.service.clusters.launcher import Launcher, Scalable, SchedulerAddress
from distrain.service.clusters.scheduler_client import SchedulerClient
from distrain.service.settings import ClusterProfile

log = logging.getLogger(__name__)

ASK_AGAIN_S = 10.0  # between requests for missing workers, also after a failed one
LOOK_AT_IDLE_S = 60.0  # between tries to scale down an idle cluster, which others may scale up


class Scaling:
    """Sets the number of a cluster's workers through its launcher.

    `idle_stop_s` is the idle time after which it scales down; `None`: never.
    """

    def __init__(
        self, name: str, launcher: Scalable, idle_stop_s: float | None, clock: Callable[[], float]
    ):
        self._name, self._launcher, self._clock = name, launcher, clock
        self._min_workers, self._idle_stop_s = launcher.min_workers, idle_stop_s
        self._asked = 0
        self._grow_again_s = self._shrink_again_s = 0.0
        self._idle_since_s: float | None = None
        self.words = ""  # why requested workers have not started

    def look(self, wanted: int, *, there: int | None, in_use: int | None) -> None:
        """Request `wanted` workers if there are fewer, or scale down an idle cluster.

        At least the launcher's `min_workers` are requested. `there` is the number of workers, and
        `in_use` that of workers with a rank; both are `None` if the scheduler does not answer.
        Returns within seconds. Sets `words`, the state of the scaling as text; a `DistrainError` is
        not raised, but becomes this text.

        A job may start on workers that are stopping; their ranks are preempted, and start again.
        """
        now_s = self._clock()
        is_idle = wanted == 0 and in_use == 0
        if not is_idle:
            self._idle_since_s = None
        elif self._idle_since_s is None:
            self._idle_since_s = now_s
        try:
            if is_idle:
                self._shrink(now_s)
            self._grow(max(wanted, self._min_workers), there or 0, now_s)
        except DistrainError as error:
            if error.message != self.words:
                log.warning("cluster %s: %s", self._name, error)
            self.words = error.message
            self._grow_again_s = self._shrink_again_s = self._clock() + ASK_AGAIN_S

    def _grow(self, wanted: int, there: int, now_s: float) -> None:
        if there >= wanted:
            self._asked, self.words = wanted, ""
            return
        if wanted <= self._asked and now_s < self._grow_again_s:
            return
        self._asked, self._grow_again_s = wanted, now_s + ASK_AGAIN_S
        self._launcher.grow(wanted)
        self.words = self._launcher.state().detail

    def _shrink(self, now_s: float) -> None:
        idle_s = now_s - (now_s if self._idle_since_s is None else self._idle_since_s)
        if self._idle_stop_s is None or idle_s < self._idle_stop_s or now_s < self._shrink_again_s:
            return
        self._shrink_again_s = now_s + LOOK_AT_IDLE_S
        self._asked = 0
        self._launcher.shrink()


START_EVERY_S = 10.0

Connect = Callable[[str, SchedulerAddress], SchedulerClient]
"""Makes a scheduler client from the cluster's name and the scheduler's address."""


class Contact:
    """The connection to a cluster's scheduler; starts the cluster and stops it when it is idle.

    It does so only for clusters of kinds that the service starts. A cluster whose workers the
    service scales (`scaling`) is not stopped; see `look`.
    """

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
        self._found: SchedulerAddress | None = None
        self._started_s: float | None = None
        self._idle_since_s: float | None = None
        self.client: SchedulerClient | None = None
        self.trouble = ""  # why there is no client, as text
        self.starting = False
        self.scaling: Scaling | None = None  # if the service sets the number of workers
        self.most_workers: int | None = None
        if isinstance(launcher, Scalable):
            self.scaling = Scaling(name, launcher, profile.idle_stop_s, clock)
            self.most_workers = launcher.max_workers

    def look(self, *, is_needed: bool) -> None:
        """Find the scheduler, and set `client`, `starting` and `trouble`.

        Starts the cluster if it `is_needed` and the service starts clusters of its kind; stops it
        if it was not needed for `idle_stop_s`. If the service sets the number of workers
        (`scaling`), the cluster is never stopped here; `Scaling.look` ends idle workers. A
        `DistrainError` is not raised, but becomes `trouble`.
        """
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

    @property
    def url(self) -> str | None:
        """The scheduler's HTTP address; `None` if it is not known now."""
        return self._found.url if self._found else None

    def close(self) -> None:
        self._use(None)

    def _use(self, found: SchedulerAddress | None) -> None:
        if found == self._found:
            return
        if self.client is not None:
            self.client.close()
        self.client = self._found = None  # even if the new one cannot be created
        self.client = None if found is None else self._connect(self._name, found)
        self._found = found
        if found is not None:
            self.starting, self.trouble = False, ""

    def _look_at_launcher(self, is_needed: bool) -> None:
        now_s = self._clock()
        recent = self._started_s is not None and now_s - self._started_s < START_EVERY_S
        if is_needed and not recent:
            self._started_s = now_s
            self._launcher.start()
        state = self._launcher.state()
        self.starting = state.phase == "starting"
        self.trouble = state.detail or f"it is {state.phase}"

    def _is_idle_too_long(self, is_needed: bool) -> bool:
        most_s = self._profile.idle_stop_s
        if is_needed or most_s is None or not self._profile.is_started:
            self._idle_since_s = None
            return False
        if self._idle_since_s is None:
            self._idle_since_s = self._clock()
        return self._clock() - self._idle_since_s >= most_s
