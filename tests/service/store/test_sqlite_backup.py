"""Backups while others write, and their return."""

import os
import sqlite3
import stat
import threading
from contextlib import closing

import pytest
from service_store import SPEC, new_job, new_store, settings_for, submitted

from distrain.errors import InputError, OutputError
from distrain.service.store.errors import DatabaseInUse, SchemaDiffers
from distrain.service.store.listing import JobFilter
from distrain.service.store.store import open_store, restore


@pytest.fixture
def files(made):
    return made("sqlite")


def _counts(path):
    tables = ("jobs", "specs", "outbox")
    with closing(sqlite3.connect(path)) as database:
        return [database.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in tables]


def _ids(path):
    with closing(sqlite3.connect(path)) as database:
        return {row[0] for row in database.execute("SELECT id FROM jobs")}


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


def test_a_backup_comes_to_an_empty_place_and_to_what_a_killed_service_left(files, tmp_path):
    copy, left = tmp_path / "copy.db", tmp_path / "left"
    with open_store(files) as store:
        kept = submitted(store)
        store.backup(copy)
        lost = submitted(store)
        # As a kill leaves it: the file, and a log with what is not in it yet.
        left.mkdir()
        for end in ("", "-wal"):
            (left / f"service.db{end}").write_bytes((tmp_path / f"service.db{end}").read_bytes())
    assert restore(settings_for(tmp_path / "elsewhere"), copy) is None
    replaced = restore(settings_for(left), copy)
    for folder in (left, tmp_path / "elsewhere"):
        with open_store(settings_for(folder)) as store:
            assert store.jobs(JobFilter(), 10) == [kept]
    assert _ids(replaced) == {kept.id, lost.id}


def test_a_restore_that_fails_at_its_last_step_leaves_the_database_whole(
    files, tmp_path, monkeypatch
):
    copy, left = tmp_path / "copy.db", tmp_path / "left"
    with open_store(files) as store:
        jobs = {submitted(store).id}
        store.backup(copy)
        jobs.add(submitted(store).id)
        left.mkdir()
        for end in ("", "-wal"):  # as a kill leaves them
            (left / f"service.db{end}").write_bytes((tmp_path / f"service.db{end}").read_bytes())

    replace = os.replace

    def refused(source, target):
        if target == left / "service.db":
            raise OSError(f"{target} is not replaced")
        replace(source, target)

    monkeypatch.setattr("distrain.service.store.sqlite_backup.os.replace", refused)
    with pytest.raises(OutputError):
        restore(settings_for(left), copy)
    assert _ids(left / "service.db") == jobs


def test_a_running_service_is_not_pulled_from_under(files, tmp_path):
    with open_store(files) as store:
        store.backup(tmp_path / "copy.db")
        with pytest.raises(DatabaseInUse):
            restore(files, tmp_path / "copy.db")


def test_what_is_no_backup_is_refused_and_changes_nothing(files, tmp_path):
    with open_store(files) as store:
        kept = submitted(store)
        store.backup(tmp_path / "copy.db")
    whole = (tmp_path / "copy.db").read_bytes()
    bad = tmp_path / "bad.db"
    for content in (b"", b"no database", whole[: len(whole) // 2]):
        bad.write_bytes(content)
        with pytest.raises(InputError):
            restore(files, bad)
    with pytest.raises(InputError):
        restore(files, tmp_path / "no-such.db")
    bad.write_bytes(whole)
    with sqlite3.connect(bad) as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    database.close()
    with pytest.raises(SchemaDiffers):
        restore(files, bad)
    with open_store(files) as store:
        assert store.job(kept.id) == kept


def test_postgres_has_its_own_tools(made, tmp_path):
    settings = made("postgres")
    with open_store(settings) as store, pytest.raises(InputError, match="pg_dump"):
        store.backup(tmp_path / "copy.db")
    with pytest.raises(InputError, match="pg_dump"):
        restore(settings, tmp_path / "copy.db")


def test_a_second_service_is_refused_and_children_are_not(tmp_path):
    settings = settings_for(tmp_path)
    with new_store(settings):
        with pytest.raises(DatabaseInUse):
            open_store(settings)
        with open_store(settings, single=False) as child:
            new = new_job()
            assert child.submit(new, SPEC)[1]
    open_store(settings).close()
