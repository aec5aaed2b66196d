"""Which indexes the queries of lists walk, with many jobs in the tables."""

import pytest
from service_store import new_job, settings_for
from sqlalchemy import event, func, insert, select, text

from distrain.service.store import JobFilter, migrate, open_store, tables
from distrain.service.store.submitting import waiting
from distrain.service.values import Phase

NUM_JOBS = 20_000
ALIVE_EVERY = 200


def fill(store, num_jobs):
    """Jobs of 40 projects and 200 users, of which few are alive and very few failed."""
    base = vars(new_job(id="x", spec={})) | {"intent": "run", "progress": {"step": 5}}
    del base["spec"]
    for first in range(0, num_jobs, 10_000):
        rows = []
        for number in range(first, min(first + 10_000, num_jobs)):
            is_alive = number % ALIVE_EVERY == 0
            rows.append(
                base
                | {
                    "id": f"job-{number}",
                    "project": f"project-{number % 40}",
                    "owner": f"user-{number % 200}",
                    "phase": (Phase.QUEUED if is_alive else Phase.FINAL).value,
                    "state": "queued"
                    if is_alive
                    else ("failed" if number % 9_973 == 1 else "succeeded"),
                    "created_at_s": 1e9 + number,
                    "finished_at_s": None if is_alive else 1e9 + number + 10,
                }
            )
        with store.db.write() as connection:
            connection.execute(insert(tables.jobs), rows)
    with store.db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE"))


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def filled(request, tmp_path_factory):
    url = None
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").new_database()
    settings = settings_for(tmp_path_factory.mktemp("filled"), url)
    migrate(settings)
    with open_store(settings) as store:
        fill(store, NUM_JOBS)
        yield store


LISTS = {
    "all": JobFilter(),
    "a project": JobFilter(project="project-7"),
    "an owner": JobFilter(owner="user-7"),
    "both": JobFilter(project="project-7", owner="user-7"),
    "a rare final state": JobFilter(states=("failed",)),
    "alive": JobFilter(states=("queued", "running", "unknown")),
    "alive and rare": JobFilter(states=("queued", "failed")),
    "what I may see": JobFilter(visible=(("project-1", "user-1"), ("project-2", None))),
    "one's own, failed": JobFilter(owner="user-7", states=("failed",)),
    "the last minute": JobFilter(created_after_s=1e9 + NUM_JOBS - 60),
}


def _statements(store, wanted, limit):
    """The queries of a list, with their values."""
    found = []

    def note(connection, cursor, statement, parameters, context, executemany):
        if " jobs" in statement:
            found.append((statement, parameters))

    event.listen(store.db.reads, "before_cursor_execute", note)
    try:
        store.jobs(wanted, limit)
    finally:
        event.remove(store.db.reads, "before_cursor_execute", note)
    return found


def _steps_of_sqlite(store, statement, parameters):
    """About how many rows a query visits: a row takes SQLite 10 instructions or more."""
    calls = []
    connection = store.db.engine.raw_connection()
    try:
        driver = connection.driver_connection
        driver.set_progress_handler(lambda: calls.append(1), 100)
        driver.execute(statement, parameters).fetchall()
        driver.set_progress_handler(None, 0)
    finally:
        connection.close()
    return len(calls) * 100 // 10


def _rows_of_postgres(node):
    """How many rows the nodes of a plan that read tables gave, or threw away."""
    below = sum(_rows_of_postgres(child) for child in node.get("Plans", ()))
    if "Relation Name" not in node and "Index Name" not in node:
        return below
    thrown_away = node.get("Rows Removed by Filter", 0)
    return below + (node["Actual Rows"] + thrown_away) * node["Actual Loops"]


def _rows_visited(store, statement, parameters):
    if not store.db.is_postgres:
        return _steps_of_sqlite(store, statement, parameters)
    with store.db.engine.connect() as connection:
        explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"
        [[plan]] = connection.exec_driver_sql(explain, parameters).fetchone()
    return _rows_of_postgres(plan["Plan"])


@pytest.mark.parametrize("name", LISTS)
def test_a_page_visits_few_rows(filled, name):
    visited = sum(_rows_visited(filled, *of) for of in _statements(filled, LISTS[name], 50))
    assert 0 < visited < NUM_JOBS / 8


def test_the_quota_is_counted_from_jobs_that_are_alive(filled):
    statement = select(func.count()).where(tables.jobs.c.project == "project-0", waiting())
    compiled = statement.compile(filled.db.engine, compile_kwargs={"render_postcompile": True})
    values = compiled.params
    if not filled.db.is_postgres:
        values = tuple(values[name] for name in compiled.positiontup)
    assert 0 < _rows_visited(filled, str(compiled), values) < NUM_JOBS / 20
