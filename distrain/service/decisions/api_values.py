"""Converts a job's state, events and times to the API's values."""

from collections.abc import Collection, Mapping
from typing import Any

from distrain.jobs.api_answers import utc
from distrain.jobs.states import JobState
from distrain.service.decisions.wait_reasons import not_configured
from distrain.service.values import (
    CANCELLING,
    NO_CONTACT_S,
    UNKNOWN,
    Event,
    Intent,
    Job,
    Phase,
)

QUEUED = "queued"
HANDING_OVER = "handing_over"

STATES = (QUEUED, HANDING_OVER, *(str(state) for state in JobState), CANCELLING, UNKNOWN)
"""All states that the API shows."""


def shown(
    job: Job,
    now_s: float,
    *,
    contact_s: float | None = None,
    clusters: Collection[str] | None = None,
) -> dict[str, Any]:
    """Return the fields `state`, `last_known` and `why_pending` of the API's answer for a job.

    The state is that at `now_s`; `contact_s` is the time of its cluster's last answer. `state` is
    one of `STATES`. If it is `HANDING_OVER` (after a first attempt), `CANCELLING` or `UNKNOWN`,
    `last_known` is the job's state as last recorded, otherwise `None`. `why_pending` is "" if the
    job does not wait, is being cancelled, or has the state `UNKNOWN`. Of a job that has not ended,
    and whose cluster is none of the configured `clusters`, it says so in each state.
    """
    heard_s = max(job.observed_at_s or 0.0, contact_s or 0.0)
    seen = _shown(vars(job), is_silent=now_s - heard_s >= NO_CONTACT_S)
    if clusters is not None and job.cluster not in clusters and job.phase is not Phase.FINAL:
        seen["why_pending"] = not_configured(job.cluster)
    return seen


def _shown(columns: Mapping[str, Any], *, is_silent: bool) -> dict[str, Any]:
    """Return the fields of `shown`, from the columns of a job's row or an event's body.

    `is_silent`: whether the job's cluster has not answered for `NO_CONTACT_S`.
    """
    state, why, phase = columns["state"], columns["why_pending"], Phase(columns["phase"])
    last_known = None
    if phase is Phase.FINAL:
        why = ""
    elif columns["intent"] == Intent.CANCEL:
        state, last_known, why = CANCELLING, state, ""
    elif phase is Phase.QUEUED:
        state, why = QUEUED, why or "it has just been submitted"
    elif phase is Phase.HANDING_OVER:
        state, last_known = HANDING_OVER, None if columns["attempt"] == 0 else state
    elif is_silent:
        state, last_known, why = UNKNOWN, state, ""
    elif state in ("pending", "restarting"):
        why = why or f"it waits for its turn on cluster {columns['cluster']}"
    return {"state": state, "last_known": last_known, "why_pending": why}


_AS_THEY_ARE = (
    "rev", "name", "cluster", "attempt", "first_attempt", "resumes", "reason", "message",
    "priority",
)  # fmt: skip


def event_document(event: Event) -> dict[str, Any]:
    """Return the data of an event, with the field names of the API's answer for a job.

    It has only the fields that the event contains. Unix times `..._at_s` become texts `..._at`.
    """
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
        found |= _shown(body, is_silent=False)
    return found
