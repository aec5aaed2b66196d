"""The PostgreSQL that other tests stand on."""

import psycopg
import pytest
import real_postgres


@pytest.fixture
def own():
    if reason := real_postgres.why_absent():
        pytest.skip(reason)
    with real_postgres.Postgres() as server:
        yield server


def test_databases_are_empty_and_apart(postgres):
    first, second = postgres.new_database(), postgres.new_database()
    with psycopg.connect(first) as connection:
        connection.execute("CREATE TABLE t (x integer)")
    with psycopg.connect(second) as connection:
        assert connection.execute("SELECT to_regclass('t')").fetchone() == (None,)


def test_what_was_committed_outlives_a_kill(own):
    url = own.new_database()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE t AS SELECT 7 AS x")
    own.kill()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
    own.start()
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT x FROM t").fetchone() == (7,)
    socket_url = own.socket_url(url.rpartition("/")[2])
    with psycopg.connect(socket_url) as connection:
        assert connection.execute("SELECT x FROM t").fetchone() == (7,)
    assert own.folder.is_dir()
    own.stop()
