"""Error responses, `application/problem+json` (RFC 9457): their codes, and exceptions' codes."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from distrain.errors import DistrainError, Unavailable
from distrain.jobs.api_answers import Mistake as MistakeDocument, Problem as ProblemDocument
from distrain.service.access.policy import Mistake, pointer
from distrain.service.store.errors import (
    IdTaken,
    QuotaExceeded,
    RowNotFound,
    Unstorable,
    WrongState,
)

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:distrain:problem:"

CODES: Final[Mapping[str, tuple[int, str]]] = {
    "bad_request": (400, "The request cannot be used"),
    "unauthenticated": (401, "The request has no valid token or session"),
    "forbidden": (403, "The caller may not do this"),
    "not_found": (404, "The object does not exist, or the caller may not see it"),
    "method_not_allowed": (405, "The address does not support this method"),
    "conflict": (409, "The object is in another state"),
    "id_taken": (409, "Another job has, or had, this id"),
    "not_final": (409, "The job has not ended"),
    "final": (409, "The job has ended"),
    "too_large": (413, "The request is too large"),
    "range": (416, "The file does not have the requested bytes"),
    "bad_spec": (422, "The job spec cannot be used"),
    "quota": (429, "A quota is used up"),
    "rate": (429, "Too many event streams are open"),
    "internal": (500, "The service failed"),
    "unavailable": (503, "The service cannot answer now"),
}
"""The HTTP status and the title of each problem, by code."""


@dataclass
class Problem(Exception):
    """An error answer of the API; "raises the problem `CODE`" means this class with that code."""

    code: str  # one of `CODES`
    detail: str  # what failed, with the offending value unless that may be a secret
    hint: str | None = None  # the likely cause, or what to do next
    errors: Sequence[Mistake] = ()
    retry_after_s: float | None = None  # when a later try may succeed; becomes `Retry-After`
    # more headers of the response, such as `Content-Range`
    extra_headers: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}"

    @property
    def status(self) -> int:
        return CODES[self.code][0]

    @property
    def headers(self) -> dict[str, str]:
        found = dict(self.extra_headers)
        if self.retry_after_s is not None:
            found["Retry-After"] = str(max(1, int(-(-self.retry_after_s // 1))))
        if self.status == HTTPStatus.UNAUTHORIZED:
            found["WWW-Authenticate"] = 'Bearer realm="distrain"'
        return found

    def document(self, instance: str) -> dict[str, Any]:
        status, title = CODES[self.code]
        return ProblemDocument(
            type=TYPE_PREFIX + self.code,
            title=title,
            status=status,
            detail=self.detail,
            code=self.code,
            hint=self.hint,
            errors=[MistakeDocument(pointer=m.pointer, detail=m.detail) for m in self.errors],
            instance=instance,
        ).model_dump()

    def response(self, instance: str) -> JSONResponse:
        return JSONResponse(
            self.document(instance), self.status, headers=self.headers, media_type=MEDIA_TYPE
        )


def not_found(what: str, hint: str | None = None) -> Problem:
    """Return the problem for an object that does not exist or that the caller may not see.

    `what` names the kind of object, such as "job".
    """
    return Problem("not_found", f"no {what}, or you may not see it", hint=hint)


def register(app: FastAPI) -> None:
    """Let the app answer expected errors with their problem, and all others with `internal`."""
    kinds = (Problem, HTTPException, RequestValidationError, Unavailable, *_OF_KIND, Exception)
    for kind in kinds:
        app.add_exception_handler(kind, _answer)


def _answer(request: Request, error: Exception) -> JSONResponse:
    return problem_of(error).response(request.url.path)


def problem_of(error: Exception) -> Problem:
    """Return the problem with which the API answers an error; `internal` for unexpected errors."""
    match error:
        case Problem():
            return error
        case HTTPException():
            code = _OF_STATUS.get(error.status_code, "bad_request")
            return Problem(code, str(error.detail), extra_headers=dict(error.headers or {}))
        case RequestValidationError():  # of pydantic; without the values, which may be secrets
            mistakes = [Mistake(_pointer(e["loc"]), str(e["msg"])) for e in error.errors()]
            count = (
                "the request has a mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
            )
            return Problem("bad_request", count, errors=mistakes)
        case Unavailable():
            logging.getLogger("distrain.service.api").error("the database failed: %s", error)
            # Without the driver's words, which may name hosts and users; the log has them.
            return Problem(
                "unavailable",
                "the service's database does not answer, or cannot be written",
                hint="Try again. The service's operator can run `distrain serve check`.",
                retry_after_s=2,
            )
        case DistrainError() if type(error) in _OF_KIND:
            code, wait_s = _OF_KIND[type(error)]
            return Problem(code, error.message, hint=error.hint, retry_after_s=wait_s)
    # The server logs the traceback itself.
    return Problem("internal", "an unexpected error; see the service's log")


_OF_STATUS = {404: "not_found", 405: "method_not_allowed", 413: "too_large"}


def _pointer(loc: Sequence[Any]) -> str:
    place, *rest = loc or ("body",)
    if place == "body":
        return pointer(*rest)
    return "#" + ".".join(map(str, rest))


_OF_KIND: Final[Mapping[type[DistrainError], tuple[str, float | None]]] = {
    RowNotFound: ("not_found", None),
    IdTaken: ("id_taken", None),
    QuotaExceeded: ("quota", 30.0),
    WrongState: ("conflict", None),
    Unstorable: ("bad_request", None),
}
"""The problem's code, and the seconds of `Retry-After`, for each class of error of the database."""
