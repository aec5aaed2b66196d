"""No statement of the API or of the reconciler reads a whole table of jobs or events (SQLite)."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from api_world import World, api_world
from sqlalchemy import event
from told_scheduler import ToldScheduler
from waiting import until

from distrain.service.reconcile.reconciler import Reconciler
from distrain.service.settings import ClusterProfile
from distrain.service.store.store import Store
from distrain.service.values import Phase

LARGE = "jobs|events|outbox|specs|attempts|job_tags"
SCAN = re.compile(rf"SCAN ({LARGE})\b(?! USING (COVERING )?INDEX)")

BOUNDED = (
    # A page of the newest: a walk down the numbers, which ends when it is full.
    re.compile(r"ORDER BY \w+\.(seq|id)\s+(DESC\s+)?LIMIT", re.I),
    # Whether there is any.
    re.compile(r"FROM \w+\s+LIMIT"),
    # The first and last number of a table.
    re.compile(r"^SELECT (coalesce\()?(min|max)\(\w+\.(seq|id)\)", re.I),
)


@contextmanager
def statements(store: Store) -> Iterator[dict[str, Any]]:
    """What is sent to the database in the block, with the values of one time."""
    found: dict[str, Any] = {}

    def note(
        connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool
    ) -> None:
        found.setdefault(statement, parameters[0] if many else parameters)

    event.listen(store.db.engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(store.db.engine, "before_cursor_execute", note)


def scans(store: Store, statement: str, parameters: Any) -> list[str]:
    """The large tables that a statement reads from end to end."""
    if any(is_bounded.search(statement) for is_bounded in BOUNDED):
        return []
    with store.db.engine.connect() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()
    return [match[0] for row in plan if (match := SCAN.search(row[3]))]


@pytest.mark.slow
def test_no_statement_reads_a_whole_large_table(tmp_path: Path) -> None:
    with ToldScheduler() as scheduler:
        profile = ClusterProfile(
            url=scheduler.url, run_root=tmp_path / "runs", allowed_roots=("/data",)
        )
        with api_world(tmp_path / "data", clusters={"gpu": profile}) as world:
            with statements(world.store) as found:
                reconciled(world, scheduler)
                asked(world)
                world.store.prune(world.settings.retention)
            assert len(found) > 60, len(found)
            assert scans(world.store, "SELECT * FROM jobs WHERE message = ?", ("x",))
            told = {
                statement: bad
                for statement, values in found.items()
                if statement.split()[0] in ("SELECT", "UPDATE", "DELETE", "WITH")
                and (bad := scans(world.store, statement, values))
            }
            assert not told, "\n\n".join(f"{bad}: {text}" for text, bad in told.items())


def reconciled(world: World, scheduler: ToldScheduler) -> None:
    """Jobs that run, end, are cancelled and resumed."""
    one = Reconciler(world.settings, world.store)
    stop = threading.Event()
    thread = threading.Thread(target=one.run, args=(stop,))
    thread.start()
    try:
        jobs = [world.submit(tags={"team": "a"})["id"] for _ in range(3)]
        until(lambda: all(state(world, job) == "running" for job in jobs))
        scheduler.end(jobs[0])
        scheduler.end(jobs[1], "no such column")
        path = f"/v1/jobs/{jobs[2]}/cancel"
        assert world.ask("alice", "POST", path, {}).status_code == 202
        until(lambda: all(ended(world, job) for job in jobs))
        again = f"/v1/jobs/{jobs[1]}/resume"
        answer = world.ask("alice", "POST", again, {"resumes": 0})
        assert answer.status_code == 202
        until(lambda: state(world, jobs[1]) == "running")
    finally:
        stop.set()
        thread.join()


def state(world: World, job_id: str) -> str:
    job = world.store.job(job_id)
    assert job is not None
    return job.state


def ended(world: World, job_id: str) -> bool:
    job = world.store.job(job_id)
    return job is not None and job.phase is Phase.FINAL


def asked(world: World) -> None:
    """Every list and its filters, and what is asked of one job."""
    job = world.submit()["id"]
    lists = ("", "?project=ads", "?owner=alice", "?state=queued", "?state=failed&state=running")
    lists += (
        "?state=unknown",
        "?cluster=gpu",
        "?tag=team=a",
    )
    for user in ("admin", "alice", "viewer"):
        for query in lists:
            assert world.ask(user, "GET", f"/v1/jobs{query}").status_code == 200
    for path in ("", "/spec", "/artifacts", "/metrics"):
        assert world.ask("alice", "GET", f"/v1/jobs/{job}{path}").status_code == 200
    for path in ("me", "tokens", "clusters"):
        assert world.ask("admin", "GET", f"/v1/{path}").status_code == 200, path
    for path in ("/readyz", "/metrics"):
        assert world.ask("admin", "GET", path).status_code in (200, 503)
    changed = world.ask("alice", "PATCH", f"/v1/jobs/{job}", {"priority": 3})
    assert changed.status_code == 200
    last = world.store.last_seq()
    world.store.events_after(last - 1, 10)
    world.store.job_events_after(job, last - 1, 10)
    world.store.first_seq()
    world.ask("alice", "POST", f"/v1/jobs/{job}/cancel", {})
    assert world.ask("alice", "DELETE", f"/v1/jobs/{job}").status_code == 204
