"""Connects a command to a service: its default address, and a client with retries."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from distrain.cli.output import print_warning

if TYPE_CHECKING:
    from distrain.client.client import Client
    from distrain.client.retries import Retries

SERVER_VARIABLE = "DISTRAIN_SERVER"
"""Equal to the name in `distrain.client`, which is not imported here, because `--help` would then
load it."""


def default_server() -> str | None:
    """Return the address that `distrain login` made the default; `None` if there is none."""
    from distrain.client.credentials import read_logins, servers_file

    return read_logins(servers_file()).default


def server_argument(address: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return ` --server ADDRESS`, for commands in hints; "" if `address` is the default service."""
    default = environment.get(SERVER_VARIABLE) or default_server()
    return "" if default == address else f" --server {address}"


@contextmanager
def service_at(address: str, for_s: float | None = None) -> "Iterator[Client]":
    """Yield a client of the service at `address`, which prints why it retries a request.

    It retries for `for_s` seconds; `None` for the client's default.
    """
    from distrain.client.client import Client
    from distrain.client.retries import Retries

    retries = Retries() if for_s is None else Retries(for_s=for_s)
    with Client(address, retries=retries, on_retry=retry_printer(address, retries)) as client:
        yield client


def retry_printer(address: str, retries: "Retries") -> Callable[[str], None]:
    """Return a callback for `Client(on_retry=)`: prints the reason of a retry, each reason once."""
    reasons: set[str] = set()
    how = f"retries for up to {retries.for_s:g} s; Ctrl-C stops it"

    def tell(why: str) -> None:
        reason = why.rpartition("; again in")[0] or why
        if reason not in reasons:
            reasons.add(reason)
            print_warning(f"waiting for {address}: {reason} ({how})")

    return tell
