"""Which errors of filesystems and object stores a later try may cure.

Nothing is imported to tell: libraries are known by the names of their errors, so that none of them
has to be installed.
"""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Iterator

from distrain.errors import Unavailable

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
    *(
        "ConnectTimeoutError",
        "ConnectionClosedError",
        "ConnectionError",
        "CredentialRetrievalError",
    ),
    *("DeadlineExceeded", "EndpointConnectionError", "HTTPClientError", "IncompleteRead"),
    *("IncompleteReadError", "MaxRetryError", "MetadataRetrievalError", "NetworkError"),
    *("ProtocolError", "ProxyConnectionError", "ReadTimeoutError", "ResponseParserError"),
    *("ResponseStreamingError", "RetryError", "SSHException", "ServerTimeoutError"),
    *("ServiceRequestError", "ServiceResponseError", "ServiceUnavailable", "Timeout"),
    *("TimeoutException", "TooManyRequests", "TransportError"),
}

_PASSING_STATUSES = {408, 425, 429, 500, 502, 503, 504, 509, 598, 599}
# What object stores call it when they say "later", whatever the HTTP status.
_PASSING_CODES = {
    *("InternalError", "OperationAborted", "RequestLimitExceeded", "RequestTimeout"),
    *("ServerBusy", "ServiceUnavailable", "SlowDown", "Throttling", "ThrottlingException"),
    *("TooManyRequests", "TooManyRequestsException"),
}

# Arrow's own filesystems and C++ libraries tell in words only.
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


def may_pass(error: BaseException) -> bool:
    """Whether what went wrong may go well another time: the storage is away, or overloaded.

    An error and those behind it are looked at, the outermost first, and the first that tells
    decides. What is missing, forbidden or damaged stays so; so does what nobody knows.

    >>> may_pass(OSError(errno.ESTALE, "Stale file handle")), may_pass(FileNotFoundError())
    (True, False)
    """
    told = (_verdict(link) for link in _chain(error))
    return next((verdict for verdict in told if verdict is not None), False)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and what brought it about; errors may refer to each other in a circle."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def _verdict(error: BaseException) -> bool | None:
    """Whether this error passes; `None` if it does not tell."""
    text = str(error)
    if isinstance(error, FileNotFoundError) and error.__cause__ is not None:
        return may_pass(error.__cause__)  # fsspec says so of servers that do not answer, too
    if isinstance(error, _FINAL_TYPES) or _is_called(error, _FINAL_NAMES):
        return False
    if isinstance(error, OSError | RuntimeError) and _FINAL_WORDS.search(text):
        return False
    told = _verdict_of_server(error)
    if told is not None:
        return told
    if isinstance(error, _PASSING_TYPES) or _is_called(error, _PASSING_NAMES):
        return True
    number = error.errno if isinstance(error, OSError) else None
    if number in _PASSING_ERRNOS:
        return True
    if number in _FINAL_ERRNOS:
        return False
    if isinstance(error, OSError | RuntimeError):
        return _verdict_of_words(text)
    return None


def _is_called(error: BaseException, names: set[str]) -> bool:
    return any(
        kind.__name__ in names
        and kind.__module__.partition(".")[0] in {*_LIBRARIES, "pyarrow", "ssl"}
        for kind in type(error).__mro__
    )


def _verdict_of_server(error: BaseException) -> bool | None:
    """By the code and the HTTP status that a server answered."""
    response = getattr(error, "response", None)
    told = response if isinstance(response, dict) else {}
    code = told.get("Error", {}).get("Code")
    if code in _PASSING_CODES:
        return True
    for status in (told.get("ResponseMetadata", {}).get("HTTPStatusCode"), code, _status(error)):
        number = int(str(status)) if str(status).isdecimal() else 0
        if number >= 400:
            return number in _PASSING_STATUSES
    return None


def _status(error: BaseException) -> object:
    """The HTTP status as aiohttp (`status`), Azure's and Google's libraries keep it."""
    if type(error).__module__.partition(".")[0] not in {*_LIBRARIES, "urllib"}:
        return None
    # Not by getattr: what is an old name there warns.
    own = (vars(error).get(name) for name in ("status", "status_code", "code"))
    return next((status for status in own if status is not None), None)


def _verdict_of_words(text: str) -> bool | None:
    status = _HTTP_STATUS.search(text)
    if status:
        return int(status[1]) in _PASSING_STATUSES
    return True if _PASSING_WORDS.search(text) else None
