"""Backups while others write, and how a copy of one is used."""

import shutil
import sqlite3
import stat
import threading
from contextlib import closing

import pytest
from service_store import SPEC, new_job, new_store, settings_for, submitted

from distrain.errors import InputError, OutputError, Unavailable
from distrain.service.store.errors import DatabaseInUse
from distrain.service.store.listing import JobFilter
from distrain.service.store.store import open_store


@pytest.fixture
def files(made):
    return made("sqlite")


def _counts(path):
    tables = ("jobs", "specs", "outbox")
    with closing(sqlite3.connect(path)) as database:
        return [database.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in tables]


def test_a_backup_is_one_moment_while_others_write(files, tmp_path):
    target = tmp_path / "copy.db"
    stop, num_submitted = threading.Event(), []

    def write(store):
        while not stop.is_set():
            num_submitted.append(submitted(store))

    with open_store(files) as store:
        writer = threading.Thread(target=write, args=(store,))
        writer.start()
        try:
            while len(num_submitted) < 5:
                stop.wait(0.001)
            store.backup(target)
        finally:
            stop.set()
            writer.join()
    jobs, *others = _counts(target)
    assert jobs >= 5
    assert set(others) == {jobs}
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert {path.name for path in tmp_path.iterdir() if "copy" in path.name} == {"copy.db"}


def test_a_backup_replaces_nothing(files, tmp_path):
    target = tmp_path / "copy.db"
    target.write_text("mine")
    with open_store(files) as store, pytest.raises(OutputError):
        store.backup(target)
    assert target.read_text() == "mine"
    with open_store(files) as store, pytest.raises(OutputError):
        store.backup(tmp_path / "no-such" / "copy.db")


def test_a_copied_backup_replaces_what_a_killed_service_left(files, tmp_path):
    copy, left = tmp_path / "copy.db", tmp_path / "left"
    with open_store(files) as store:
        kept = submitted(store)
        store.backup(copy)
        lost = submitted(store)
        # As a kill leaves it: the file, and a log with what is not in it yet.
        left.mkdir()
        for end in ("", "-wal"):
            (left / f"service.db{end}").write_bytes((tmp_path / f"service.db{end}").read_bytes())
    (left / "old").mkdir()
    for file in left.glob("service.db*"):
        file.rename(left / "old" / file.name)
    shutil.copy(copy, left / "service.db")
    with open_store(settings_for(left)) as store:
        assert store.jobs(JobFilter(), 10) == [kept]
    with open_store(settings_for(left / "old")) as store:
        assert {job.id for job in store.jobs(JobFilter(), 10)} == {kept.id, lost.id}


@pytest.mark.parametrize("content", [b"no database", None])
def test_a_file_that_is_not_a_whole_database_is_refused_at_the_start(files, tmp_path, content):
    with open_store(files) as store:
        store.backup(tmp_path / "copy.db")
    whole = (tmp_path / "copy.db").read_bytes()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "service.db").write_bytes(content or whole[: len(whole) // 2])
    with pytest.raises(Unavailable):
        open_store(settings_for(tmp_path / "bad"))


def test_postgres_has_its_own_tools(made, tmp_path):
    settings = made("postgres")
    with open_store(settings) as store, pytest.raises(InputError, match="pg_dump"):
        store.backup(tmp_path / "copy.db")


def test_a_second_service_is_refused_and_children_are_not(tmp_path):
    settings = settings_for(tmp_path)
    with new_store(settings):
        with pytest.raises(DatabaseInUse):
            open_store(settings)
        with open_store(settings, single=False) as child:
            new = new_job()
            assert child.submit(new, SPEC)[1]
    open_store(settings).close()
