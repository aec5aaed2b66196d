"""`distrain serve token`: edits tokens in the database."""

from typing import TYPE_CHECKING, Any

import click

from distrain.cli.options import json_option
from distrain.cli.output import print_answer, print_json, print_result, print_warning
from distrain.cli.service.config_options import open_database, with_settings

if TYPE_CHECKING:
    from distrain.service.settings import Settings
    from distrain.service.store.people import Token

SCOPES = ("read", "submit", "cancel", "admin")


@click.group("token")
def token() -> None:
    """Create, list and revoke tokens in the service's database; this needs no token.

    \b
    Examples:
      distrain serve token create --user alice
      distrain serve token list
      distrain serve token revoke 0a1b2c3d4e5f
    """


@token.command("create")
@with_settings
@click.option("--user", required=True, help="The token's user; a new name creates a user.")
@click.option("--label", default="", help="The purpose of the token.")
@click.option("--days", type=click.IntRange(1, 365), default=90, help="Days until it expires.")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(SCOPES),
    multiple=True,
    help="A permission; may be repeated. Default: read, submit and cancel; for an admin, all.",
)
@json_option("Print one JSON document.")
def create(
    settings: "Settings",
    user: str,
    label: str,
    days: int,
    scopes: tuple[str, ...],
) -> None:
    """Create a token and print it once: the database stores only its hash.

    `read`, `submit` and `cancel` are all that a user of jobs needs. With `admin`, the token can
    also create tokens.

    \b
    Examples:
      distrain serve token create --user alice
      distrain serve token create --user ci --label nightly --scope read --scope submit
    """
    if not 0 < len(user) <= 128 or not user.isprintable() or user != user.strip():
        raise click.UsageError("--user: a name of up to 128 printable characters.")
    from distrain.jobs.api_answers import utc
    from distrain.service.access.sessions import new_token
    from distrain.service.values import Scope

    wanted = frozenset(map(Scope, scopes or SCOPES))
    if not scopes and user not in settings.admins:
        wanted -= {Scope.ADMIN}
    with open_database(settings) as store:
        made, text = new_token(store, user, label=label, days=days, scopes=wanted)
    end = utc(made.expires_at_s, "seconds")
    print_answer(id=made.id, user=user, token=text, expires_at=end)
    print_result(text)
    print_warning(f"{user}'s token until {end}; it is shown only once")


@token.command("list")
@with_settings
@click.option("--user", help="Only this user's tokens.")
@json_option("Print one JSON list.")
def show(settings: "Settings", user: str | None) -> None:
    """List tokens, without their secrets.

    \b
    Examples:
      distrain serve token list --user alice
    """
    with open_database(settings) as store:
        now_s, tokens = store.now_s(), store.tokens(user)
    print_json([_document(one, now_s) for one in tokens])
    for one in tokens:
        row = _document(one, now_s)
        words = f"{row['id']}  {row['user']:20} {row['state']:8} until {row['expires_at']}"
        print_result(f"{words}  {','.join(row['scopes'])}  {row['label']}".rstrip())


@token.command("revoke")
@with_settings
@click.argument("token_id", metavar="ID")
@json_option("Print one JSON document.")
def revoke(settings: "Settings", token_id: str) -> None:
    """Revoke a token immediately. ID is shown by `list`; it is the part after `dtr_`.

    \b
    Examples:
      distrain serve token revoke 0a1b2c3d4e5f
    """
    with open_database(settings) as store:
        revoked = store.revoke_token(token_id)
    print_answer(id=token_id, user=revoked.user, state="revoked")
    print_result(f"the token {token_id} of {revoked.user} is revoked")


def _document(token: "Token", now_s: float) -> dict[str, Any]:
    from distrain.jobs.api_answers import utc

    state = "revoked" if token.revoked_at_s else "expired" if token.expires_at_s <= now_s else "ok"
    return {
        "id": token.id,
        "user": token.user,
        "label": token.label,
        "state": state,
        "scopes": sorted(token.scopes),
        "created_at": utc(token.created_at_s, "seconds"),
        "expires_at": utc(token.expires_at_s, "seconds"),
        "used_at": utc(token.used_at_s, "seconds"),
    }
