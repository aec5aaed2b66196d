"""Each law of the database holds on SQLite and on PostgreSQL."""

import shutil

import psycopg
import pytest
from service_store import UNLIMITED, new_store, settings_for

from distrain.service.store.store import open_store
from distrain.service.store.tables import metadata


@pytest.fixture(params=["sqlite", "postgres"])
def settings(request, tmp_path):
    """Where an empty database is, or will be."""
    if request.param == "sqlite":
        return settings_for(tmp_path / "data")
    return settings_for(tmp_path, request.getfixturevalue("postgres").new_database())


@pytest.fixture(scope="session")
def made_file(tmp_path_factory):
    """SQLite's file of a database that `new_store` made."""
    folder = tmp_path_factory.mktemp("made")
    with new_store(settings_for(folder)):
        pass
    return folder / "service.db"


@pytest.fixture(scope="session")
def made_postgres(postgres):
    """The address of the same on PostgreSQL, which is emptied for each test."""
    url = postgres.new_database()
    with new_store(settings_for(postgres.folder, url)):
        pass
    return url


@pytest.fixture
def made(request, tmp_path):
    """Settings of a database that `new_store` made, of a kind: `sqlite` or `postgres`."""

    def make(kind):
        if kind == "sqlite":
            shutil.copy(request.getfixturevalue("made_file"), tmp_path / "service.db")
            return settings_for(tmp_path)
        url = request.getfixturevalue("made_postgres")
        names = ", ".join(f'"{name}"' for name in metadata.tables if name != "facts")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"TRUNCATE {names} RESTART IDENTITY")
        return settings_for(tmp_path, url)

    return make


@pytest.fixture(params=["sqlite", "postgres"])
def store(request, made):
    """A database with its tables and the project `default`, without a quota."""
    with open_store(made(request.param)) as opened:
        opened.put_project("default", UNLIMITED)
        yield opened


@pytest.fixture
def second(store, tmp_path):
    """The same database, as another process of the service opens it."""
    url = None
    if store.db.is_postgres:
        url = store.db.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    with open_store(settings_for(tmp_path, url), single=False) as opened:
        yield opened
