"""`distrain serve project`: edits projects, quotas and members in the database."""

from typing import TYPE_CHECKING, Any

import click

from distrain.cli.options import json_option
from distrain.cli.output import print_answer, print_json, print_result
from distrain.cli.service.config_options import note_change, open_database, with_settings

if TYPE_CHECKING:
    from distrain.service.settings import Settings

NO_LIMIT = "none"
_LIMITS = ("max_ranks", "max_queued", "max_queued_per_user")


class LimitType(click.ParamType):  # type: ignore[type-arg]
    """A count, or `none` for no limit."""

    name = "count|none"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | int:
        text = str(value)
        if text == NO_LIMIT:
            return text
        if not text.isdecimal():
            self.fail(f"{text!r} is neither a count nor `{NO_LIMIT}`", param, ctx)
        if int(text) >= 2**31:
            self.fail(f"{text} is not below 2^31; or write `{NO_LIMIT}`", param, ctx)
        return int(text)


@click.group("project")
def project() -> None:
    """Create projects, and set their quotas and members' roles.

    \b
    Examples:
      distrain serve project set ads --max-ranks 8
      distrain serve project member ads alice submitter
      distrain serve project list
    """


@project.command("set")
@with_settings
@click.argument("name")
@click.option(
    "--max-ranks",
    type=LimitType(),
    help="The maximum number of ranks that run at the same time, or `none`.",
)
@click.option(
    "--max-queued", type=LimitType(), help="The maximum number of waiting jobs, or `none`."
)
@click.option(
    "--max-queued-per-user",
    type=LimitType(),
    help="The maximum number of waiting jobs of one user, or `none`.",
)
@click.option(
    "--max-priority",
    type=click.IntRange(-(2**31) + 1, 2**31 - 1),
    help="The highest priority that submitters may request.",
)
@json_option("Print one JSON document.")
def put(
    settings: "Settings",
    name: str,
    max_ranks: str | int | None,
    max_queued: str | int | None,
    max_queued_per_user: str | int | None,
    max_priority: int | None,
) -> None:
    """Create a project, or change the given limits.

    \b
    Examples:
      distrain serve project set ads --max-ranks 8 --max-priority 10
      distrain serve project set ads --max-ranks none
    """
    import re

    from distrain.service.settings import NAME_PATTERN
    from distrain.service.values import Quota

    if not re.fullmatch(NAME_PATTERN, name):
        raise click.UsageError(f"NAME: {name!r} must consist of lower case letters, digits and -.")
    given = dict(zip(_LIMITS, (max_ranks, max_queued, max_queued_per_user), strict=True))
    changes: dict[str, Any] = {
        key: None if value == NO_LIMIT else value
        for key, value in given.items()
        if value is not None
    }
    if max_priority is not None:
        changes["max_priority"] = max_priority
    _refuse_declared(settings, name)
    with open_database(settings) as store:
        quotas = {one.name: one.quota for one in store.projects()}
        quota = quotas.get(name, Quota()).model_copy(update=changes)
        store.put_project(name, quota)
        note_change(store, "project.set", name, quota=quota.model_dump())
    print_answer(project=name, quota=quota.model_dump())
    print_result(f"project {name}: {_limits(quota.model_dump())}")


@project.command("member")
@with_settings
@click.argument("name")
@click.argument("user")
@click.argument("role", type=click.Choice(["viewer", "submitter", "operator", "none"]))
@json_option("Print one JSON document.")
def member(settings: "Settings", name: str, user: str, role: str) -> None:
    """Give a user a role in a project; `none` removes it.

    viewer: sees all jobs. submitter: submits, and sees and changes their own jobs. operator:
    manages all jobs of the project.

    \b
    Examples:
      distrain serve project member ads alice submitter
    """
    from distrain.service.values import Role

    _refuse_declared(settings, name)
    with open_database(settings) as store:
        if role == "none":
            store.remove_member(name, user)
        else:
            store.set_member(name, user, Role(role))
        note_change(store, "project.member", name, user=user, role=role)
    print_answer(project=name, user=user, role=role)
    print_result(f"project {name}: {user} is {'no member' if role == 'none' else role}")


@project.command("list")
@with_settings
@json_option("Print one JSON list.")
def show(settings: "Settings") -> None:
    """List projects with their quotas and members.

    \b
    Examples:
      distrain serve project list
    """
    with open_database(settings) as store:
        rows: list[dict[str, Any]] = [
            {
                "project": stored.name,
                "declared": stored.name in settings.projects,
                "quota": stored.quota.model_dump(),
                "members": {user: role.value for user, role in store.members(stored.name).items()},
            }
            for stored in store.projects()
        ]
    print_json(rows)
    for row in rows:
        members = ", ".join(f"{user} ({role})" for user, role in row["members"].items())
        print_result(f"{row['project']:20} {_limits(row['quota'])}; {members or 'no members'}")


def _refuse_declared(settings: "Settings", name: str) -> None:
    from distrain.service.store.errors import WrongState

    if name in settings.projects:
        raise WrongState(
            "the configuration declares this project",
            where={"project": name},
            hint="Change it in serve.yaml, and restart the service.",
        )


def _limits(quota: dict[str, Any]) -> str:
    return ", ".join(
        f"{key} {NO_LIMIT if value is None else value}" for key, value in quota.items()
    )
