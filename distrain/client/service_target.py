"""The service that a client connects to: its address, token and certificate authority."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distrain.client.credentials import (
    SERVER_VARIABLE,
    Address,
    check_token,
    find_login,
    parse_address,
)
from distrain.errors import InputError
from distrain.version import __version__


@dataclass(frozen=True)
class ServiceTarget:
    """A service and the credentials for it; hides the token in texts and errors."""

    address: Address
    token: str | None = field(repr=False)
    ca_file: Path | None
    tls: ssl.SSLContext | None = None  # in the place of `ca_file`; for a client with a certificate
    trust_env: bool = True  # whether to use the environment's proxies, except for this machine

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of httpx2's clients for this service.

        Raises InputError if `ca_file` cannot be used.
        """
        headers = {"User-Agent": f"distrain/{__version__}", "Accept": "application/json"}
        headers["Accept-Encoding"] = "identity"  # uncompressed: logs and ranges count bytes
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        return {
            "base_url": self.address.base_url,
            "headers": headers,
            "verify": self._tls(),
            # The environment's proxies are for other hosts, and httpx2 has none for Unix sockets.
            "trust_env": self.trust_env and not self.address.is_local,
        }

    def _tls(self) -> ssl.SSLContext | bool:
        if not self.address.base_url.startswith("https:"):
            return False
        if self.tls is not None or self.ca_file is None:
            return self.tls or True
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:  # ssl.SSLError is one
            raise InputError(
                f"the file of the certificate authority cannot be used: {error.strerror or error}",
                where={"file": self.ca_file},
                hint="It is a PEM file with the certificate that signed the service's.",
            ) from None

    def hidden(self, text: str) -> str:
        """Return a text without the token, which a server or a proxy may have repeated."""
        return text.replace(self.token, "[token]") if self.token else text


def find_target(
    address: str | None, token: str | None, ca_file: str | Path | None, *, plain_http: bool
) -> ServiceTarget:
    """Return the service to connect to, from the arguments, the environment or the stored logins.

    Raises InputError if no service is named, or if the token is malformed or may not be sent to it.
    """
    login = find_login(address, token)
    if login is None:
        raise InputError(
            "no service is named", hint=f"Log in: distrain login ADDRESS; or set {SERVER_VARIABLE}."
        )
    parsed = parse_address(login.address)
    check_token(login.token, parsed, plain_http=plain_http or login.plain_http)
    file = ca_file or login.ca_file
    return ServiceTarget(parsed, login.token, Path(file) if file else None)
