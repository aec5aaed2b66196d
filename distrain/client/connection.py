"""The connection to a service: sends calls, retries them, and reads streamed responses."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2
from tenacity import RetryCallState, Retrying, stop_after_attempt, stop_before_delay, stop_never

from distrain.client.errors import (
    NotAuthorised,
    NotFinished,
    NotFound,
    RequestRefused,
    ServiceError,
    ServiceUnavailable,
)
from distrain.client.retries import (
    UNSENT,
    Retries,
    certificate_hint,
    is_permanent,
    json_of,
    retry_after_s,
    retry_reason,
)
from distrain.client.service_target import ServiceTarget
from distrain.jobs.api_answers import Problem

_LEAST_READ_S = 1.0  # the shortest read timeout, when little time for tries is left
_MOST_POINTERS = 20


@dataclass(frozen=True)
class Call:
    """A request to the service."""

    method: str
    path: str  # below the service's address, with quoted segments
    params: Mapping[str, str | list[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None  # JSON values, or `None`
    # whether the call may be sent again if the service may have received it: only if a second call
    # has no further effect, as when it reads something or contains the id of the new job
    repeats: bool = True
    read_s: float = 30.0  # how long the connection may be silent
    connect_s: float = 10.0  # how long opening the connection may take; `read_s` if that is less


class Connection:
    """Sends calls to one service.

    `on_retry` is called with the reason before each pause.
    """

    def __init__(
        self,
        target: ServiceTarget,
        retries: Retries,
        on_retry: Callable[[str], object] | None,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self.address = target.address.text
        self.retries = retries
        self._target = target
        self._on_retry = on_retry
        socket = target.address.socket
        own = httpx2.HTTPTransport(uds=str(socket)) if socket else None
        self._http = httpx2.Client(**target.options(), transport=transport or own)

    def close(self) -> None:
        self._http.close()

    def with_retry_limit(self, for_s: float) -> "Connection":
        """Return a copy of this connection that retries for at most `for_s` seconds."""
        hasty = copy(self)
        hasty.retries = replace(self.retries, for_s=min(self.retries.for_s, for_s))
        return hasty

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def request(self, call: Call) -> httpx2.Response:
        """Send a call, with retries, and return its response, with any status.

        Raises `ServiceUnavailable` if the last try got no response.
        """
        return self._answered(call, read=True)

    def send(self, call: Call, *, read: bool = True) -> httpx2.Response:
        """Send a call once, without retries, and return its response, with any status.

        Without `read`, the content of a successful response is not read yet. Raises
        httpx2.RequestError if there is no response.
        """
        timeout = httpx2.Timeout(call.read_s, connect=min(call.connect_s, call.read_s))
        request = self._http.build_request(
            call.method,
            call.path,
            params=dict(call.params) or None,
            headers=dict(call.headers),
            json=call.body,
            timeout=timeout,
        )
        answer = self._http.send(request, stream=True)
        if read or not answer.is_success:
            answer.read()
        return answer

    def document(self, call: Call) -> Mapping[str, Any]:
        """Send a call, with retries, and return the JSON object of its response.

        Raises `ServiceUnavailable` if there is no response, and the errors of `json_object`.
        """
        return self.json_object(self.request(call), call)

    def json_object(self, answer: httpx2.Response, call: Call) -> Mapping[str, Any]:
        """Return a response's JSON object.

        Raises the errors of `check`, and `ServiceError` if there is no JSON object.
        """
        self.check(answer, call)
        document = json_of(answer)
        if isinstance(document, dict):
            return document
        raise ServiceError(
            f"what answered {call.method} {call.path} is not the service: it sent no JSON object",
            where={"server": self.address},
            hint="Is the address that of `distrain serve`? A proxy or a login page may be between.",
            status=answer.status_code,
        )

    def check(self, answer: httpx2.Response, call: Call) -> None:
        """Raise a `ServiceError` or a subclass unless the status is 2xx or 304."""
        if not answer.is_success and answer.status_code != 304:
            with suppress(httpx2.TransportError):
                answer.read()
            raise self._problem(answer, call)

    def _problem(self, answer: httpx2.Response, call: Call) -> ServiceError:
        """Return the exception for the response to a failed or rejected call.

        Its class follows from the problem's code and the status. It names the first mistakes of the
        problem by their pointers, and has the service's hint, except for status 429. An answer of
        another form gives an exception with the status and the call. The token is hidden in the
        answer, which may have repeated it.
        """
        status = answer.status_code
        document: Any = None
        if answer.is_stream_consumed:
            with suppress(ValueError):
                document = json.loads(self._target.hidden(answer.text))
        document = document if isinstance(document, dict) else {}
        told = Problem.read({**document, "errors": _objects(document.get("errors"))})
        where: dict[str, object] = {"server": self.address}
        message = told.detail or told.title
        message = message or f"the service answered {status} to {call.method} {call.path}"
        for one in told.errors[:_MOST_POINTERS]:
            if one.detail != message:
                where[one.pointer or "/"] = one.detail
        if len(told.errors) > _MOST_POINTERS:
            where["more mistakes"] = len(told.errors) - _MOST_POINTERS
        if told.instance:
            where["request"] = told.instance
        hint = (status != 429 and told.hint) or _hint(answer, told.code)
        kind, pointers = _kind(status, told.code), told.errors
        return kind(
            message, where=where, hint=hint, code=told.code, status=status, pointers=pointers
        )

    @contextmanager
    def stream(self, call: Call) -> Iterator[httpx2.Response]:
        """Send a call and yield the response, whose content is not read yet.

        If the connection breaks while the content is read, httpx2 raises a TransportError.
        """
        answer = self._answered(call, read=False)
        try:
            yield answer
        finally:
            answer.close()

    def _answered(self, call: Call, *, read: bool) -> httpx2.Response:
        """Send a call, with retries, and return its response, with any status.

        Without `read`, the content of a successful response is not read yet. Raises
        `ServiceUnavailable` if the last try got no response.
        """
        retries, began_s = self.retries, time.monotonic()
        tries = Retrying(
            retry=lambda state: bool(_retry_reason(state, call)),
            wait=lambda state: retries.pause_s(state.attempt_number, _asked_s(state)),
            stop=_stop(retries),
            before_sleep=lambda state: self._report_retry(state, call),
            retry_error_callback=_last,
        )

        def send() -> httpx2.Response:
            left_s = max(_LEAST_READ_S, began_s + retries.for_s - time.monotonic())
            return self.send(replace(call, read_s=min(call.read_s, left_s)), read=read)

        try:
            return tries(send)
        except httpx2.RequestError as error:
            count, took_s = tries.statistics["attempt_number"], time.monotonic() - began_s
            words = self._target.hidden(_words(error))
            raise _unavailable(call, self.address, error, words, count, took_s) from None

    def _report_retry(self, state: RetryCallState, call: Call) -> None:
        if self._on_retry is not None and state.next_action is not None:
            why = self._target.hidden(_retry_reason(state, call))
            self._on_retry(f"{why}; again in {state.next_action.sleep:.1f} s")


def _last(state: RetryCallState) -> Any:
    """Return the response of the last allowed try, or raise its error."""
    assert state.outcome is not None
    return state.outcome.result()


def _stop(retries: Retries) -> Any:
    most = retries.most_tries
    return stop_before_delay(retries.for_s) | (stop_after_attempt(most) if most else stop_never)


def _retry_reason(state: RetryCallState, call: Call) -> str:
    """Return why a call should be retried after its last try.

    "" if it should not, or must not be repeated.
    """
    assert state.outcome is not None
    error = state.outcome.exception()
    if error is None:
        return retry_reason(state.outcome.result()) if call.repeats else ""
    may = isinstance(error, UNSENT) or (isinstance(error, httpx2.TransportError) and call.repeats)
    return _words(error) if may and not is_permanent(error) else ""


def _asked_s(state: RetryCallState) -> float:
    """Return the seconds of the response's `Retry-After`; 0 if there is none."""
    if state.outcome is None or state.outcome.failed:
        return 0.0
    return retry_after_s(state.outcome.result().headers.get("retry-after", ""))


def _words(error: BaseException) -> str:
    names: dict[type[BaseException], str] = {
        httpx2.ConnectTimeout: "no connection in time",
        httpx2.ReadTimeout: "no answer for too long",
        httpx2.WriteTimeout: "it accepted no bytes for too long",
    }
    return names.get(type(error)) or str(error) or type(error).__name__


def _unavailable(
    call: Call, address: str, error: Exception, words: str, tries: int, took_s: float
) -> ServiceUnavailable:
    times = "once" if tries == 1 else f"{tries} times"
    hint = "Is it running, and is the address right? `distrain login ADDRESS` checks both."
    if address.startswith("http://") and not isinstance(error, UNSENT):
        hint += " With TLS it begins with https://."
    if not call.repeats and not isinstance(error, UNSENT):
        hint = "The request may have been carried out: check before you repeat it."
    ca_option = "`distrain login --ca-file FILE ADDRESS` or DISTRAIN_CA_FILE"
    hint = certificate_hint(error, ca_option) or hint
    return ServiceUnavailable(
        f"the service gave no answer to {call.method} {call.path}: {words}",
        where={"server": address, "tried": f"{times} in {took_s:.0f} s"},
        hint=hint,
    )


def _objects(value: Any) -> list[Any]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _kind(status: int, code: str) -> type[ServiceError]:
    if status in (401, 403):
        return NotAuthorised
    if status == 404 and code:  # without a code, the response is not from a service
        return NotFound
    if code == "not_final":
        return NotFinished
    if status in (502, 503, 504):
        return ServiceUnavailable
    return RequestRefused if 400 <= status < 500 and code else ServiceError


def _hint(answer: httpx2.Response, code: str) -> str | None:
    if answer.status_code == 401:
        return "`distrain login ADDRESS` stores a token."
    if answer.status_code == 429:
        wait_s = retry_after_s(answer.headers.get("retry-after", ""))
        return f"Try again in {wait_s:.0f} s." if wait_s else "Try again later."
    if 300 <= answer.status_code < 400:
        target = answer.headers.get("location", "").partition("?")[0]
        return f"It refers to {target}: log in to that address." if target else None
    if not code:
        return "Is the address that of `distrain serve`, with its whole path?"
    return None
