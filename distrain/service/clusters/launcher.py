"""The protocol of launchers: start a cluster, find it again, end it."""

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

Phase = Literal["absent", "waiting", "starting", "running", "failed"]
"""`waiting`: it stands in another queue, such as Slurm's. `failed`: its last start failed."""


@dataclass(frozen=True)
class Found:
    """The address of a cluster's scheduler."""

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

    Methods may wait for commands of the source, and are called from threads. They may be called by
    several processes at once, and a process may be killed inside any of them. They raise
    ClusterError where the source does not answer.
    """

    def find(self) -> Found | None:
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
