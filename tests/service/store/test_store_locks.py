"""One of several processes has a lock, as long as it lives."""

from contextlib import suppress

import pytest
from service_store import settings_for
from waiting import until

from distrain.errors import Unavailable
from distrain.service.store.store import open_store


def test_one_of_two_has_it_until_it_gives_it_back(store, second):
    since = store.locks.hold("cluster:gpu")
    assert since is not None
    assert store.locks.hold("cluster:gpu") == store.locks.since("cluster:gpu") == since
    if store.db.is_postgres:
        assert second.locks.hold("cluster:gpu") is None
        assert second.locks.hold("cluster:other") is not None
        assert store.locks.hold("cluster:other") is None
    store.locks.release()
    assert store.locks.since("cluster:gpu") is None
    # PostgreSQL ends a session a moment after its connection.
    assert until(lambda: second.locks.hold("cluster:gpu")) >= since


@pytest.mark.slow
def test_a_database_that_was_away_has_forgotten_its_locks(postgres, made, tmp_path):
    settings = made("postgres")
    with (
        open_store(settings) as store,
        open_store(settings_for(tmp_path, settings.database_url)) as second,
    ):
        before = store.locks.hold("cluster:gpu")
        postgres.kill()
        postgres.start()
        until(lambda: held(second))
        until(lambda: held(store) is None)  # it finds out, however often it asks
        assert store.locks.since("cluster:gpu") is None
        until(lambda: held(store) is False)
        second.locks.release()
        until(lambda: held(store))
        assert (store.locks.since("cluster:gpu") or 0) > (before or 0)


def held(store):
    """Whether a store has the lock, after connections that the database's end broke."""
    with suppress(Unavailable):
        return store.locks.hold("cluster:gpu") is not None
    return None
