"""Addresses of services, the file of a user's logins, and the choice of a login."""

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from distrain.errors import InputError
from distrain.jobs.addresses import is_loopback
from distrain.storage.outputs import translated_errors
from distrain.workers.secrets import write_private

_FORMS = "https://HOST[:PORT], http://127.0.0.1:PORT, or unix:/PATH/OF/SOCKET"


@dataclass(frozen=True)
class Address:
    """The parsed address of a service."""

    text: str  # as stored and shown, without a slash at its end
    base_url: str  # paths are appended to it
    socket: Path | None = None  # the Unix socket, for `unix:`
    # whether the connection is private: TLS, or within this machine
    is_private: bool = True
    is_local: bool = True  # whether it is on this machine


def parse_address(text: str) -> Address:
    """Parse the address of a service.

    Raises:
        InputError: The text has none of the supported forms.

    >>> parse_address("https://jobs.example/distrain/").base_url
    'https://jobs.example/distrain'
    >>> parse_address("http://10.0.0.5:8686").is_private
    False
    """
    text = text.strip()
    if text.startswith("unix:"):
        return _socket_address(text)
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise _no_address(text, str(error)) from None
    if parts.username is not None or parts.password is not None:
        raise _no_address("https://...@" + host, "it holds a user name or a password")
    if parts.scheme not in ("http", "https") or not host:
        raise _no_address(text, "it does not begin with https://, http:// or unix:")
    if parts.query or parts.fragment or re.search(r"[\s\x00-\x1f\x7f]", text):
        raise _no_address(text, "it holds a query, a fragment or a space")
    shown = f"[{host}]" if ":" in host else host
    url = f"{parts.scheme}://{shown}{f':{port}' if port else ''}{parts.path.rstrip('/')}"
    is_local = is_loopback(host)
    return Address(url, url, None, parts.scheme == "https" or is_local, is_local)


def _socket_address(text: str) -> Address:
    path = text.removeprefix("unix:")
    path = re.sub(r"^//(?=/)", "", path)  # other programs write unix:///path
    if not path.startswith("/") or path.startswith("//"):
        raise _no_address(text, "the path of the socket is not absolute")
    return Address(f"unix:{path}", "http://localhost", Path(path))


def _no_address(text: str, why: str) -> InputError:
    return InputError(f"{text!r} is not the address of a service: {why}", hint=f"Use {_FORMS}.")


def check_token(token: str | None, address: Address, *, plain_http: bool) -> None:
    """Raise InputError for a malformed token, or one that would be sent without encryption.

    The latter is allowed with `plain_http`, and within this machine. The error does not contain the
    token.
    """
    if token is None:
        return
    if not re.fullmatch(r"[\x21-\x7e]+", token):
        raise InputError(
            "the token is empty, or holds spaces or characters that no token has",
            where={"server": address.text},
            hint="`distrain login ADDRESS` asks for it, checks it and stores it.",
        )
    if not address.is_private and not plain_http:
        raise InputError(
            "a token is not sent over plain http, where others could read it",
            where={"server": address.text},
            hint="Use https://, or a tunnel to http://127.0.0.1:PORT. In a network that you trust, "
            "`distrain login --plain-http ADDRESS` or Client(plain_http=True) allows it.",
        )


SERVER_VARIABLE = "DISTRAIN_SERVER"
TOKEN_VARIABLE = "DISTRAIN_TOKEN"
CA_VARIABLE = "DISTRAIN_CA_FILE"


@dataclass(frozen=True)
class Login:
    """A stored login at a service."""

    address: str
    token: str | None = field(default=None, repr=False)
    user: str = ""
    # PEM file of the CA that signed the service's certificate; `None`: those of the system
    ca_file: str | None = None
    plain_http: bool = False  # whether the user allows sending the token over plain http


@dataclass(frozen=True)
class Logins:
    """The stored logins by address, and the address of the default login."""

    default: str | None = None
    servers: Mapping[str, Login] = field(default_factory=dict)


def servers_file(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the file of logins: `~/.config/distrain/servers.json`, or below XDG_CONFIG_HOME."""
    return xdg_folder("XDG_CONFIG_HOME", ".config", environment) / "distrain" / "servers.json"


def xdg_folder(variable: str, default: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder that the variable of XDG names; otherwise `default` in the home folder."""
    named = environment.get(variable, "")
    return Path(named) if os.path.isabs(named) else Path.home() / default


def read_logins(path: Path) -> Logins:
    """Read the file of logins, if it exists, and make it private to the user.

    Raises:
        InputError: The file cannot be read, or is damaged.
    """
    try:
        with suppress(OSError):
            if path.stat().st_mode & 0o077:
                path.chmod(0o600)
        document = json.loads(path.read_bytes())
        servers = {
            address: Login(
                address,
                told.get("token"),
                told.get("user") or "",
                told.get("ca_file"),
                bool(told.get("plain_http")),
            )
            for address, told in document.get("servers", {}).items()
        }
        return Logins(document.get("default"), servers)
    except FileNotFoundError:
        return Logins()
    except (OSError, ValueError, AttributeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is damaged"
        raise InputError(
            f"the file of logins cannot be read: {why}",  # without its tokens
            where={"file": path},
            hint="Remove it, and log in again: distrain login ADDRESS.",
        ) from None


def store_login(path: Path, login: Login, *, default: bool) -> None:
    """Write a login to the file of logins, in place of an earlier login at the same address.

    Only this user can read the file, which is replaced atomically. The first login is the default;
    a later login becomes the default only with `default`.

    Raises:
        InputError: The existing file cannot be read.
        OutputError: The file cannot be written.
    """
    known = read_logins(path)
    servers = {**known.servers, login.address: login}
    chosen = login.address if default or known.default is None else known.default
    document = {
        "version": 1,
        "default": chosen,
        "servers": {
            address: {name: value for name, value in vars(one).items() if name != "address"}
            for address, one in servers.items()
        },
    }
    with translated_errors(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(path, json.dumps(document, indent=2).encode() + b"\n")


def find_login(
    address: str | None = None,
    token: str | None = None,
    environment: Mapping[str, str] = os.environ,
    path: Path | None = None,
) -> Login | None:
    """Return the login at a service.

    The service is `address`, otherwise that of DISTRAIN_SERVER, otherwise that of the default
    login; returns `None` if there is none of these. The token is `token`, otherwise DISTRAIN_TOKEN,
    otherwise the stored token. DISTRAIN_TOKEN is ignored if DISTRAIN_SERVER names another service.
    The `ca_file` is that of DISTRAIN_CA_FILE, otherwise the stored one.
    Raises InputError if an address is invalid or the file of logins cannot be read.
    """
    logins = read_logins(path or servers_file(environment))
    variable = environment.get(SERVER_VARIABLE) or None
    named = address or variable or logins.default
    if named is None:
        return None
    known = parse_address(named).text
    login = logins.servers.get(known, Login(known))
    is_variables = variable is None or parse_address(variable).text == known
    if token is None and is_variables:
        token = environment.get(TOKEN_VARIABLE) or None
    return replace(
        login,
        token=login.token if token is None else token.strip(),
        ca_file=environment.get(CA_VARIABLE) or login.ca_file,
    )
