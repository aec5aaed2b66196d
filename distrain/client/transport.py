"""Requests to a service, their answers and failures, and their forms in httpx2."""

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from distrain.client.credentials import (
    SERVER_VARIABLE,
    Address,
    check_token,
    find_login,
    parse_address,
)
from distrain.client.errors import Pointer, ServiceError
from distrain.errors import InputError
from distrain.version import __version__


@dataclass(frozen=True)
class Call:
    method: str
    path: str  # below the service's address, with quoted segments
    params: Mapping[str, str | list[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None  # JSON values, or `None`
    # whether it may be sent again if nobody knows what became of it: it changes nothing, changes
    # the same thing once, or names a new job by its id
    repeats: bool = True
    read_s: float = 30.0  # how long the connection may be silent
    whole_s: float | None = 120.0  # how long all of the answer may take; `None`: for ever
    held_s: float = 0.0  # how long the service may hold the request back before it answers


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)  # with names in lower case
    content: bytes = b""
    cut: str = ""  # why its content is only a beginning; "" if it is whole

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300

    def document(self) -> Any:
        """The content as JSON; `None` if it is none."""
        try:
            return json.loads(self.content)
        except ValueError:
            return None


@dataclass(frozen=True)
class Failed:
    """No answer, or no more of it."""

    why: str
    sent: bool = True  # whether the request may have reached the service
    for_good: bool = False  # whether another try can only end the same way, as with a certificate


_CONNECT_S = 10.0

SLOW_S = 2.0  # the time without the head of an answer after which `on_retry` is called


@dataclass(frozen=True)
class ServiceTarget:
    address: Address
    token: str | None
    ca_file: Path | None

    def __repr__(self) -> str:
        return f"Target({self.address.text})"

    def options(self) -> dict[str, Any]:
        """Arguments of httpx2's clients; redirects are not followed, since they may lead away."""
        headers = {"User-Agent": f"distrain/{__version__}", "Accept": "application/json"}
        headers["Accept-Encoding"] = "identity"  # bytes are counted: logs, ranges
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        return {
            "base_url": self.address.base_url,
            "headers": headers,
            "verify": self._tls(),
            # Proxies of the environment are for the world; with a socket httpx2 knows none.
            "trust_env": not self.address.is_local,
        }

    def _tls(self) -> ssl.SSLContext | bool:
        if not self.address.base_url.startswith("https:"):
            return False
        if self.ca_file is None:
            return True
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:  # ssl.SSLError is one
            raise InputError(
                f"the file of the certificate authority cannot be used: {error.strerror or error}",
                where={"file": self.ca_file},
                hint="It is a PEM file with the certificate that signed the service's.",
            ) from None

    def hidden(self, text: str) -> str:
        """A text without the token, which a server or a library may have repeated."""
        return text.replace(self.token, "[token]") if self.token else text

    def cleared(self, error: ServiceError) -> ServiceError:
        """An error whose texts do not hold the token."""
        return type(error)(
            self.hidden(error.message),
            where={name: self.hidden(str(value)) for name, value in error.where.items()},
            hint=error.hint and self.hidden(error.hint),
            code=self.hidden(error.code),
            status=error.status,
            pointers=[
                Pointer(self.hidden(one.pointer), self.hidden(one.detail)) for one in error.pointers
            ],
        )


def find_target(
    address: str | None, token: str | None, ca_file: str | Path | None, *, plain_http: bool
) -> ServiceTarget:
    """The target, by arguments, environment and logins; raises InputError."""
    login = find_login(address, token)
    if login is None:
        raise InputError(
            "no service is named", hint=f"Log in: distrain login ADDRESS; or set {SERVER_VARIABLE}."
        )
    parsed = parse_address(login.address)
    check_token(login.token, parsed, plain_http=plain_http or login.plain_http)
    file = ca_file or login.ca_file
    return ServiceTarget(parsed, login.token, Path(file) if file else None)


def request_options(call: Call) -> dict[str, Any]:
    options: dict[str, Any] = {
        "method": call.method,
        "url": call.path,
        "params": dict(call.params) or None,
        "headers": dict(call.headers),
        "timeout": httpx2.Timeout(call.read_s, connect=min(_CONNECT_S, call.read_s)),
    }
    if call.body is not None:
        options["content"] = json.dumps(call.body, allow_nan=False).encode()
        options["headers"]["Content-Type"] = "application/json"
    return options


def head(response: httpx2.Response) -> Reply:
    return Reply(response.status_code, {k.lower(): v for k, v in response.headers.items()})


class Outcome:
    failed: Failed | None = None


@contextmanager
def failures(target: ServiceTarget) -> Iterator[Outcome]:
    outcome = Outcome()
    try:
        yield outcome
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
        why = target.hidden(_words(error))
        outcome.failed = Failed(why, sent=False, for_good=_is_for_good(error))
    except httpx2.TransportError as error:
        for_good = isinstance(error, (httpx2.LocalProtocolError, httpx2.UnsupportedProtocol))
        outcome.failed = Failed(target.hidden(_words(error)), for_good=for_good)


def _words(error: Exception) -> str:
    names: dict[type[Exception], str] = {
        httpx2.ConnectTimeout: "no connection in time",
        httpx2.ReadTimeout: "silence for too long",
        httpx2.WriteTimeout: "it took no bytes for too long",
    }
    return names.get(type(error)) or str(error) or type(error).__name__


def _is_for_good(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False
