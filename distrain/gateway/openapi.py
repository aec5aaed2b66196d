"""The OpenAPI document of the routes. Pure."""

from typing import Any

from distrain.cluster import TOKEN_VARIABLE
from distrain.gateway.documents import (
    JOB_ID_PATTERN,
    Body,
    CancelOrder,
    PreflightOrder,
    PriorityOrder,
    PutOrder,
)
from distrain.version import __version__

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_WHOLE: Schema = {"type": "integer"}
_NUMBER: Schema = {"type": "number"}
_FLAG: Schema = {"type": "boolean"}
_ANY: Schema = {"type": "object"}

_EVERYWHERE = {
    "400": "`bad_request`: the body or the query cannot be used.",
    "401": "The token is missing or wrong.",
    "403": "`no_token`: the scheduler has none, and you are not on its machine; or "
    "`foreign_origin`.",
    "413": "`too_large`: the body.",
}
_ORDERS = {
    "409": "`stale_generation {generation}`: the service has sent a higher one; `other_service`: "
    "the job is not this service's; `too_many_services`.",
    "410": "`ended {job}`: how the job ended, and its last attempt.",
}


def openapi_document() -> Schema:
    """The paths, the bodies and the answers."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "distrain: orders to a scheduler",
            "version": __version__,
            "description": "For a job service. Times are unix time or seconds. Where "
            f"{TOKEN_VARIABLE} is set, send it as `Authorization: Bearer TOKEN`. Keys may be added "
            "to any document.",
        },
        "servers": [{"url": "../..", "description": "This scheduler, behind whatever prefix."}],
        "security": [{}, {"token": []}],
        "paths": _paths(),
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": _schemas(),
        },
    }


def _paths() -> Schema:
    job = _parameter("job_id", "path", {"type": "string", "pattern": f"^{JOB_ID_PATTERN}$"})
    preflight = _parameter("preflight_id", "path", _TEXT)
    since = _parameter("since", "query", _WHOLE, "The `revision` of the last answer.")
    epoch = _parameter("epoch", "query", _TEXT, "Its `epoch`; with another one `since` is 0.")
    service = _parameter(
        "service", "query", _TEXT, "Who asks: it has taken in all changes up to `since`."
    )
    collect = _parameter(
        "collect_ms",
        "query",
        _WHOLE,
        "How long news of jobs that only go on may wait for more, at most 60,000: they come in one "
        "answer, so long after the last such. News of any other kind come at once.",
    )
    not_pending = _ORDERS["409"] + " `not_pending {state}`: it does not wait."
    epoch_changed = _ORDERS["409"] + " `epoch_changed {epoch}`: the scheduler was started anew."
    unknown = {"404": "`unknown`: no such job."}
    return {
        "/distrain/v1/jobs": {
            "get": _call(
                "What changed of all jobs", {"200": "Changes"}, {}, since, epoch, service, collect
            )
        },
        "/distrain/v1/jobs/{job_id}": {
            "get": _call("One job", {"200": "OneJob"}, {**unknown, "410": _ORDERS["410"]}, job),
            "put": _call(
                "Queue a job, once",
                {"201": "OneJob", "200": "OneJob"},
                {**_ORDERS, "409": epoch_changed, "422": "`bad_spec`."},
                job,
                body="PutOrder",
            ),
        },
        "/distrain/v1/jobs/{job_id}/cancel": {
            "post": _call(
                "End a job", {"202": "OneJob"}, {**_ORDERS, **unknown}, job, body="CancelOrder"
            )
        },
        "/distrain/v1/jobs/{job_id}/priority": {
            "post": _call(
                "Change the priority of a job that waits",
                {"200": "OneJob"},
                {**_ORDERS, **unknown, "409": not_pending},
                job,
                body="PriorityOrder",
            )
        },
        "/distrain/v1/workers": {"get": _call("All workers", {"200": "Workers"}, {})},
        "/distrain/v1/preflight": {
            "post": _call(
                "Check a spec on a worker",
                {"202": "PreflightId"},
                {"429": "`busy`: too many checks wait."},
                body="PreflightOrder",
            )
        },
        "/distrain/v1/preflight/{preflight_id}": {
            "get": _call("A check", {"200": "Preflight"}, {"404": "`unknown`."}, preflight)
        },
    }


def _schemas() -> Schema:
    ended = {
        "job_id": _TEXT,
        "state": _TEXT,
        "reason": _maybe(_TEXT),
        "message": _maybe(_TEXT),
        "attempt": _WHOLE,
    }
    mistake = {"message": _TEXT, "where": _ANY, "hint": _maybe(_TEXT)}
    counts = dict.fromkeys(("total", "usable", "free", "gpus"), _WHOLE)
    bodies: tuple[type[Body], ...] = (PutOrder, CancelOrder, PriorityOrder, PreflightOrder)
    return {
        **{body.__name__: body.model_json_schema() for body in bodies},
        "Error": _object({"code": _TEXT, "error": _TEXT, "hint": _TEXT}),
        "Ended": _object(ended),
        "Job": _object(_job()),
        "OneJob": _object({"epoch": _TEXT, "job": _ref("Job")}),
        "Changes": _object(
            {
                "epoch": {**_TEXT, "description": "Another one with each start of the scheduler."},
                "revision": {**_WHOLE, "description": "What to pass as `since` next."},
                "more": {**_FLAG, "description": "Ask again at once: there is more."},
                "services": {"type": "object", "additionalProperties": _WHOLE},
                "workers": _object(counts),
                "jobs": {"type": "array", "items": _ref("Job")},
            }
        ),
        "Workers": _object({"workers": {"type": "array", "items": _object(_worker())}}),
        "PreflightId": _object({"id": _TEXT}),
        "Preflight": _object(
            {
                "id": _TEXT,
                "state": {"enum": ["waiting", "running", "passed", "failed", "lost"]},
                "notes": {"type": "array", "items": _TEXT},
                "errors": {"type": "array", "items": _object(mistake)},
                "error": {**_maybe(_TEXT), "description": "Why it could not be checked (`lost`)."},
                "plan": _maybe(_ANY),
            }
        ),
    }


def _job() -> dict[str, Schema]:
    return {
        "job_id": _TEXT,
        "run_dir": _TEXT,
        "service": {**_maybe(_TEXT), "description": "Who put it; null: it came by Dask."},
        "first_attempt": _WHOLE,
        "priority": _WHOLE,
        "submitted_s": _NUMBER,
        "step": _WHOLE,
        "rows_per_s": _maybe(_NUMBER),
        "loss": {**_maybe(_NUMBER), "description": "Of training, as `auc`."},
        "auc": _maybe(_NUMBER),
        "valid_loss": {**_maybe(_NUMBER), "description": "Of the last validation, as `valid_auc`."},
        "valid_auc": _maybe(_NUMBER),
        "eta_s": _maybe(_NUMBER),
        "elapsed_s": _NUMBER,
        "view": {
            **_ANY,
            "description": "The job as `distrain.jobs.JobView`: state, attempt, reason, message, "
            "why_pending, restarts, checkpoints, ...; `progress` has the entries since `since`, "
            "the first of which has the number `next_record - len(progress)`; `missed` counts "
            "those between that are forgotten here.",
        },
    }


def _worker() -> dict[str, Schema]:
    return {
        "address": _TEXT,
        "name": _TEXT,
        "host": _TEXT,
        "gpu": _maybe(_TEXT),
        "usable": _FLAG,
        "job": _maybe(_TEXT),
        "rank": _maybe(_WHOLE),
    }


def _call(
    summary: str,
    answers: dict[str, str],
    refusals: dict[str, str],
    *parameters: Schema,
    body: str | None = None,
) -> Schema:
    responses = {status: _json(summary, schema) for status, schema in answers.items()}
    refused = {**_EVERYWHERE, **refusals}
    responses |= {status: _json(why, "Error") for status, why in sorted(refused.items())}
    call: Schema = {"summary": summary, "parameters": list(parameters), "responses": responses}
    if body is not None:
        content = {"application/json": {"schema": _ref(body)}}
        call["requestBody"] = {"required": True, "content": content}
    return call


def _parameter(name: str, place: str, schema: Schema, description: str = "") -> Schema:
    named: Schema = {"name": name, "in": place, "required": place == "path", "schema": schema}
    return {**named, "description": description} if description else named


def _json(description: str, schema: str) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": _ref(schema)}}}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _maybe(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _object(properties: dict[str, Schema]) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}
