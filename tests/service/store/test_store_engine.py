"""What the database cannot do is said in the project's errors, without the values."""

from contextlib import suppress

import pytest
from service_store import SPEC, new_job, settings_for, submitted
from sqlalchemy import event

from distrain.errors import InputError, Unavailable
from distrain.service.settings import Settings
from distrain.service.store.engine import database_url
from distrain.service.store.errors import Unstorable
from distrain.service.store.listing import JobFilter
from distrain.service.store.store import migrate, open_store


def test_a_full_disk_is_said_and_nothing_is_half_written(made):
    with open_store(made("sqlite")) as store:
        submitted(store)

        def no_more_pages(connection, record):
            connection.execute("PRAGMA max_page_count=1").close()  # no fewer than there are

        event.listen(store.db.engine, "connect", no_more_pages)
        store.db.engine.dispose()
        new, spec = new_job(), {"secret": "canary" * 10_000}
        with pytest.raises(Unavailable) as caught:
            store.submit(new, spec)
        assert "canary" not in str(caught.value)
        assert "canary" not in str(caught.value.__cause__)
        event.remove(store.db.engine, "connect", no_more_pages)
        store.db.engine.dispose()
        assert len(store.jobs(JobFilter(), 10)) == 1
        assert store.submit(new, spec)[1]


def test_connections_opened_while_the_database_is_read_only_are_not_kept(store):
    kind = "SET default_transaction_read_only" if store.db.is_postgres else "PRAGMA query_only"

    def read_only(connection, record):
        connection.execute(f"{kind}=ON").close()
        connection.commit()

    pools = {store.db.engine, store.db.reads}
    for pool in pools:
        event.listen(pool, "connect", read_only)
        pool.dispose()
    new = new_job()
    with pytest.raises(Unavailable):
        store.submit(new, SPEC)
    assert store.jobs(JobFilter(), 10) == []
    for pool in pools:
        event.remove(pool, "connect", read_only)
    with suppress(Unavailable):  # SQLite's connection that read these is writers', too
        store.submit(new, SPEC)
    store.submit(new, SPEC)
    assert len(store.jobs(JobFilter(), 10)) == 1


def test_a_file_that_is_no_database_is_said(tmp_path):
    (tmp_path / "service.db").write_bytes(b"something else" * 1000)
    for act in (open_store, migrate):
        with pytest.raises(Unavailable):
            act(settings_for(tmp_path))


def test_a_text_that_postgres_cannot_hold(made):
    with open_store(made("postgres")) as store:
        for name in ("a\0b", "a" * 1000):
            new = new_job(name=name)
            with pytest.raises(Unstorable):
                store.submit(new, SPEC)
        assert store.jobs(JobFilter(), 10) == []


def test_a_server_that_is_not_there(tmp_path):
    url = "postgresql://alice:secret@127.0.0.1:9/x"
    with pytest.raises(Unavailable) as caught:
        open_store(settings_for(tmp_path, url))
    assert "secret" not in str(caught.value)
    assert "127.0.0.1:9/x" in str(caught.value)


@pytest.mark.parametrize("url", ["mysql://x/y", "no url", "sqlite://", "sqlite:///:memory:"])
def test_other_databases_are_refused(tmp_path, url):
    with pytest.raises(InputError, match="database_url"):
        database_url(settings_for(tmp_path, url))


def test_the_file_and_its_folder_are_their_owners_alone(tmp_path):
    settings = Settings(data_dir=tmp_path / "new" / "data")
    migrate(settings)
    file = settings.data_dir / "service.db"
    assert (file.stat().st_mode & 0o777, settings.data_dir.stat().st_mode & 0o777) == (0o600, 0o700)
