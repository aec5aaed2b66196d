"""The recorder, connections and launchers of a reconciler, for tests that give it others."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from distrain.jobs import JobView
from distrain.service.clusters import Found, Launcher, SchedulerClient
from distrain.service.values import Job


class Recorder(Protocol):
    """A writer of run directories, such as `distrain.service.recorder.Recorder`."""

    @property
    def collects_s(self) -> float:
        """The seconds for which views of a job are collected before they are written."""

    def begin(self, job: Job, spec: Mapping[str, Any], generation: int) -> None:
        """Make a submission's run directory."""

    def take(self, job: Job, view: JobView) -> None:
        """Record the news of a view."""

    def finish(self, job: Job, view: JobView) -> bool:
        """Record a last view; whether that is done."""

    def finish_late(self, ended: Sequence[tuple[Job, JobView]]) -> None:
        """Finish the records of ended jobs that no process has finished."""

    def attempts(self, job: Job) -> int:
        """The highest attempt in a run directory."""

    def release(self, job_id: str) -> None: ...

    def leave(self, cluster: str) -> None:
        """Forget a cluster's jobs, whose lease has gone to another process."""

    def close(self) -> None: ...


Connect = Callable[[str, Found], SchedulerClient]
"""A client of a cluster's scheduler, by the cluster's name and how it is reached."""

MakeLauncher = Callable[[str], Launcher]
"""The launcher of a cluster, by its name."""
