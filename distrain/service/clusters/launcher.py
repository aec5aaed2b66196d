"""What every launcher can do: start a cluster, find it again, end it."""

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

Phase = Literal["absent", "waiting", "starting", "running", "failed"]
"""`waiting`: it stands in another queue, such as Slurm's. `failed`: its last start failed."""


@dataclass(frozen=True)
class Found:
    """How a cluster's scheduler is reached."""

    url: str  # of its HTTP server
    token: str | None = None  # what that asks for; `None` where it asks for nothing

    def __repr__(self) -> str:
        return f"Found({self.url!r}, token={'***' if self.token else None})"


@dataclass(frozen=True)
class LauncherState:
    """How far a cluster is, with what is to be said about it in `detail`."""

    phase: Phase
    detail: str = ""


class Launcher(Protocol):
    """A place from which a cluster comes. A new one is a module here, and in `make_launcher`.

    Methods may wait for commands of the place, and are called from threads. They may be called by
    several processes at once, and a process may be killed inside any of them.
    """

    def find(self) -> Found | None:
        """The cluster if its scheduler can be asked, whoever started it; else `None`.

        Raises:
            ClusterError: The place does not answer, so that nothing is known.
        """

    def start(self, num_workers: int | None = None) -> None:
        """Have the cluster started, unless it runs or is about to; returns before it can be asked.

        Raises:
            ClusterError: It cannot be started now.
        """

    def stop(self) -> None:
        """End the cluster, also one that is about to start; nothing happens where there is none.

        Raises:
            ClusterError: It could not be ended.
        """

    def state(self) -> LauncherState:
        """How far it is; raises ClusterError: the place does not answer."""


@runtime_checkable
class Scalable(Launcher, Protocol):
    """A launcher whose cluster is always there, with as many workers as are wanted."""

    min_workers: int  # it keeps so many when nobody needs any
    max_workers: int  # it never asks for more

    def start(self, num_workers: int | None = None) -> None:
        """Have at least so many workers, within the bounds; never fewer than before."""

    def shrink(self) -> bool:
        """Have `min_workers`; whether there were more. Whoever calls knows that all are idle."""

    def check(self) -> None:
        """Try whether the number may be set, without an effect.

        Raises:
            ClusterError: It may not, or the place does not answer.
        """
