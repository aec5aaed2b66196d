"""What the loop needs of those who write run directories, so that tests may give it another."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from distrain.jobs import JobView
from distrain.service.clusters import Found, Launcher, SchedulerClient
from distrain.service.values import Job


class Recorder(Protocol):
    """Writes run directories; `distrain.service.recorder.Recorder` is one."""

    @property
    def collects_s(self) -> float:
        """How long views of a job are collected before they are written, in seconds."""

    def begin(self, job: Job, spec: Mapping[str, Any], generation: int) -> None:
        """Make a submission's run directory."""

    def take(self, job: Job, view: JobView) -> None:
        """Record what is new in a view."""

    def finish(self, job: Job, view: JobView) -> bool:
        """Record a last view; whether that is done."""

    def finish_late(self, ended: Sequence[tuple[Job, JobView]]) -> None:
        """Finish what no process has finished of jobs that have ended."""

    def attempts(self, job: Job) -> int:
        """The highest attempt in a run directory."""

    def release(self, job_id: str) -> None:
        """Forget a job."""

    def leave(self, cluster: str) -> None:
        """Forget a cluster's jobs, whose lease has gone to another process."""

    def close(self) -> None:
        """Write what waits."""


Connect = Callable[[str, Found], SchedulerClient]
"""A client of a cluster's scheduler, by the cluster's name and how it is reached."""

MakeLauncher = Callable[[str], Launcher]
"""The launcher of a cluster, by its name."""
