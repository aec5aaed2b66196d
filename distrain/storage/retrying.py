"""Retries calls that fail because a storage does not answer or is overloaded.

Transient errors of libraries are recognised by the names of their types, so that no library needs
to be imported or installed.
"""

import errno
import logging
import re
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import TypeVar

from distrain.backoff import doubled_s
from distrain.errors import DistrainError, Unavailable

_PASSING_ERRNOS = {
    getattr(errno, name)
    for name in (
        *("EAGAIN", "EBUSY", "ECONNABORTED", "ECONNREFUSED", "ECONNRESET", "EHOSTDOWN"),
        *("EHOSTUNREACH", "EINTR", "EIO", "ENETDOWN", "ENETRESET", "ENETUNREACH", "ENOBUFS"),
        *("ENOLINK", "ENOTCONN", "EPIPE", "EREMOTEIO", "ESHUTDOWN", "ESTALE", "ETIME"),
        "ETIMEDOUT",
    )
    if hasattr(errno, name)
}
_FINAL_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENAMETOOLONG}

_FINAL_TYPES = (
    FileNotFoundError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    FileExistsError,
    MemoryError,
)
# Python's TimeoutError and ConnectionError are OSErrors, but need not have a number.
_PASSING_TYPES = (Unavailable, TimeoutError, ConnectionError, socket.gaierror)

# Errors of these libraries have no common type.
_LIBRARIES = {
    *("aiobotocore", "aiohttp", "azure", "botocore", "fsspec", "gcsfs", "google", "http"),
    *("httpcore", "httpx", "paramiko", "requests", "urllib3"),
}
_FINAL_NAMES = {
    *("ArrowInvalid", "ClientConnectorCertificateError", "InvalidURL", "NoCredentialsError"),
    *("ParamValidationError", "PartialCredentialsError", "SSLCertVerificationError"),
}
_PASSING_NAMES = {
    *("BadStatusLine", "ChunkedEncodingError", "ClientConnectionError", "ClientPayloadError"),
    *("ConnectTimeoutError", "ConnectionClosedError", "ConnectionError"),
    *(
        "CredentialRetrievalError",
        "DeadlineExceeded",
        "EndpointConnectionError",
        "HTTPClientError",
        "IncompleteRead",
    ),
    *("IncompleteReadError", "MaxRetryError", "MetadataRetrievalError", "NetworkError"),
    *("ProtocolError", "ProxyConnectionError", "ReadTimeoutError", "ResponseParserError"),
    *("ResponseStreamingError", "RetryError", "SSHException", "ServerTimeoutError"),
    *("ServiceRequestError", "ServiceResponseError", "ServiceUnavailable", "Timeout"),
    *("TimeoutException", "TooManyRequests", "TransportError"),
}

_PASSING_STATUSES = {408, 425, 429, 500, 502, 503, 504, 509, 598, 599}
# Codes of object stores for "try later", with any HTTP status.
_PASSING_CODES = {
    *("InternalError", "OperationAborted", "RequestLimitExceeded", "RequestTimeout"),
    *("ServerBusy", "ServiceUnavailable", "SlowDown", "Throttling", "ThrottlingException"),
    *("TooManyRequests", "TooManyRequestsException"),
}

# Arrow's own filesystems and C++ libraries have no codes, only messages.
_HTTP_STATUS = re.compile(r"HTTP (?:response )?(?:status|code)(?: code)?[ :=]+\(?([1-5][0-9]{2})\b")
_FINAL_WORDS = re.compile(
    r"AWS Error (?:ACCESS_DENIED|NO_SUCH_\w+|RESOURCE_NOT_FOUND|INVALID_\w+|SIGNATURE_\w+)"
    r"|certificate verify failed",
    re.IGNORECASE,
)
_PASSING_WORDS = re.compile(
    r"AWS Error (?:INTERNAL_FAILURE|NETWORK_CONNECTION|REQUEST_TIMEOUT|REQUEST_EXPIRED"
    r"|SERVICE_UNAVAILABLE|SLOW_DOWN|THROTTLING)"
    r"|\b(?:UNAVAILABLE|DEADLINE_EXCEEDED|RESOURCE_EXHAUSTED)\b"
    r"|connection (?:reset|refused|timed out|aborted)|stale file handle|input/output error"
    r"|temporary failure in name resolution|broken pipe|operation timed out",
    re.IGNORECASE,
)


def is_transient(error: BaseException) -> bool:
    """Return True if a retry may succeed: the storage does not answer, or is overloaded.

    The error and its causes are examined, the outermost first; the first known error decides.
    Missing, forbidden or damaged files and unknown errors are not transient.

    >>> is_transient(OSError(errno.ESTALE, "Stale file handle")), is_transient(FileNotFoundError())
    (True, False)
    """
    verdicts = (_verdict(link) for link in _chain(error))
    return next((verdict for verdict in verdicts if verdict is not None), False)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, the outermost first.

    Each error is yielded once, since causes may form a cycle.
    """
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _verdict(error: BaseException) -> bool | None:
    """Return True if an error is transient, False if it is not, `None` if it is unknown.

    First come types and words of the message for which a retry is useless, then a server's answer,
    then transient types and the `errno`, and last the other words of the message; the first that is
    known decides. A `FileNotFoundError` with a cause is judged by the cause.
    """
    text = str(error)
    if isinstance(error, FileNotFoundError) and error.__cause__ is not None:
        return is_transient(error.__cause__)  # fsspec raises it for unreachable servers, too
    if isinstance(error, _FINAL_TYPES) or _is_called(error, _FINAL_NAMES):
        return False
    if isinstance(error, OSError | RuntimeError) and _FINAL_WORDS.search(text):
        return False
    verdict = _verdict_of_server(error)
    if verdict is not None:
        return verdict
    if isinstance(error, _PASSING_TYPES) or _is_called(error, _PASSING_NAMES):
        return True
    number = error.errno if isinstance(error, OSError) else None
    if number in _PASSING_ERRNOS:
        return True
    if number in _FINAL_ERRNOS:
        return False
    if isinstance(error, OSError | RuntimeError):
        return _verdict_of_message(text)
    return None


def _is_called(error: BaseException, names: set[str]) -> bool:
    return any(
        kind.__name__ in names
        and kind.__module__.partition(".")[0] in {*_LIBRARIES, "pyarrow", "ssl"}
        for kind in type(error).__mro__
    )


def _verdict_of_server(error: BaseException) -> bool | None:
    response = getattr(error, "response", None)
    answer = response if isinstance(response, dict) else {}
    code = answer.get("Error", {}).get("Code")
    if code in _PASSING_CODES:
        return True
    for status in (answer.get("ResponseMetadata", {}).get("HTTPStatusCode"), code, _status(error)):
        number = int(str(status)) if str(status).isdecimal() else 0
        if number >= 400:
            return number in _PASSING_STATUSES
    return None


def _status(error: BaseException) -> object:
    """Return the HTTP status in an error of aiohttp, urllib, Azure's or Google's library.

    `None` if the error has none, or is of another library.
    """
    if type(error).__module__.partition(".")[0] not in {*_LIBRARIES, "urllib"}:
        return None
    # Not by `getattr`, since deprecated attributes would warn.
    own = (vars(error).get(name) for name in ("status", "status_code", "code"))
    return next((status for status in own if status is not None), None)


def _verdict_of_message(text: str) -> bool | None:
    status = _HTTP_STATUS.search(text)
    if status:
        return int(status[1]) in _PASSING_STATUSES
    return True if _PASSING_WORDS.search(text) else None


RETRY_S = 300.0
"""Seconds for which commands retry reads and writes of object stores; jobs have `data.retry_s`."""

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 15.0

_LAST_TRY_S = 60.0  # longest duration of one try: libraries have timeouts and retries of their own

_POLL_S = 0.25  # during a pause, seconds between checks whether the thread should stop

_T = TypeVar("_T")

log = logging.getLogger("distrain.storage")

_this_thread = threading.local()

# Deadline of each retrying thread, by thread id (monotonic clock).
_waits: dict[int, float] = {}


def pause_s(number: int, key: str) -> float:
    """Return the seconds to wait after failure `number`, from 0.

    The pause doubles with each failure, up to `LONGEST_PAUSE_S`. It is shortened by up to a half,
    depending on a checksum of `key` and `number`, so that readers do not retry at the same time.

    >>> [round(pause_s(number, "a"), 2) for number in (0, 1, 2, 20)]
    [0.25, 0.72, 1.92, 9.88]
    """
    whole_s = doubled_s(FIRST_PAUSE_S, number, LONGEST_PAUSE_S)
    return whole_s * (0.5 + zlib.crc32(f"{key} {number}".encode()) / 2**33)


def with_retries(read: Callable[[], _T], where: Mapping[str, object], retry_s: float) -> _T:
    """Return the result of `read`, retried with growing pauses while its errors are transient.

    `read` must have no side effects when it fails, and must not call this function. The log and the
    error contain `where`. Errors that are not transient are raised unchanged.

    Raises:
        Unavailable: `read` still fails `retry_s` seconds after its first failure (0: it is tried
            once), or the function of `stop_retrying_when` returns true.
    """
    began_s = 0.0
    try:
        for number in count():
            try:
                return read()
            except Exception as error:
                if not is_transient(error):
                    raise
                now_s = time.monotonic()
                began_s = began_s or now_s
                left_s = began_s + retry_s - now_s
                if left_s <= 0 or _is_stopped():
                    raise _given_up(error, where, number + 1, now_s - began_s) from error
                next_s = min(pause_s(number, repr(where)), left_s)
                _log_retry(error, where, number + 1, next_s)
            _waits[threading.get_ident()] = began_s + retry_s + _LAST_TRY_S
            _pause(next_s)
    finally:
        _waits.pop(threading.get_ident(), None)
    raise AssertionError("unreachable")


def is_retrying() -> bool:
    """Return True if a thread of this process is retrying a call.

    A thread that is `_LAST_TRY_S` past its retry limit does not count: it hangs in a call.
    """
    now_s = time.monotonic()
    return any(until_s > now_s for until_s in list(_waits.values()))


def stop_retrying_when(is_over: Callable[[], bool]) -> None:
    """Make the calling thread stop retrying once `is_over` returns true."""
    _this_thread.is_over = is_over


def _is_stopped() -> bool:
    is_over: Callable[[], bool] | None = getattr(_this_thread, "is_over", None)
    return is_over is not None and is_over()


def _pause(seconds: float) -> None:
    end_s = time.monotonic() + seconds
    while (left_s := end_s - time.monotonic()) > 0 and not _is_stopped():
        time.sleep(min(left_s, _POLL_S))


def first_line(error: BaseException) -> str:
    text = error.message if isinstance(error, DistrainError) else str(error)
    return next(iter(text.splitlines()), "") or type(error).__name__


def _log_retry(error: Exception, where: Mapping[str, object], tries: int, next_s: float) -> None:
    places = ", ".join(f"{place} {value}" for place, value in where.items())
    message = "waiting for storage: %s (%s); try %d failed, the next in %.1f s"
    log.warning(message, first_line(error), places, tries, next_s)


def _given_up(
    error: Exception, where: Mapping[str, object], tries: int, waited_s: float
) -> Unavailable:
    effort = "1 try" if tries == 1 else f"{tries} tries in {waited_s:.0f} s"
    return Unavailable(
        f"the storage does not answer ({effort}): {first_line(error)}",
        where=where,
        hint="Check that its server and the network are up; data.retry_s limits the wait of ranks.",
    )
