"""What the loop needs of schedulers and run directories, so that tests may give it others."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from distrain.jobs import JobView
from distrain.service.clusters import Found, Launcher
from distrain.service.settings import Settings
from distrain.service.values import Job


class SeenJob(Protocol):
    """A job in a scheduler's answer."""

    @property
    def job_id(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def service(self) -> str | None: ...
    @property
    def first_attempt(self) -> int: ...
    @property
    def priority(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def rows_per_s(self) -> float | None: ...
    @property
    def loss(self) -> float | None: ...
    @property
    def auc(self) -> float | None: ...
    @property
    def eta_s(self) -> float | None: ...
    @property
    def view(self) -> JobView | None: ...
    @property
    def document(self) -> Mapping[str, Any]: ...


class Counts(Protocol):
    """A cluster's workers."""

    @property
    def total(self) -> int: ...
    @property
    def usable(self) -> int: ...
    @property
    def free(self) -> int: ...
    @property
    def gpus(self) -> int: ...


class Changes(Protocol):
    """A scheduler's answer."""

    @property
    def epoch(self) -> str: ...
    @property
    def revision(self) -> int: ...
    @property
    def more(self) -> bool: ...
    @property
    def jobs(self) -> Sequence[SeenJob]: ...
    @property
    def workers(self) -> Counts: ...


class Scheduler(Protocol):
    """One scheduler.

    A refusal is a `DistrainError` with a `code`; any other says that there was no answer.
    """

    def changes(self, since: int = 0, epoch: str | None = None) -> Changes: ...
    def put(
        self,
        job_id: str,
        spec: Mapping[str, Any],
        run_dir: str,
        *,
        first_attempt: int,
        epoch: str,
        generation: int,
        priority: int | None = None,
    ) -> object: ...
    def cancel(
        self, job_id: str, why: str = "", *, generation: int, grace_s: float | None = None
    ) -> None: ...
    def set_priority(self, job_id: str, priority: int, *, generation: int) -> None: ...
    def close(self) -> None: ...


class Recorder(Protocol):
    """Writes run directories."""

    def begin(self, job: Job, spec: Mapping[str, Any], generation: int) -> None: ...
    def take(self, job: Job, view: JobView) -> None: ...
    def finish(self, job: Job, view: JobView) -> bool: ...
    def attempts(self, job: Job) -> int: ...
    def release(self, job_id: str) -> None: ...
    def close(self) -> None: ...


Connect = Callable[[str, Found], Scheduler]
"""A client of a cluster's scheduler, by the cluster's name and how it is reached."""

MakeLauncher = Callable[[str, Settings, str], Launcher]
