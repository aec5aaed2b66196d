"""Preparations at the service's start: the data folder, declared projects, the first token."""

from contextlib import suppress

from distrain.service.access.sessions import new_token
from distrain.service.settings import Settings
from distrain.service.store.errors import RowNotFound
from distrain.service.store.people import Token
from distrain.service.store.store import Store
from distrain.service.values import Quota, Role
from distrain.storage.outputs import check_writable, translated_errors

DEFAULT_PROJECT = "default"


def make_folder(settings: Settings) -> None:
    """Make the data folder, which only its owner may enter, if it is missing.

    Raises OutputError if it cannot be made or written.
    """
    with translated_errors(settings.data_dir):
        settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    check_writable(settings.data_dir)


def declare(store: Store, settings: Settings) -> None:
    """Make declared projects in the database match the settings.

    Creates the project `default` if there is none. Members of projects that are not declared, or no
    longer, lose their roles; these projects keep their quotas and jobs.
    """
    known = {project.name for project in store.projects()}
    if DEFAULT_PROJECT not in known | set(settings.projects):
        store.put_project(DEFAULT_PROJECT, Quota())
    for name, project in settings.projects.items():
        store.put_project(name, Quota(**project.model_dump(exclude={"members"})))
        for user, role in project.members.items():
            store.set_member(name, user, Role(role))
    for name in known | set(settings.projects):
        declared = settings.projects[name].members if name in settings.projects else {}
        for user in store.members(name).keys() - declared:
            with suppress(RowNotFound):  # another process does the same
                store.remove_member(name, user)


def first_token(store: Store, settings: Settings) -> tuple[Token, str] | None:
    """Create a token for the first admin, and return it with its text.

    Returns `None` if there are no admins, or if one of them has a token, even one that is no longer
    valid.
    """
    if not settings.admins or any(store.tokens(user) for user in settings.admins):
        return None
    return new_token(store, settings.admins[0], label="made by the first start")
