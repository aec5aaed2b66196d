"""The OpenAPI document, and the responses that routes declare for it."""

from collections.abc import Mapping
from typing import Any, Final

from fastapi import FastAPI, Response
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from distrain.jobs.api_answers import Problem as ProblemDocument
from distrain.service.api.problems import CODES, MEDIA_TYPE, not_found
from distrain.version import __version__

_ALWAYS: Final = ("bad_request", "unauthenticated", "forbidden", "too_large", "unavailable")
_PROBLEM_REF: Final = {"$ref": "#/components/schemas/Problem"}

LOCATION: Final = {
    "Location": {"description": "The URL of the created object.", "schema": {"type": "string"}}
}


def answers(
    *codes: str, others: Mapping[int, Mapping[str, Any]] | None = None, public: bool = False
) -> dict[int | str, dict[str, Any]]:
    """Return a route's `responses=`: the problems with these codes, and `others`, by status.

    The problems of all routes are added; for `public` routes, which need no token, without
    `unauthenticated` and `forbidden`. `others` replaces problems of the same status.
    """
    kept = ("bad_request", "too_large", "unavailable") if public else _ALWAYS
    found: dict[int | str, dict[str, Any]] = {}
    for code in (*kept, *codes):
        status, title = CODES[code]
        earlier = found.get(status)
        found[status] = {
            "description": f"{earlier['description']}; `{code}`: {title}"
            if earlier
            else f"`{code}`: {title}",
            "content": {MEDIA_TYPE: {"schema": _PROBLEM_REF}},
        }
        if status in (429, 503):
            found[status]["headers"] = {
                "Retry-After": {
                    "description": "Seconds to wait before the next try.",
                    "schema": {"type": "integer", "minimum": 1},
                }
            }
    for status, answer in (others or {}).items():
        found[status] = dict(answer)
    return found


def as_json(document: BaseModel, status: int = 200, **headers: str) -> Response:
    """Return a response with a document as JSON; this avoids FastAPI's validation and copy."""
    text = document.model_dump_json().encode()
    return Response(text, status, headers=headers, media_type="application/json")


def openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(
            title="distrain: job service",
            version=__version__,
            description="Jobs of many users on many clusters. Times are RFC 3339 in UTC; `null`: "
            "not known, or not yet. Errors are `application/problem+json` with a `code`. Clients "
            "must tolerate fields and states that they do not know.",
            routes=app.routes,
        )
        _drop_validation_errors(document)
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas["Problem"] = _problem_schema()
        app.openapi_schema = document
    return app.openapi_schema


def _drop_validation_errors(document: dict[str, Any]) -> None:
    """Remove the 422 responses that FastAPI documents; the API answers 400 instead."""
    for operations in document["paths"].values():
        for operation in operations.values():
            answer = operation["responses"].get("422", {})
            if "application/json" in answer.get("content", {}):
                del operation["responses"]["422"]
    for name in ("HTTPValidationError", "ValidationError"):
        document.get("components", {}).get("schemas", {}).pop(name, None)


def _problem_schema() -> dict[str, Any]:
    schema = ProblemDocument.model_json_schema(ref_template="#/components/schemas/{model}")
    del schema["$defs"]  # the document defines these already
    codes = ", ".join(f"`{code}`" for code in CODES)
    schema["properties"]["code"]["description"] = f"One of {codes}."
    example = not_found("job 'dlrm-20260301'").document("/v1/jobs/dlrm-20260301")
    return {**schema, "title": "Problem", "examples": [example]}
