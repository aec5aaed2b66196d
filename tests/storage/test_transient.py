"""Which errors a later try may cure, told from those of real libraries."""

import errno
import http.client
import socket
import ssl
import urllib.error

import pytest

from distrain.errors import DataError, Unavailable
from distrain.storage.retrying import is_transient

aiohttp = pytest.importorskip("aiohttp")
botocore = pytest.importorskip("botocore.exceptions")
pa = pytest.importorskip("pyarrow")
s3fs_errors = pytest.importorskip("s3fs.errors")


def client_error(code: str, status: int) -> Exception:
    answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return botocore.ClientError(answer, "GetObject")


def http_error(status: int) -> Exception:
    request = aiohttp.RequestInfo("http://host/a", "GET", {}, "http://host/a")
    return aiohttp.ClientResponseError(request, (), status=status, message="")


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def met(error: Exception, before: Exception) -> Exception:
    error.__context__ = before
    return error


PASS = [
    TimeoutError("timed out"),
    TimeoutError(errno.ETIMEDOUT, "Connection timed out"),
    ConnectionResetError("reset by peer"),
    BrokenPipeError(errno.EPIPE, "Broken pipe"),
    OSError(errno.ESTALE, "Stale file handle"),
    OSError(errno.EIO, "Input/output error"),
    OSError(errno.EHOSTUNREACH, "No route to host"),
    OSError(errno.EAGAIN, "Resource temporarily unavailable"),
    socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
    http.client.IncompleteRead(b"half"),
    http.client.RemoteDisconnected("closed"),
    urllib.error.HTTPError("http://host", 503, "busy", None, None),  # type: ignore[arg-type]
    botocore.EndpointConnectionError(endpoint_url="http://host"),
    botocore.ReadTimeoutError(endpoint_url="http://host"),
    botocore.ConnectTimeoutError(endpoint_url="http://host"),
    botocore.ConnectionClosedError(endpoint_url="http://host"),
    botocore.ResponseStreamingError(error="cut"),
    botocore.CredentialRetrievalError(provider="iam-role", error_msg="timed out"),
    client_error("SlowDown", 503),
    client_error("InternalError", 500),
    client_error("RequestTimeout", 400),
    client_error("ServiceUnavailable", 503),
    client_error("503", 503),
    client_error("Throttling", 400),
    client_error("TooManyRequests", 429),
    aiohttp.ServerDisconnectedError(),
    aiohttp.ClientPayloadError("not enough data"),
    aiohttp.ServerTimeoutError(),
    http_error(429),
    http_error(502),
    http_error(504),
    OSError(
        "When reading information for key 'a' in bucket 'b': AWS Error SLOW_DOWN during "
        "HeadObject operation: Please reduce your request rate."
    ),
    OSError(
        "When reading from key 'a' in bucket 'b': AWS Error NETWORK_CONNECTION during "
        "GetObject operation: curlCode: 28, Timeout was reached"
    ),
    OSError(
        "When reading from key 'a': AWS Error UNKNOWN (HTTP status 503) during GetObject "
        "operation: No response body."
    ),
    OSError("google::cloud::Status(UNAVAILABLE: Retry policy exhausted)"),
    RuntimeError("cuFile: cannot read: Input/output error"),
    Unavailable("the storage does not answer"),
    caused(OSError("GetObject failed"), client_error("SlowDown", 503)),
    caused(ValueError("wrapped"), caused(OSError("twice"), ConnectionResetError())),
    met(OSError("while reading"), botocore.EndpointConnectionError(endpoint_url="http://host")),
    caused(FileNotFoundError("http://host/a"), aiohttp.ServerDisconnectedError()),
    caused(DataError("could not read a row group"), OSError(errno.ESTALE, "Stale file handle")),
]

FINAL = [
    FileNotFoundError(errno.ENOENT, "No such file"),
    PermissionError(errno.EACCES, "Permission denied"),
    IsADirectoryError(errno.EISDIR, "Is a directory"),
    NotADirectoryError(errno.ENOTDIR, "Not a directory"),
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.EMFILE, "Too many open files"),
    OSError("Couldn't deserialize thrift: TProtocolException: Invalid data"),
    OSError("Unexpected end of stream: Page was smaller (10) than expected (20)"),
    OSError("Corrupt snappy compressed data."),
    OSError("When reading information for key 'a' in bucket 'b': AWS Error ACCESS_DENIED during "
            "HeadObject operation: No response body."),
    OSError("When reading from key 'a': AWS Error NO_SUCH_KEY during GetObject operation"),
    OSError("AWS Error UNKNOWN (HTTP status 400) during HeadObject operation: No response body."),
    OSError("AWS Error UNKNOWN (HTTP status 301) during HeadObject operation: No response body."),
    pa.ArrowInvalid("Parquet magic bytes not found in footer."),
    ValueError("nothing"),
    KeyError("column"),
    MemoryError(),
    RuntimeError("CUDF failure at: page index 503 of 504 is wrong"),
    botocore.NoCredentialsError(),
    botocore.ParamValidationError(report="Invalid bucket name"),
    client_error("AccessDenied", 403),
    client_error("ExpiredToken", 400),
    client_error("NoSuchKey", 404),
    client_error("404", 404),
    client_error("NotImplemented", 501),
    http_error(401),
    http_error(404),
    urllib.error.HTTPError("http://host", 404, "none", None, None),  # type: ignore[arg-type]
    aiohttp.InvalidURL("nowhere"),
    ssl.SSLCertVerificationError(1, "certificate verify failed: self-signed certificate"),
    botocore.SSLError(endpoint_url="https://host", error="certificate verify failed"),
    DataError("no such file"),
    caused(FileNotFoundError("http://host/a"), http_error(404)),
    caused(FileNotFoundError("the bucket does not exist"), client_error("NoSuchBucket", 404)),
    met(FileNotFoundError("a"), TimeoutError("the look before")),
    caused(OSError(errno.EINVAL, "bad request"), client_error("400", 400)),
]  # fmt: skip


def name(error: Exception) -> str:
    return f"{type(error).__name__}-{error}"[:50]


@pytest.mark.parametrize("error", PASS, ids=name)
def test_what_a_later_try_may_cure(error):
    assert is_transient(error)


@pytest.mark.parametrize("error", FINAL, ids=name)
def test_what_no_later_try_cures(error):
    assert not is_transient(error)


@pytest.mark.parametrize(
    ("code", "passes"),
    [
        *((code, True) for code in ("SlowDown", "ServiceUnavailable", "InternalError", "500")),
        ("RequestTimeout", True),
        *((code, False) for code in ("AccessDenied", "NoSuchKey", "403", "InvalidRange")),
        *((code, False) for code in ("SignatureDoesNotMatch", "InvalidAccessKeyId")),
    ],
)
def test_what_s3fs_makes_of_a_server_s_answer(code, passes):
    error = s3fs_errors.translate_boto_error(client_error(code, int(code) if code.isdigit() else 0))
    assert isinstance(error, OSError)
    assert is_transient(error) is passes


def test_what_fsspec_raises_when_its_time_is_over():
    exceptions = pytest.importorskip("fsspec.exceptions")
    assert is_transient(exceptions.FSTimeoutError())


def test_errors_that_refer_to_each_other_come_to_an_end():
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert not is_transient(first)


def test_what_was_hidden_on_purpose_does_not_count():
    hidden = met(ValueError("not that"), ConnectionResetError())
    assert is_transient(hidden)
    hidden.__suppress_context__ = True  # as `from None` does
    assert not is_transient(hidden)
