"""The connection to a service: sends calls until they are answered, and reads long answers."""

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import Any

import httpx2

from distrain.client import transport
from distrain.client.errors import (
    NotAuthorised,
    NotFinished,
    NotFound,
    Pointer,
    RequestRefused,
    ServiceError,
    ServiceUnavailable,
)
from distrain.client.retries import Retries, answered
from distrain.client.transport import (
    Call,
    Failed,
    Reply,
    ServiceTarget,
    failures,
    head,
    request_options,
)

_MOST_REFUSAL_BYTES = 2**23


class Connection:
    """Sends calls to one service; `on_retry` hears why, before each pause and of late answers."""

    def __init__(
        self, target: ServiceTarget, retries: Retries, on_retry: Callable[[str], object] | None
    ) -> None:
        self.address = target.address.text
        self.retries = retries
        self._target = target
        self._on_retry = on_retry
        socket = target.address.socket
        way = httpx2.HTTPTransport(uds=str(socket)) if socket else None
        self._http = httpx2.Client(**target.options(), transport=way)

    def close(self) -> None:
        self._http.close()

    @property
    def held_s(self) -> float:
        """The time for which the service may hold a request without looking silent."""
        return self.retries.for_s / 2

    def at_most(self, for_s: float) -> "Connection":
        hasty = copy(self)
        hasty.retries = replace(self.retries, for_s=min(self.retries.for_s, for_s))
        return hasty

    def pause(self, seconds: float, why: str = "") -> None:
        """Wait; `on_retry` gets `why`."""
        if why and self._on_retry is not None:
            self._on_retry(why)
        time.sleep(seconds)

    def ask(self, call: Call, *, keeps_cut: bool = False) -> Reply:
        """The answer to a call, whatever its status; of `keeps_cut` a beginning of its content."""
        with self.without_token():
            return answered(call, self._send, self.pause, self.retries, self.address, keeps_cut)

    def document(self, call: Call) -> Mapping[str, Any]:
        return self.good(self.ask(call), call)

    def good(self, answer: Reply, call: Call) -> Mapping[str, Any]:
        self.check(answer, call)
        document = answer.document()
        if isinstance(document, dict):
            return document
        with self.without_token():
            raise ServiceError(
                f"what answered {call.method} {call.path} is no service: it sent no JSON object",
                where={"server": self.address},
                hint="Is the address that of `distrain serve`? A proxy or a login page may be "
                "between.",
                status=answer.status,
            )

    def check(self, answer: Reply, call: Call) -> None:
        with self.without_token():
            if not answer.is_good and answer.status != 304:
                raise problem(answer, call, self.address)

    @contextmanager
    def without_token(self) -> Iterator[None]:
        """Take the token, which a service may have repeated, out of the errors of a block."""
        try:
            yield
        except ServiceError as error:
            raise self._target.cleared(error) from None

    @contextmanager
    def stream(self, call: Call) -> Iterator["Stream"]:
        stream = Stream(self._target, self._begin)
        try:
            with self.without_token():
                answered(call, stream.open, self.pause, self.retries, self.address)
                yield stream
        finally:
            stream.close()

    def _send(self, call: Call) -> Reply | Failed:
        until_s = time.monotonic() + (math.inf if call.whole_s is None else call.whole_s)
        stream = Stream(self._target, self._begin)
        try:
            head = stream.open(call)
            return head if isinstance(head, Failed) else stream.whole(until_s, math.inf)
        finally:
            stream.close()

    def _begin(self, call: Call) -> httpx2.Response:
        """Send a request and read the head of its answer; `on_retry` hears of a late one."""
        request = self._http.build_request(**request_options(call))
        if self._on_retry is None:
            return self._http.send(request, stream=True)
        words = f"no answer yet to {call.method} {call.path}"
        timer = threading.Timer(call.held_s + transport.SLOW_S, self._on_retry, (words,))
        timer.daemon = True
        timer.start()
        try:
            return self._http.send(request, stream=True)
        finally:
            timer.cancel()


class Stream:
    """An answer whose content is read piece by piece; `answer` is its head."""

    def __init__(self, target: ServiceTarget, begin: Callable[[Call], httpx2.Response]) -> None:
        self.answer = Reply(0)
        self._target = target
        self._begin = begin
        self._response: httpx2.Response | None = None
        self._chunks: Iterator[bytes] = iter(())

    def open(self, call: Call) -> Reply | Failed:
        """Send a request, and read the head of its answer; an earlier answer is closed."""
        self.close()
        with failures(self._target) as outcome:
            self._response = self._begin(call)
            self._chunks = self._response.iter_raw()
            self.answer = head(self._response)
        return outcome.failed or self.answer

    def read(self) -> bytes | Failed | None:
        with failures(self._target) as outcome:
            return next(self._chunks, None)
        return outcome.failed

    def whole(self, until_s: float = math.inf, most_bytes: float = _MOST_REFUSAL_BYTES) -> Reply:
        """The answer with its content, as far as it came in that time."""
        content = bytearray()
        while isinstance(chunk := self.read(), bytes) and len(content) <= most_bytes:
            content += chunk
            if time.monotonic() >= until_s:
                return replace(self.answer, content=bytes(content), cut="the answer took too long")
        cut = chunk.why if isinstance(chunk, Failed) else ""
        return replace(self.answer, content=bytes(content), cut=cut)

    def close(self) -> None:
        if self._response is not None:
            self._response.close()
            self._response = None


_MOST_POINTERS = 20
_LONGEST_DETAIL = 4000


def problem(answer: Reply, call: Call, address: str) -> ServiceError:
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


def _hint(answer: Reply, code: str) -> str | None:
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
