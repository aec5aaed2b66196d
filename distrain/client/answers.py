"""The errors of refusing answers, in the service's own words."""

from collections.abc import Mapping
from typing import Any

from distrain.client.errors import (
    NotAuthorised,
    NotFinished,
    NotFound,
    Pointer,
    RequestRefused,
    ServiceError,
    ServiceUnavailable,
)
from distrain.client.transport import Answer, Call

_MOST_POINTERS = 20
_LONGEST_DETAIL = 4000


def problem(answer: Answer, call: Call, address: str) -> ServiceError:
    document = answer.document()
    told = document if isinstance(document, dict) else {}
    code = _text(told, "code")
    kind = _kind(answer.status, code)
    where: dict[str, object] = {"server": address}
    pointers = tuple(_pointers(told))
    message = _without(pointers, _text(told, "detail")) or _text(told, "title")
    message = message or f"the service answered {answer.status} to {call.method} {call.path}"
    for one in pointers[:_MOST_POINTERS]:
        if one.detail != message:
            where[one.pointer or "/"] = one.detail
    if len(pointers) > _MOST_POINTERS:
        where["more mistakes"] = len(pointers) - _MOST_POINTERS
    if instance := _text(told, "instance"):
        where["request"] = instance
    hint = (answer.status != 429 and _text(told, "hint")) or _hint(answer, code)
    return kind(message, where=where, hint=hint, code=code, status=answer.status, pointers=pointers)


def _without(pointers: tuple[Pointer, ...], message: str) -> str:
    """A message without the single mistakes at its end, which stand with their places.

    >>> _without((Pointer("/spec/name", "too long"),), "the spec has a mistake: too long")
    'the spec has a mistake'
    """
    for count in range(len(pointers), 0, -1):
        told = "; ".join(one.detail for one in pointers[:count])
        if told and message.endswith(f": {told}"):
            return message.removesuffix(f": {told}")
    return message


def _kind(status: int, code: str) -> type[ServiceError]:
    if status in (401, 403):
        return NotAuthorised
    if status == 404 and code:  # without a code, something else than a service answered
        return NotFound
    if code == "not_final":
        return NotFinished
    if status in (502, 503, 504):
        return ServiceUnavailable
    return RequestRefused if 400 <= status < 500 and code else ServiceError


def _hint(answer: Answer, code: str) -> str | None:
    if answer.status == 401:
        return "`distrain login ADDRESS` stores a token."
    if answer.status == 429:
        wait = answer.headers.get("retry-after")
        return f"Try again in {wait} s." if wait else "Try again later."
    if 300 <= answer.status < 400:
        target = answer.headers.get("location", "").partition("?")[0]
        return f"It refers to {target}: log in to that address." if target else None
    if not code:
        return "Is the address that of `distrain serve`, with its whole path?"
    return None


def _text(told: Mapping[str, Any], name: str) -> str:
    value = told.get(name)
    return value[:_LONGEST_DETAIL] if isinstance(value, str) else ""


def _pointers(told: Mapping[str, Any]) -> list[Pointer]:
    errors = told.get("errors")
    found = errors if isinstance(errors, list) else []
    return [
        Pointer(_text(one, "pointer"), _text(one, "detail"))
        for one in found
        if isinstance(one, dict)
    ]
