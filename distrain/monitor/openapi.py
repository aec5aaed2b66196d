"""The OpenAPI document of the JSON that a scheduler serves of its jobs. Pure."""

from collections.abc import Mapping
from typing import Any

from distrain.cluster import TOKEN_VARIABLE
from distrain.documents import RANK, TRAIN, VALID, Column
from distrain.jobs import JobState
from distrain.version import __version__

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}

_JOB_ID: Schema = {"name": "job_id", "in": "path", "required": True, "schema": TEXT}
_RANKS: Schema = {
    "name": "ranks",
    "in": "query",
    "description": "Of more than 64 ranks the slowest, those around the median and the fastest; or "
    "`all`.",
    "schema": {"type": "string", "enum": ["shown", "all"], "default": "shown"},
}
_SINCE: Schema = {
    "name": "since",
    "in": "query",
    "description": "The last answer's `cursor`: only newer points come. Without: all of them.",
    "schema": TEXT,
}


def openapi_document() -> dict[str, Any]:
    """The paths and the schemas of their answers."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "distrain: jobs of a scheduler",
            "version": __version__,
            "description": "Times are unix time or seconds. `null`: not known, or not yet. Where "
            f"{TOKEN_VARIABLE} is set, send it as `Authorization: Bearer TOKEN`.",
        },
        "servers": [{"url": "..", "description": "This scheduler, behind whatever prefix."}],
        "security": [{}, {"token": []}],
        "paths": {
            "/distrain/jobs": _get("All jobs, the newest first", "Jobs"),
            "/distrain/jobs/{job_id}": _get("One job", "Job", _JOB_ID, _RANKS),
            "/distrain/jobs/{job_id}/metrics": _get("A job's curves", "Metrics", _JOB_ID, _SINCE),
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": _schemas(),
        },
    }


def _schemas() -> dict[str, Schema]:
    summary = _summary()
    return {
        "Error": _object({"error": TEXT, "hint": TEXT}),
        "Jobs": _object({"jobs": _list(_ref("Summary"))}),
        "Summary": _object(summary),
        "Job": _object({**summary, **_detail()}),
        "Rank": _object(_rank()),
        "Gpu": _object(
            {
                "utilisation_pct": _maybe(NUMBER),
                "memory_used_bytes": _maybe(WHOLE),
                "memory_total_bytes": _maybe(WHOLE),
            }
        ),
        "Moment": _object(
            {
                "at_s": NUMBER,
                "kind": {"enum": ["state", "restart", "checkpoint", "notice", "validated"]},
                "attempt": WHOLE,
                "step": _maybe(WHOLE),
                "text": TEXT,
            }
        ),
        "Metrics": _object(
            {
                "cursor": _described(TEXT, "What to pass as `since` next."),
                "restart": _described(FLAG, "Replace all points that you have; else append these."),
                "train": _columns((*TRAIN, Column("stall_pct"))),
                "valid": _columns(VALID),
                "ranks": _described(
                    {"type": "object", "additionalProperties": _columns(RANK)},
                    "By rank; of more than 64 ranks: `slowest`, `median` and `fastest`.",
                ),
            }
        ),
    }


def _summary() -> dict[str, Schema]:
    return {
        "job_id": TEXT,
        "name": TEXT,
        "tags": {"type": "object", "additionalProperties": TEXT},
        "state": {"enum": [str(state) for state in JobState]},
        "reason": _described(_maybe(TEXT), "One word for why it ended badly."),
        "message": _maybe(TEXT),
        "why_pending": TEXT,
        "attempt": WHOLE,
        "num_ranks": WHOLE,
        "step": WHOLE,
        "num_steps": _maybe(WHOLE),
        "epoch": _maybe(WHOLE),
        "rows_total": WHOLE,
        "total_rows": _maybe(WHOLE),
        "rows_per_s": _described(
            _maybe(NUMBER),
            "Of the last report while it runs, of all reports when it has ended; else null.",
        ),
        "loss": _described(_maybe(NUMBER), "Mean log loss in nats of the rows of the last report."),
        "auc": _described(_maybe(NUMBER), "Of training, as `loss`."),
        "auc_bound": _described(
            _maybe(NUMBER),
            "The exact AUC of the rows that were scored lies within +- this; `auc` is counted in "
            "a histogram. It says nothing about other rows.",
        ),
        "valid_loss": _described(_maybe(NUMBER), "Of the last validation, as `valid_auc`."),
        "valid_auc": _maybe(NUMBER),
        "valid_auc_bound": _maybe(NUMBER),
        "stall_mean_pct": _described(
            _maybe(NUMBER), "Wall time spent waiting for data, mean of ranks."
        ),
        "stall_max_pct": _described(_maybe(NUMBER), "The same of the rank that waited longest."),
        "stall_pct": _described(_maybe(NUMBER), "An older name of `stall_mean_pct`."),
        "elapsed_s": NUMBER,
        "eta_s": _maybe(NUMBER),
        "submitted_s": NUMBER,
        "restarts": WHOLE,
        "checkpoints": WHOLE,
        "checkpoints_failed": _described(WHOLE, "Checkpoints that could not be written."),
        "run_dir": TEXT,
    }


def _detail() -> dict[str, Schema]:
    slowest = {"rank": WHOLE, "step_time_s": NUMBER, "median_step_time_s": NUMBER}
    return {
        "spec": {"type": "object", "description": "The job spec as resolved."},
        "ranks": _list(_ref("Rank")),
        "timeline": _list(_ref("Moment")),
        "slowest": _described(_maybe(_object(slowest)), "By own work: see a rank's `step_time_s`."),
        "model_path": _maybe(TEXT),
        "reader": _maybe(TEXT),
        "parameters": _maybe(WHOLE),
    }


def _rank() -> dict[str, Schema]:
    by_phase = {"type": "object", "additionalProperties": NUMBER}
    return {
        "rank": WHOLE,
        "worker": _maybe(TEXT),
        "host": _maybe(TEXT),
        "pid": _maybe(WHOLE),
        "device": _maybe(TEXT),
        "doing": _described(TEXT, "A phase, `setup`, or how it ended."),
        "waiting_for": {"enum": ["", "peers", "reader", "storage"]},
        "step": WHOLE,
        "rows_per_s": _maybe(NUMBER),
        "step_time_s": _described(
            _maybe(NUMBER),
            "Its own work per step, without `exchange`, in which ranks also wait for slower ones.",
        ),
        "seconds": _described(by_phase, "Wall time by phase, in its last report."),
        "total_seconds": _described(by_phase, "Wall time by phase, in this attempt."),
        "stall_pct": _maybe(NUMBER),
        "memory": _described(
            {"type": "object", "additionalProperties": WHOLE},
            "What its process held at its last report: `host_bytes`, and on a GPU `device_bytes`.",
        ),
        "gpu": _maybe(_ref("Gpu")),
    }


def _get(summary: str, schema: str, *parameters: Schema) -> Schema:
    responses = {"200": _json(summary, schema), "401": {"description": "The token is missing."}}
    if parameters:
        responses["404"] = _json("No such job", "Error")
    if len(parameters) > 1:
        responses["400"] = _json("The query cannot be used", "Error")
    return {"get": {"summary": summary, "parameters": list(parameters), "responses": responses}}


def _json(description: str, schema: str) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": _ref(schema)}}}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _maybe(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _described(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}


def _columns(columns: tuple[Column, ...]) -> Schema:
    return _object({c.name: _list(_maybe(WHOLE if c.whole else NUMBER)) for c in columns})


def _object(properties: Mapping[str, Schema]) -> Schema:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }
