"""Tables of this version, and none of another."""

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from service_store import new_store
from sqlalchemy import BigInteger, Boolean, Column, Integer, String, text

from distrain.service.access.sessions import new_token
from distrain.service.store.engine import Database, database_url
from distrain.service.store.errors import SchemaDiffers
from distrain.service.store.store import migrate, open_store
from distrain.service.store.tables import metadata


def _schema(db):
    """All of a database's tables and indexes as text, by name."""
    listing = (
        "SELECT tablename || '.' || indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'"
        " UNION ALL SELECT table_name || '.' || column_name, data_type || ' ' || is_nullable || ' '"
        " || coalesce(column_default, '') || coalesce(character_maximum_length, 0)"
        " FROM information_schema.columns WHERE table_schema = 'public'"
        if db.is_postgres
        else "SELECT tbl_name || '.' || name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
    )
    with db.read() as connection:
        found = connection.execute(text(listing)).all()
    return {
        name: " ".join((sql or "").split())
        for name, sql in found
        if not name.startswith("alembic_version")
    }


def _as_of_0_2_0(connection):
    operations = Operations(MigrationContext.configure(connection))
    for name in ("webhooks", "leases", "idempotency"):
        operations.create_table(name, Column("id", String(32), primary_key=True))
    column = Column("generation", BigInteger, nullable=False, server_default="0")
    operations.add_column("jobs", column)
    for column in ("ranks", "gpus"):
        operations.drop_column("attempts", column)
    operations.create_table("users", Column("name", String(128), primary_key=True))
    declared = Column("declared", Boolean, nullable=False, server_default=text("false"))
    operations.add_column("projects", declared)
    operations.drop_column("specs", "request_sha256")
    operations.drop_table("sessions")
    _before_0004(operations)
    connection.execute(text("UPDATE alembic_version SET version_num = '0002'"))


def _as_of_0003(connection):
    _before_0004(Operations(MigrationContext.configure(connection)))
    connection.execute(text("UPDATE alembic_version SET version_num = '0003'"))


def _before_0004(operations):
    operations.drop_column("jobs", "queued_at_s")
    operations.create_table("audit", Column("id", Integer, primary_key=True))


@pytest.mark.parametrize("make_earlier", [_as_of_0_2_0, _as_of_0003])
def test_steps_lead_to_the_tables_of_the_code(settings, make_earlier):
    migrate(settings)
    db = Database(database_url(settings))
    try:
        new = _schema(db)
        with db.write() as connection:
            make_earlier(connection)
        migrate(settings)
        assert _schema(db) == new
        with db.engine.connect() as connection:
            context = MigrationContext.configure(connection)
            assert compare_metadata(context, metadata) == []
            assert context.get_current_revision() == "0005"
    finally:
        db.close()


@pytest.mark.parametrize("make_earlier", [_as_of_0_2_0, _as_of_0003])
def test_an_upgrade_keeps_tokens(settings, make_earlier):
    with new_store(settings) as store:
        token, _ = new_token(store, "alice", label="laptop")
        with store.db.write() as connection:
            make_earlier(connection)
    migrate(settings)
    with open_store(settings) as store:
        assert store.tokens("alice") == [token]


def test_a_second_migration_changes_nothing(settings):
    migrate(settings)
    with open_store(settings) as store:
        first = store.service_id
    migrate(settings)
    with open_store(settings) as store:
        assert store.service_id == first


def test_an_empty_database_is_refused_with_the_command(settings):
    with pytest.raises(SchemaDiffers, match="distrain serve migrate"):
        open_store(settings)


@pytest.mark.parametrize("act", [open_store, migrate])
@pytest.mark.parametrize("revision", ["9999", "0001"])
def test_later_versions_and_those_before_0_2_0_are_refused_by_all(settings, act, revision):
    migrate(settings)
    db = Database(database_url(settings))
    with db.write() as connection:
        connection.execute(text(f"UPDATE alembic_version SET version_num = '{revision}'"))
    db.close()
    with pytest.raises(SchemaDiffers, match=revision):
        act(settings)


def test_an_earlier_version_is_refused_with_the_command(settings, monkeypatch):
    migrate(settings)
    monkeypatch.setattr("distrain.service.store.migrations.head", lambda: "9999")
    with pytest.raises(SchemaDiffers, match="0005"):
        open_store(settings)
