"""Events and times in the words of the API."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from distrain.service.decide.shown import shown
from distrain.service.values import Event, Intent, Job, Phase


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
    """An event by the names of a job's document."""
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
