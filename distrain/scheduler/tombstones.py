"""What is left of jobs that the coordinator has forgotten: how they ended."""

from collections import OrderedDict

from distrain.jobs import JobState, JobStatus, JobView
from distrain.lifecycle import Job

KEPT = 10_000  # tombstones at most; the oldest are dropped first
_MESSAGE_CHARACTERS = 1000


def tombstone_of(job: Job, name: str) -> JobStatus:
    cause = job.culprit
    return JobStatus(
        job.job_id,
        name,
        job.state.value,
        job.attempt,
        job.num_ranks,
        cause.reason if cause else None,
        cause.message[:_MESSAGE_CHARACTERS] if cause else None,
        first_attempt=job.request.first_attempt,
    )


class Tombstones:
    """The newest tombstones, by the jobs' ids.

    Of a job that ended before its first attempt, `attempt` is below `first_attempt`.
    """

    def __init__(self, kept: int = KEPT):
        self._kept = kept
        self._by_id: OrderedDict[str, JobStatus] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, ended: JobStatus) -> None:
        self._by_id[ended.job_id] = ended
        self._by_id.move_to_end(ended.job_id)
        while len(self._by_id) > self._kept:
            self._by_id.popitem(last=False)

    def get(self, job_id: str) -> JobStatus | None:
        return self._by_id.get(job_id)

    def remove(self, job_id: str) -> None:
        self._by_id.pop(job_id, None)


def last_view(ended: JobStatus) -> JobView:
    """A job as viewers see it after its details are forgotten."""
    return JobView(
        ended.job_id,
        ended.name,
        JobState(ended.state),
        ended.attempt,
        ended.num_ranks,
        ended.reason,
        ended.message,
    )
