"""Preparations at start: folder, database, declared projects, the first token."""

import os

from distrain.errors import InputError, OutputError
from distrain.service.access.sessions import key_file, key_fingerprint, new_token, service_key
from distrain.service.settings import Settings
from distrain.service.store.people import Token
from distrain.service.store.store import Store
from distrain.service.values import Quota, Role

DEFAULT_PROJECT = "default"
_KEY = "key_fingerprint"


def make_folder(settings: Settings) -> None:
    """Make the data folder, which only its owner may enter, and the service's key if missing.

    Raises OutputError if the folder cannot be written, and InputError for an unusable key.
    """
    try:
        settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not os.access(settings.data_dir, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        raise OutputError(
            f"the data folder cannot be used: {error.strerror}",
            where={"data_dir": str(settings.data_dir)},
            hint="Name another with --data-dir.",
        ) from error
    service_key(settings)


def keep_key(store: Store, settings: Settings) -> None:
    store.keep_fact(_KEY, key_fingerprint(settings))


def knows_key(store: Store) -> bool:
    return store.fact(_KEY) is not None


def check_key(store: Store, settings: Settings, *, keeps: bool = True) -> None:
    """Raise InputError if this process's key differs from that of the service's other processes.

    Processes with different keys could not verify each other's signatures. The database has the
    fingerprint of the key. With `keeps`, a missing fingerprint is stored. With SQLite a different
    fingerprint is replaced and no error is raised, since such a service is on one machine.
    """
    mine, kept = key_fingerprint(settings), store.fact(_KEY)
    if kept == mine:
        return
    if not store.db.is_postgres:
        if keeps:
            keep_key(store, settings)
        return
    if kept is None and not keeps:
        return
    if kept is None and store.keep_first(_KEY, mine) == mine:
        return  # of several processes that start at once, one stores its key for all
    raise InputError(
        "the service's key differs from that of its other processes with this database",
        where={"file": str(key_file(settings)), "database": store.db.where},
        hint="Copy the file from the machine where the service was set up. If the key was changed "
        "on purpose, run `distrain serve migrate` with the new key, then restart all processes.",
    )


def declare(store: Store, settings: Settings) -> None:
    """Make admins and declared projects in the database match the settings.

    Projects that are not declared keep their quotas and members.
    """
    for user, is_admin in store.users().items():
        if is_admin and user not in settings.admins:
            store.ensure_user(user, is_admin=False)
    for user in settings.admins:
        store.ensure_user(user, is_admin=True)
    known = {project.name for project in store.projects()}
    if DEFAULT_PROJECT not in known | set(settings.projects):
        store.put_project(DEFAULT_PROJECT, Quota())
    for name, project in settings.projects.items():
        store.put_project(name, Quota(**project.model_dump(exclude={"members"})), declared=True)
        for user in set(store.members(name)) - set(project.members):
            store.remove_member(name, user)
        for user, role in project.members.items():
            store.set_member(name, user, Role(role))
    store.undeclare_projects(settings.projects)


def first_token(store: Store, settings: Settings) -> tuple[Token, str] | None:
    if not settings.admins or any(store.tokens(user) for user in settings.admins):
        return None
    return new_token(store, settings.admins[0], label="made by the first start")
