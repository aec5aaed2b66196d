"""What a scheduler answers, as values. Read tolerantly: it may be of another version. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from distrain.jobs import JobView

Value = TypeVar("Value")


@dataclass(frozen=True)
class SeenJob:
    """A job as its scheduler shows it.

    Attributes:
        state: A `JobState`, or the word of a later version.
        view: All that is shown, with the progress that is new; `None` if this version cannot read
            it, as with a state of a later version: `document` has it as it came.
        service: The service that put it there; `None`: it came by another way.
        first_attempt: The number of its first attempt there.
        submitted_s: Unix seconds.
    """

    job_id: str
    state: str
    run_dir: str
    service: str | None = None
    first_attempt: int = 1
    priority: int = 0
    attempt: int = 0
    submitted_s: float | None = None
    step: int = 0
    rows_per_s: float | None = None
    loss: float | None = None
    auc: float | None = None
    eta_s: float | None = None
    view: JobView | None = None
    document: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def is_final(self) -> bool:
        """Whether it has ended; a state that this version does not know is no end."""
        return self.view is not None and self.view.state.is_final

    @property
    def first_entry(self) -> int:
        """The number of the first entry in `view.progress`; entries count from 0."""
        return self.view.next_record - len(self.view.progress) if self.view else 0


@dataclass(frozen=True)
class WorkerCounts:
    """Workers of a cluster: all, those a rank may be given, those of them without one, GPUs."""

    total: int = 0
    usable: int = 0
    free: int = 0
    gpus: int = 0


@dataclass(frozen=True)
class SeenWorker:
    """One worker; `job` and `rank` are `None` while it has no rank."""

    address: str
    name: str = ""
    host: str = ""
    gpu: str | None = None
    usable: bool = True
    job: str | None = None
    rank: int | None = None


@dataclass(frozen=True)
class Changes:
    """What changed of a scheduler's jobs.

    Attributes:
        epoch: Of the scheduler's start. If it is another one, the jobs that it lacks are lost.
        revision: What to ask from next.
        more: Ask again at once.
        generations: By service, the highest that the scheduler has seen.
    """

    epoch: str
    revision: int
    more: bool = False
    jobs: tuple[SeenJob, ...] = ()
    workers: WorkerCounts = WorkerCounts()
    generations: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Ended:
    """How a job ended that the scheduler has forgotten, or that was put there once more.

    Attributes:
        attempt: The last one that it had, or was put for.
    """

    job_id: str
    state: str
    attempt: int = 0
    reason: str | None = None
    message: str | None = None


@dataclass(frozen=True)
class SeenPreflight:
    """A check of a spec on a worker.

    Attributes:
        state: `waiting`, `running`, `passed`, `failed` (see `errors`) or `lost` (see `error`).
        notes: What was not checked, and what may surprise.
        errors: Mistakes, each with `message`, `where` and `hint`.
        error: Why it could not be checked.
    """

    state: str
    notes: tuple[str, ...] = ()
    errors: tuple[Mapping[str, Any], ...] = ()
    error: str | None = None
    plan: Mapping[str, Any] | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self.state not in ("waiting", "running")


def changes_from_json(document: Mapping[str, Any]) -> Changes:
    """An answer to `GET /distrain/v1/jobs`.

    Raises:
        KeyError, TypeError, ValueError: It is none.
    """
    return Changes(
        str(document["epoch"]),
        int(document["revision"]),
        bool(document.get("more", False)),
        tuple(job_from_json(job) for job in document["jobs"]),
        _known(WorkerCounts, document.get("workers", {})),
        {str(name): int(one) for name, one in document.get("services", {}).items()},
    )


def job_from_json(document: Mapping[str, Any]) -> SeenJob:
    """One job of it.

    Raises:
        KeyError, TypeError, ValueError: It is none.
    """
    shown = document["view"]
    state = str(shown["state"])
    try:
        view: JobView | None = JobView.from_json(shown)
    except (AttributeError, KeyError, TypeError, ValueError):
        view = None
    known = {f.name for f in fields(SeenJob)} - {"state", "view", "document", "attempt"}
    values = {name: document[name] for name in known if document.get(name) is not None}
    attempt = int(shown.get("attempt", 0))
    return SeenJob(state=state, attempt=attempt, view=view, document=document, **values)


def workers_from_json(documents: Sequence[Mapping[str, Any]]) -> tuple[SeenWorker, ...]:
    """All workers."""
    return tuple(_known(SeenWorker, worker) for worker in documents)


def ended_from_json(document: Mapping[str, Any]) -> Ended:
    """How a job ended."""
    return _known(Ended, document)


def preflight_from_json(document: Mapping[str, Any]) -> SeenPreflight:
    """A check."""
    one = _known(SeenPreflight, document)
    return SeenPreflight(one.state, tuple(one.notes), tuple(one.errors), one.error, one.plan)


def _known(kind: type[Value], document: Mapping[str, Any]) -> Value:
    names = {f.name for f in fields(kind)}  # type: ignore[arg-type]  # of dataclasses alone
    return kind(**{name: value for name, value in document.items() if name in names})
