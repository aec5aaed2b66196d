"""A job's state, events and times in the words of the API."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from distrain.jobs.states import JobState
from distrain.service.values import Event, Intent, Job, Phase

NO_CONTACT_S = 30.0  # after this long without a word of its scheduler, a job's state is unknown
QUEUED = "queued"
HANDING_OVER = "handing_over"
CANCELLING = "cancelling"
UNKNOWN = "unknown"

STATES = (QUEUED, HANDING_OVER, *(str(state) for state in JobState), CANCELLING, UNKNOWN)
"""All states that a job may be shown in."""


@dataclass(frozen=True)
class Shown:
    state: str  # `queued`, `handing_over`, a state of the coordinator, `cancelling` or `unknown`
    # the coordinator's state when it was heard of last, where `state` is not that
    last_known: str | None = None
    why_pending: str = ""  # why it waits; "" for a job that does not


def shown(job: Job, now_s: float, *, contact_s: float | None = None) -> Shown:
    """The state of a job at `now_s`; `contact_s`: its cluster's last answer, which no row has."""
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


def utc(at_s: float | None) -> str | None:
    """Unix seconds as RFC 3339 in UTC, with microseconds.

    >>> utc(0.25)
    '1970-01-01T00:00:00.250000Z'
    """
    if at_s is None:
        return None
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="microseconds")[:-6] + "Z"


_AS_THEY_ARE = (
    "rev", "name", "cluster", "intent", "attempt", "first_attempt", "resumes", "reason", "message",
    "priority",
)  # fmt: skip


def event_document(event: Event) -> dict[str, Any]:
    body = event.body
    found = {
        "id": event.job_id,
        "project": event.project,
        "owner": event.owner,
        "at": utc(event.at_s),
        **{name: body[name] for name in _AS_THEY_ARE if name in body},
        **{
            name[:-2]: utc(value)
            for name, value in body.items()
            if name.endswith("_at_s") and (value is None or isinstance(value, int | float))
        },
        **(body.get("progress") or {}),
    }
    if "phase" in body:
        seen = shown(_job(event), event.at_s, contact_s=event.at_s)
        found |= {
            "state": seen.state,
            "last_known": seen.last_known,
            "why_pending": seen.why_pending,
        }
    return found


def _job(event: Event) -> Job:
    body = event.body
    unknown = Job(
        event.job_id, 0, event.project, event.owner, "", body.get("cluster", ""), 0, 0, "", 0.0
    )
    return replace(
        unknown,
        intent=Intent(body.get("intent", Intent.RUN)),
        phase=Phase(body["phase"]),
        state=body.get("state", ""),
        attempt=body.get("attempt", 0),
        why_pending=body.get("why_pending") or "",
        observed_at_s=event.at_s,
    )
