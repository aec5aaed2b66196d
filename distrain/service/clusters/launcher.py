"""The protocol of launchers, which start, find and stop clusters, and `AddressLauncher`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from distrain.errors import ClusterError
from distrain.service.settings import ClusterProfile
from distrain.workers.secrets import TOKEN_VARIABLE

Phase = Literal["absent", "starting", "running", "failed"]
"""`failed`: the last start failed."""


@dataclass(frozen=True)
class SchedulerAddress:
    url: str  # of its HTTP server
    # the token that the server requires; `None`: none
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class LauncherState:
    """The phase of a cluster's start, with an explanation for people in `detail`."""

    phase: Phase
    detail: str = ""


class Launcher(Protocol):
    """Starts, finds and stops a cluster.

    Methods may block. Several processes may call them at once, and may be killed in between. The
    methods raise ClusterError if the cluster, or the system that runs it, does not answer.
    """

    def find(self) -> SchedulerAddress | None:
        """Return the scheduler's address; `None` if there is none yet.

        It is also found if another process started the cluster. The scheduler is not contacted, so
        it may not answer.
        """

    def start(self) -> None:
        """Start the cluster, unless it runs or is starting; return before its scheduler answers."""

    def stop(self) -> None:
        """Stop the cluster, also while it is starting; do nothing if there is none."""

    def state(self) -> LauncherState: ...


@runtime_checkable
class Scalable(Launcher, Protocol):
    """A launcher whose cluster always runs, and whose number of workers the service sets."""

    min_workers: int  # the number of workers of an idle cluster
    max_workers: int  # the largest number of workers

    def grow(self, num_workers: int) -> None:
        """Request at least `num_workers` workers, within the profile's bounds.

        Their number is never reduced.
        """

    def shrink(self) -> None:
        """Reduce the number of workers to the profile's `min_workers`.

        Call it only while all workers are idle.
        """

    def check(self) -> None:
        """Check that the service may set the number of workers; raises ClusterError if it may not.

        The number is not changed.
        """


_WITHHELD = ("DISTRAIN_SERVE_", "PG", "POSTGRES", "DATABASE_URL", TOKEN_VARIABLE)
"""Prefixes of variables hidden from clusters, whose user code must not reach the database."""


def child_environment(environment: Mapping[str, str], profile: ClusterProfile) -> dict[str, str]:
    """Return a cluster's environment: without `_WITHHELD` variables, with those of its profile.

    >>> child_environment({"PATH": "/bin", "PGPASSWORD": "x"}, ClusterProfile(kind="local"))
    {'PATH': '/bin'}
    """
    kept = {name: value for name, value in environment.items() if not name.startswith(_WITHHELD)}
    if profile.model_packages:
        kept["DISTRAIN_MODEL_PACKAGES"] = ",".join(profile.model_packages)
    return {**kept, **profile.environment}


class AddressLauncher:
    """A cluster at a configured address, which the service neither starts nor ends."""

    def __init__(self, name: str, profile: ClusterProfile):
        self._name, self._profile = name, profile

    def find(self) -> SchedulerAddress | None:
        profile = self._profile
        assert profile.url is not None  # the settings ensure it
        if profile.token_file is None:
            return SchedulerAddress(profile.url)
        try:
            # headers can only contain ASCII
            return SchedulerAddress(
                profile.url, profile.token_file.read_text(encoding="ascii").strip()
            )
        except (OSError, ValueError) as error:
            raise ClusterError(
                f"cannot read the token of the cluster {self._name}: {error}",
                where={"token_file": str(profile.token_file)},
                hint="It must contain the value of the scheduler's DISTRAIN_DASHBOARD_TOKEN, and "
                "be readable by the service.",
            ) from error

    def start(self) -> None:
        """Do nothing: the cluster is started elsewhere."""

    def stop(self) -> None:
        """Do nothing: the cluster is ended elsewhere."""

    def state(self) -> LauncherState:
        return LauncherState("running", "started elsewhere")
