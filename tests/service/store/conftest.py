"""Each law of the database holds on SQLite and on PostgreSQL."""

import pytest
from service_store import new_store, settings_for


@pytest.fixture(params=["sqlite", "postgres"])
def settings(request, tmp_path):
    """Where an empty database is, or will be."""
    if request.param == "sqlite":
        return settings_for(tmp_path / "data")
    return settings_for(tmp_path, request.getfixturevalue("postgres").new_database())


@pytest.fixture
def store(settings):
    with new_store(settings) as opened:
        yield opened
