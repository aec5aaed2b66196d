"""The protocol of launchers, which start, find and end clusters; the one of fixed addresses."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from distrain.errors import ClusterError
from distrain.service.settings import ClusterProfile
from distrain.workers.secrets import TOKEN_VARIABLE

Phase = Literal["absent", "waiting", "starting", "running", "failed"]
"""`waiting`: it stands in another queue, such as Slurm's. `failed`: its last start failed."""


@dataclass(frozen=True)
class SchedulerAddress:
    url: str  # of its HTTP server
    token: str | None = None  # what that asks for; `None` where it asks for nothing

    def __repr__(self) -> str:
        return f"Found({self.url!r}, token={'***' if self.token else None})"


@dataclass(frozen=True)
class LauncherState:
    """The progress of a cluster, with a sentence for people in `detail`."""

    phase: Phase
    detail: str = ""


class Launcher(Protocol):
    """The source of a cluster.

    Methods may wait for it, in several processes at once, any of which may be killed. They raise
    ClusterError where it does not answer.
    """

    def find(self) -> SchedulerAddress | None:
        """The cluster if its scheduler can be asked, whoever started it; else `None`."""

    def start(self, num_workers: int | None = None) -> None:
        """Start the cluster, unless it runs or is about to; returns before it can be asked."""

    def stop(self) -> None:
        """End the cluster, also a starting one; without a cluster nothing happens."""

    def state(self) -> LauncherState: ...


@runtime_checkable
class Scalable(Launcher, Protocol):
    """A launcher whose cluster always runs, and whose number of workers the service sets."""

    min_workers: int  # it keeps so many when nobody needs any
    max_workers: int  # it never asks for more

    def start(self, num_workers: int | None = None) -> None:
        """Have at least so many workers, within the bounds; never fewer than before."""

    def shrink(self) -> bool:
        """Have `min_workers`; whether there were more. The caller knows that all are idle."""

    def check(self) -> None:
        """Try to set the number, without an effect."""


_WITHHELD = ("DISTRAIN_SERVE_", "PG", "POSTGRES", "DATABASE_URL", TOKEN_VARIABLE)
"""Beginnings of names. Clusters run code of users' specs: they must not reach the database."""


def child_environment(environment: Mapping[str, str], profile: ClusterProfile) -> dict[str, str]:
    """This process's environment as a started cluster may see it, and what its profile adds.

    >>> child_environment({"PATH": "/bin", "PGPASSWORD": "x"}, ClusterProfile(kind="local"))
    {'PATH': '/bin'}
    """
    kept = {name: value for name, value in environment.items() if not name.startswith(_WITHHELD)}
    if profile.model_packages:
        kept["DISTRAIN_MODEL_PACKAGES"] = ",".join(profile.model_packages)
    return {**kept, **profile.environment}


class AddressLauncher:
    """A cluster at the address of the configuration, which the service neither starts nor ends."""

    def __init__(self, name: str, profile: ClusterProfile):
        self._name, self._profile = name, profile

    def find(self) -> SchedulerAddress | None:
        profile = self._profile
        assert profile.url is not None  # settings see to it
        if profile.token_file is None:
            return SchedulerAddress(profile.url)
        try:
            # ASCII: a header holds nothing else
            return SchedulerAddress(
                profile.url, profile.token_file.read_text(encoding="ascii").strip()
            )
        except (OSError, ValueError) as error:
            raise ClusterError(
                f"cannot read the token of the cluster {self._name}: {error}",
                where={"token_file": str(profile.token_file)},
                hint="It holds what DISTRAIN_DASHBOARD_TOKEN is to the scheduler, and is readable "
                "for the service.",
            ) from error

    def start(self, num_workers: int | None = None) -> None:
        """Nothing: it is started elsewhere."""

    def stop(self) -> None:
        """Nothing: it is ended elsewhere."""

    def state(self) -> LauncherState:
        return LauncherState("running", "started elsewhere")
