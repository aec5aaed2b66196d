"""What changed of all jobs since a revision: watches the coordinator, and writes bounded answers.

An answer holds the jobs in the order of their last changes, and of each the entries of progress
that came since the asked revision. It ends before it grows too large, or takes the scheduler's loop
too long; then it says `more`, and its revision is that of the last job in it. A job that it has no
room for may have changed before that, and again since: that it did is forgotten, so that it is told
whole later; another service may then get entries again. A job whose entries
alone are too many is sent in parts: it gets two new revisions, one for the part and one for all.
"""

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from distrain.events import Heartbeat
from distrain.gateway.revisions import Revisions
from distrain.lifecycle import Job, Reported, Stimulus
from distrain.monitor import Monitor
from distrain.scheduler import CoordinatorPlugin

MOST_BYTES = 4 * 2**20
"""Of one answer's jobs."""

MOST_JOBS = 100
"""In one answer: some milliseconds of the scheduler's loop."""

_NO_PROGRESS = 2**62
"""More entries than a job ever has."""

_FIGURES = (
    "submitted_s", "step", "rows_per_s", "loss", "auc", "valid_loss", "valid_auc", "eta_s",
    "elapsed_s",
)  # fmt: skip
"""What an answer has of the monitor's summary of a job, besides its view."""


@dataclass
class Answer:
    """Jobs as JSON texts, and where the next answer goes on."""

    revision: int
    more: bool = False
    jobs: list[str] = field(default_factory=list)
    size_bytes: int = 0

    def add(self, text: str) -> None:
        """Take a job in."""
        self.jobs.append(text)
        self.size_bytes += len(text)

    @property
    def is_full(self) -> bool:
        """Whether no more jobs may come."""
        return len(self.jobs) >= MOST_JOBS


@dataclass(frozen=True)
class _Seen:
    """A job as it was when it was stamped last."""

    fingerprint: tuple[object, ...]
    num_entries: int


class Changes:
    """Follows the jobs of one coordinator, whoever submitted them.

    Args:
        clock: Seconds.

    Attributes:
        services: By job, the service that put it here; others came by Dask.
    """

    def __init__(
        self,
        coordinator: CoordinatorPlugin,
        monitor: Monitor,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.coordinator = coordinator
        self.monitor = monitor
        self._clock = clock
        self.revisions = Revisions()
        self.services: dict[str, str] = {}
        self._acknowledged: dict[str, int] = {}
        self._reported: set[str] = set()
        self._seen: dict[str, _Seen] = {}
        self._alive: set[str] = set()
        self._collected_s = -math.inf  # when jobs that only went on were stamped last

    # --- an observer of the coordinator

    def handled(self, stimulus: Stimulus) -> None:
        """The coordinator has handled a stimulus."""
        if isinstance(stimulus, Reported) and not isinstance(stimulus.event, Heartbeat):
            self._reported.add(stimulus.job_id)

    def forgot(self, job_id: str) -> None:
        """The coordinator has removed this job."""
        self.revisions.forget(job_id)
        self.services.pop(job_id, None)
        self._seen.pop(job_id, None)
        self._reported.discard(job_id)
        self._alive.discard(job_id)

    # --- who has seen what

    def acknowledge(self, service: str, revision: int) -> None:
        """A service has taken in all changes up to a revision."""
        seen = max(revision, self._acknowledged.get(service, 0))
        self._acknowledged[service] = min(seen, self.revisions.newest)

    def is_unseen(self, job_id: str) -> bool:
        """Whether a service has put a job here, and has not acknowledged its last change."""
        service = self.services.get(job_id)
        if service is None:
            return False
        if self._look_at(job_id):  # it may have ended since somebody asked
            return True
        return self.revisions.last(job_id) > self._acknowledged.get(service, 0)

    # --- answers

    def since(self, revision: int, collect_s: float = 0.0) -> Answer:
        """What changed since a revision; 0: all jobs, with all of their progress that is kept.

        Args:
            collect_s: News of jobs that only went on may wait until such were last told of so long
                ago: then those of all jobs come in one answer. Between them answers are short. News
                of any other kind come at once, and bring the job's others along.
        """
        self._look(revision, collect_s)
        answer = Answer(revision)
        too_large = []
        changed = self.revisions.changed_since(revision)
        summaries = self.monitor.summaries(job_id for job_id, _ in changed)
        for (job_id, last), summary in zip(changed, summaries, strict=True):
            first = self.revisions.count_at(job_id, revision)
            text = dumps(self._document(job_id, first, summary))
            if len(text) > MOST_BYTES:
                too_large.append((job_id, first))
                continue
            if answer.is_full or answer.size_bytes + len(text) > MOST_BYTES:
                answer.more = True
                break
            answer.add(text)
            answer.revision = last
        if answer.more:
            for job_id, _ in changed[len(answer.jobs) + len(too_large) :]:
                self.revisions.leave_out(job_id, revision, answer.revision)
        if too_large:
            self._send_in_parts(answer, too_large, revision)
        elif not answer.more:
            answer.revision = self.revisions.newest
        return answer

    def document(self, job_id: str) -> dict[str, Any]:
        """A job as answers have it, without its progress."""
        summary = self.monitor.summary(job_id) or {}
        return self._document(job_id, _NO_PROGRESS, summary)

    def _send_in_parts(self, answer: Answer, too_large: list[tuple[str, int]], since: int) -> None:
        """Put these jobs behind all others; if nothing else is left, send a part of the first."""
        parts = []
        for job_id, first in too_large:
            last = len(self.coordinator.collectors[job_id].entries)
            text, number = self._part(job_id, first)
            self.revisions.leave_out(job_id, since, self.revisions.newest)
            parts.append((text, self.revisions.stamp(job_id, number)))
            self.revisions.stamp(job_id, last)
        text, revision = parts[0]
        if not answer.more and (not answer.jobs or answer.size_bytes + len(text) <= MOST_BYTES):
            answer.add(text)
            answer.revision = revision
        answer.more = True

    def _part(self, job_id: str, first: int) -> tuple[str, int]:
        """As many entries of a job, from a number on, as fit; and the number of the next one."""
        document = self._document(job_id, first, self.monitor.summary(job_id) or {})
        view = document["view"]
        progress = view["progress"]
        begin = view["next_record"] - len(progress)
        room = MOST_BYTES - len(dumps({**document, "view": {**view, "progress": []}}))
        taken = 0
        for entry in progress:
            room -= len(dumps(entry)) + 2
            if room < 0 and taken:
                break
            taken += 1
        number = begin + taken
        part = {**view, "progress": progress[:taken], "next_record": number}
        return dumps({**document, "view": part}), number

    def _document(self, job_id: str, first: int, summary: Mapping[str, Any]) -> dict[str, Any]:
        coordinator = self.coordinator
        job = coordinator.machine.jobs[job_id]
        return {
            "job_id": job_id,
            "run_dir": coordinator.run_dirs[job_id],
            "service": self.services.get(job_id),
            "first_attempt": job.request.first_attempt,
            "priority": job.request.priority,
            **{name: summary.get(name) for name in _FIGURES},
            "view": coordinator.view(job_id, first),
        }

    # --- what changed

    def _look(self, revision: int, collect_s: float) -> None:
        """Stamp each job that is not as it was when it was looked at last.

        Those that only went on, and are not in the answer anyway, are left for later if such were
        stamped less than `collect_s` ago.
        """
        jobs = self.coordinator.machine.jobs
        if len(jobs) != len(self._seen):
            self._alive.update(jobs.keys() - self._seen.keys())
        now_s = self._clock()
        is_due = now_s - self._collected_s >= collect_s
        for job_id in [*self._reported, *(self._alive - self._reported)]:
            if job_id in jobs:
                asked = self.revisions.last(job_id) > revision
                if self._look_at(job_id, news=asked or is_due) and is_due:
                    self._collected_s = now_s
        self._reported &= jobs.keys()

    def _look_at(self, job_id: str, *, news: bool = True) -> bool:
        """Stamp a job if it has changed, and say whether it was stamped.

        Args:
            news: Whether that it went on is a change.
        """
        job = self.coordinator.machine.jobs[job_id]
        collector = self.coordinator.collectors[job_id]
        num_entries = len(collector.entries)
        now = _fingerprint(job, collector.attempt)
        seen = self._seen.get(job_id)
        moved = seen is None or seen.fingerprint != now
        went_on = seen is None or seen.num_entries != num_entries or job_id in self._reported
        stamps = moved or (went_on and news)
        if stamps:
            self._reported.discard(job_id)
            self._seen[job_id] = _Seen(now, num_entries)
            self.revisions.stamp(job_id, num_entries)
        if job.state.is_final:
            self._alive.discard(job_id)
        else:
            self._alive.add(job_id)
        return stamps


def _fingerprint(job: Job, attempt: int) -> tuple[object, ...]:
    """What tells whether a job changed, besides that it went on."""
    waiting = tuple(r for r, status in job.ranks.items() if status.waiting_for == "storage")
    priority = job.request.priority
    moves, why = len(job.history), job.why_pending
    return job.state, job.attempt, moves, why, priority, attempt, waiting


def dumps(document: Any) -> str:
    """JSON without white space; what is not finite becomes null."""
    try:
        return json.dumps(document, allow_nan=False, separators=(",", ":"))
    except ValueError:  # JSON has no NaN
        return json.dumps(_finite(document), allow_nan=False, separators=(",", ":"))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return value
