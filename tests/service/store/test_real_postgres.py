"""The PostgreSQL that other tests stand on."""

import fcntl

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


def test_what_a_killed_process_left_is_removed_and_no_more(tmp_path):
    left, held, other = (tmp_path / name for name in ("distrain-pg-a", "distrain-pg-b", "c"))
    for folder in (left, held, other):
        folder.mkdir()
        (folder / real_postgres.OWNED).touch()
    real_postgres.remove_left(tmp_path)
    assert left.exists()  # too new to tell
    with (held / real_postgres.OWNED).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        real_postgres.remove_left(tmp_path, older_than_s=-1)
    assert sorted(tmp_path.iterdir()) == [other, held]
