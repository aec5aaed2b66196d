"""`distrain login`: stores the address of a service, and a token for it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from distrain.cli.interrupts import if_interrupted
from distrain.cli.options import EXISTING_FILE, json_option
from distrain.cli.output import print_answer, print_remark, print_result
from distrain.errors import InputError

if TYPE_CHECKING:
    from distrain.client.client import Client
    from distrain.jobs.api_answers import Me

_LONGEST = 4096


@click.command("login")
@click.argument("address")
@click.option(
    "--ca-file",
    type=EXISTING_FILE,
    help="PEM file of the CA that signed the service's certificate.",
)
@click.option("--no-default", is_flag=True, help="Keep the current default service.")
@click.option(
    "--plain-http",
    is_flag=True,
    help="Allow sending the token over http:// to another machine; others may read it on the way.",
)
@json_option("Print the token's user as JSON.")
def command(address: str, ca_file: Path | None, no_default: bool, plain_http: bool) -> None:
    """Ask for a token for the service at ADDRESS, check it, and store both for later commands.

    ADDRESS is https://HOST, http://127.0.0.1:PORT or unix:/PATH. The token is read from the
    terminal without an echo, or from standard input. It is not an argument, since other users can
    see those. It is stored in ~/.config/distrain/servers.json, which only you can read, and sent
    only to this address. The service becomes the default of all commands that take --server.

    \b
    Examples:
      distrain login https://jobs.example
      distrain login http://127.0.0.1:8686 < token.txt
    """
    from distrain.cli.jobs.choose_server import READ_S
    from distrain.cli.jobs.service_connection import retry_printer
    from distrain.client.client import Client
    from distrain.client.credentials import Login, parse_address, servers_file, store_login
    from distrain.client.retries import Retries

    if_interrupted("nothing was stored")
    parsed = parse_address(address)
    if not parsed.is_private and not plain_http:
        raise InputError(
            "a token is not sent over plain http, where others could read it",
            where={"server": parsed.text},
            hint="Use https://, or --plain-http in a network that you trust.",
        )
    token = _read_token(parsed.text)
    ca = str(ca_file.absolute()) if ca_file else None
    patience = Retries(for_s=READ_S)
    with Client(
        parsed.text,
        token,
        ca_file=ca,
        plain_http=plain_http,
        retries=patience,
        on_retry=retry_printer(parsed.text, patience),
    ) as client:
        me = _checked(client)
    path = servers_file()
    login = Login(parsed.text, token, me.user, ca, plain_http)
    store_login(path, login, default=not no_default)
    print_answer(
        server=parsed.text,
        user=me.user,
        scopes=list(me.scopes),
        is_admin=me.is_admin,
        roles=dict(me.roles),
        file=str(path),
    )
    print_result(f"logged in to {parsed.text} as {me.user}")
    print_remark(f"the token is in {path}, with the scopes {', '.join(me.scopes) or 'none'}")
    print_remark(f"it has your permissions: you are {_roles(me)}")


def _checked(client: "Client") -> "Me":
    """Return the token's user; raises the client's errors, with this command's own hint."""
    from distrain.client.errors import NotAuthorised

    try:
        return client.me()
    except NotAuthorised as error:
        error.hint = (
            "Run the command again with the whole token, dtr_ID_SECRET_CHECK, as `distrain serve` "
            "or `distrain serve token create` printed it. If it has expired or was revoked, the "
            "service's operator creates another."
        )
        raise


def _roles(me: "Me") -> str:
    """Describe the user's roles by project, which limit the token."""
    if me.is_admin:
        return "an admin of the service"
    roles = (f"{role} in {project}" for project, role in sorted(me.roles.items()))
    return ", ".join(roles) or "in no project: the administrator of the service can add you"


def _read_token(address: str) -> str:
    if sys.stdin.isatty():
        return str(click.prompt(f"Token for {address}", hide_input=True, err=True)).strip()
    token = sys.stdin.readline(_LONGEST).strip()
    if not token:
        raise InputError(
            "there is no token on standard input",
            hint=f"distrain login {address} < FILE, or run it in a terminal.",
        )
    return token
