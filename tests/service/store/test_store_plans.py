"""Which indexes PostgreSQL walks for lists of many jobs (SQLite: `../api/test_api_scans.py`)."""

import pytest
from service_store import new_job, settings_for
from sqlalchemy import event, func, insert, select, text

from distrain.service.store import tables
from distrain.service.store.listing import JobFilter
from distrain.service.store.store import migrate, open_store
from distrain.service.store.submitting import waiting
from distrain.service.values import Phase

NUM_JOBS = 20_000
ALIVE_EVERY = 200


def fill(store, num_jobs):
    """Jobs of 40 projects and 200 users, of which few are alive and very few failed."""
    base = vars(new_job(id="x")) | {"intent": "run", "progress": {"step": 5}}
    del base["seq"]
    rows = []
    for number in range(num_jobs):
        is_alive = number % ALIVE_EVERY == 0
        ended = "failed" if number % 9_973 == 1 else "succeeded"
        own = {
            "id": f"job-{number}",
            "project": f"project-{number % 40}",
            "owner": f"user-{number % 200}",
            "phase": (Phase.QUEUED if is_alive else Phase.FINAL).value,
            "state": "queued" if is_alive else ended,
            "created_at_s": 1e9 + number,
            "finished_at_s": None if is_alive else 1e9 + number + 10,
        }
        rows.append(base | own)
    with store.db.write() as connection:
        connection.execute(insert(tables.jobs), rows)
    with store.db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE"))


@pytest.fixture(scope="module")
def filled(postgres, tmp_path_factory):
    settings = settings_for(tmp_path_factory.mktemp("filled"), postgres.new_database())
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


def _rows_of_postgres(node):
    """How many rows the nodes of a plan that read tables gave, or threw away."""
    below = sum(_rows_of_postgres(child) for child in node.get("Plans", ()))
    if "Relation Name" not in node and "Index Name" not in node:
        return below
    thrown_away = node.get("Rows Removed by Filter", 0)
    return below + (node["Actual Rows"] + thrown_away) * node["Actual Loops"]


def _rows_visited(store, statement, parameters):
    with store.db.engine.connect() as connection:
        explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"
        [[plan]] = connection.exec_driver_sql(explain, parameters).fetchone()
    return _rows_of_postgres(plan["Plan"])


def test_a_page_visits_few_rows(filled):
    for name, wanted in LISTS.items():
        visited = sum(_rows_visited(filled, *of) for of in _statements(filled, wanted, 50))
        assert 0 < visited < NUM_JOBS / 8, name


def test_the_quota_is_counted_from_jobs_that_are_alive(filled):
    statement = select(func.count()).where(tables.jobs.c.project == "project-0", waiting())
    compiled = statement.compile(filled.db.engine, compile_kwargs={"render_postcompile": True})
    assert 0 < _rows_visited(filled, str(compiled), compiled.params) < NUM_JOBS / 20
