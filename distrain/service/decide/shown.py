"""The state of a job for people, from what they want, what was done, and what was seen."""

from dataclasses import dataclass

from distrain.jobs import JobState
from distrain.service.values import Intent, Job, Phase

NO_CONTACT_S = 30.0
"""After this long without a word of its scheduler, a job's state is unknown."""

QUEUED = "queued"
HANDING_OVER = "handing_over"
CANCELLING = "cancelling"
UNKNOWN = "unknown"

STATES = (QUEUED, HANDING_OVER, *(str(state) for state in JobState), CANCELLING, UNKNOWN)
"""All states that a job may be shown in."""


@dataclass(frozen=True)
class Shown:
    """A job's state for people."""

    state: str  # `queued`, `handing_over`, a state of the coordinator, `cancelling` or `unknown`
    # the coordinator's state when it was heard of last, where `state` is not that
    last_known: str | None = None
    why_pending: str = ""  # why it waits; "" for a job that does not


def shown(job: Job, now_s: float, *, contact_s: float | None = None) -> Shown:
    """The state of a job at the unix time `now_s`.

    `contact_s` is when its cluster last answered: a job's own `observed_at_s` is written only when
    something of it has changed, so it alone would make quiet jobs unknown.
    """
    if job.phase is Phase.FINAL:
        return Shown(job.state)
    if job.intent is Intent.CANCEL:
        return Shown(CANCELLING, job.state)
    if job.phase is Phase.QUEUED:
        return Shown(QUEUED, None, job.why_pending or _NEW)
    if job.phase is Phase.HANDING_OVER:
        why = job.why_pending or f"it is being handed over to cluster {job.cluster}"
        return Shown(HANDING_OVER, None if job.attempt == 0 else job.state, why)
    heard_s = max(job.observed_at_s or 0.0, contact_s or 0.0)
    if now_s - heard_s >= NO_CONTACT_S:
        return Shown(UNKNOWN, job.state)
    if job.state in ("pending", "restarting"):
        return Shown(job.state, None, job.why_pending or _IN_TURN.format(job.cluster))
    return Shown(job.state, None, job.why_pending)


_NEW = "it was submitted just now"
_IN_TURN = "it waits for its turn on cluster {}"
