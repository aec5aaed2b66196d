"""Killed in the middle of submissions: what was answered is there, and nothing is there by half."""

import os
import signal
import subprocess
import sys
import threading

import pytest
import real_postgres
from service_store import SPEC, UNLIMITED, new_job, settings_for
from sqlalchemy import select

from distrain.errors import Unavailable
from distrain.service.store import tables
from distrain.service.store.store import migrate, open_store

SUBMIT_FOR_EVER = """
import itertools, pathlib, sys
from service_store import SPEC, new_job, settings_for
from distrain.service.store.store import open_store

store = open_store(settings_for(pathlib.Path(sys.argv[1])))
for number in itertools.count():
    new = new_job(id=f"{sys.argv[2]}-{number}", tags={"a": "b", "c": "d"})
    store.submit(new, SPEC)
    print(new.id, flush=True)
"""


def _ids(store, column):
    with store.db.read() as connection:
        return sorted(connection.execute(select(column)).scalars())


def _check_whole(store, answered):
    """Each job has its spec, event and tags, and each that was answered is there."""
    there = _ids(store, tables.jobs.c.id)
    for column in (tables.specs.c.job_id, tables.outbox.c.job_id):
        assert _ids(store, column) == there, column.table.name
    seqs = _ids(store, tables.jobs.c.seq)
    assert _ids(store, tables.job_tags.c.seq) == sorted(seqs * 2)
    assert set(answered) <= set(there)
    assert len(there) <= len(answered) + 1  # one more may be in, with its answer on the way


def _killed_after(folder, name, num_answers):
    """The ids that a process was answered before it was killed."""
    child = subprocess.Popen(
        [sys.executable, "-c", SUBMIT_FOR_EVER, str(folder), name],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    answered = []
    for line in child.stdout:
        answered.append(line.strip())
        if len(answered) == num_answers:
            child.send_signal(signal.SIGKILL)
    child.stdout.close()
    assert child.wait() == -signal.SIGKILL
    return answered


def test_a_killed_process_leaves_whole_jobs(made, tmp_path):
    settings = made("sqlite")
    with open_store(settings) as store:
        store.put_project("default", UNLIMITED)
    answered = _killed_after(tmp_path, "killed", 20)
    with open_store(settings) as store:
        _check_whole(store, answered)
        retried, created = store.submit(new_job(id=answered[0]), SPEC)
        assert (retried.id, created) == (answered[0], False)


def test_a_killed_postgres_comes_back_with_all_that_was_answered(tmp_path):
    if reason := real_postgres.why_absent():
        pytest.skip(reason)
    with real_postgres.Postgres() as server:
        settings = settings_for(tmp_path, server.new_database())
        migrate(settings)
        with open_store(settings) as store:
            store.put_project("default", UNLIMITED)
            answered, unanswered = [], []
            under_way = threading.Event()

            def submit_until_it_fails():
                while not unanswered:
                    new = new_job(tags={"a": "b", "c": "d"})
                    try:
                        store.submit(new, SPEC)
                    except Unavailable:
                        unanswered.append(new)
                        return
                    answered.append(new.id)
                    if len(answered) >= 5:
                        under_way.set()

            writer = threading.Thread(target=submit_until_it_fails)
            writer.start()
            assert under_way.wait(60)
            server.kill()
            writer.join()
            with pytest.raises(Unavailable) as caught:
                store.projects()
            assert server._password not in str(caught.value)
            server.start()
            store.projects()  # by a new connection
            _check_whole(store, answered)
            [new] = unanswered
            retried, _ = store.submit(new, SPEC)
            assert retried.id == new.id
            _check_whole(store, [*answered, new.id])
