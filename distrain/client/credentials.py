"""The user's logins to services, with their tokens, and the choice among them."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from distrain.client.address import parse_address
from distrain.client.files import private_folder, whole_file
from distrain.errors import InputError

SERVER_VARIABLE = "DISTRAIN_SERVER"
TOKEN_VARIABLE = "DISTRAIN_TOKEN"
CA_VARIABLE = "DISTRAIN_CA_FILE"


@dataclass(frozen=True)
class Login:
    address: str
    token: str | None = field(default=None, repr=False)
    user: str = ""
    # the authority that signed its certificate; `None`: those that the system trusts
    ca_file: str | None = None
    plain_http: bool = False  # whether the user allows the token to be sent over plain http


@dataclass(frozen=True)
class Logins:
    """All logins, by address."""

    default: str | None = None
    servers: Mapping[str, Login] = field(default_factory=dict)


def servers_file(environment: Mapping[str, str] = os.environ) -> Path:
    """The file of logins: `~/.config/distrain/servers.json`, or below XDG_CONFIG_HOME."""
    return _xdg(environment, "XDG_CONFIG_HOME", ".config") / "distrain" / "servers.json"


def state_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder of unfinished submissions: `~/.local/state/distrain`, or below XDG_STATE_HOME."""
    return _xdg(environment, "XDG_STATE_HOME", ".local/state") / "distrain"


def _xdg(environment: Mapping[str, str], variable: str, default: str) -> Path:
    named = environment.get(variable, "")
    return Path(named) if os.path.isabs(named) else Path.home() / default


def read_logins(path: Path) -> Logins:
    """Read the file of logins, which may be missing, and close it to others; raises InputError."""
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
            f"the file of logins cannot be read: {why}",  # not its content: it holds tokens
            where={"file": path},
            hint="Remove it, and log in anew: distrain login ADDRESS.",
        ) from None


def store_login(path: Path, login: Login, *, default: bool) -> None:
    """Store a login in the file, which is this user's alone and always whole (OutputError)."""
    known = read_logins(path)
    servers = {**known.servers, login.address: login}
    chosen = login.address if default or known.default is None else known.default
    document = {
        "version": 1,
        "default": chosen,
        "servers": {address: _stored(one) for address, one in servers.items()},
    }
    private_folder(path.parent)
    with whole_file(path, private=True) as file:
        file.write(json.dumps(document, indent=2).encode() + b"\n")


def _stored(login: Login) -> dict[str, object]:
    return {name: value for name, value in asdict(login).items() if name != "address"}


def find_login(
    address: str | None = None,
    token: str | None = None,
    environment: Mapping[str, str] = os.environ,
    path: Path | None = None,
) -> Login | None:
    """The named service's login, that of DISTRAIN_SERVER and DISTRAIN_TOKEN, or the default one."""
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
