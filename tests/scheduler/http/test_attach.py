"""A scheduler that was started without the preload shows its jobs once a client has trained."""

from pathlib import Path

import dask
import pytest
from bare_scheduler import BareScheduler, bare_scheduler
from bokeh.client import pull_session
from distributed import Client, LocalCluster

from distrain.launch.scheduler_api import scheduler_api
from distrain.scheduler.http.attach import ensure_coordinator
from distrain.workers.secrets import TOKEN_VARIABLE

TOKEN = "a-token-of-some-length"
PAGES = ("/distrain", "/training")


def shown(scheduler: BareScheduler) -> str:
    """What the page says above its figures, as a browser gets it over the websocket."""
    session = pull_session(url=f"{scheduler.url}/distrain")
    try:
        return str(session.document.get_model_by_name("headline").text)
    finally:
        session.close()


@pytest.mark.slow
def test_documents_figures_and_pages_come_late_and_once(tmp_path: Path) -> None:
    with bare_scheduler(tmp_path) as scheduler:
        assert [scheduler.get(path)[0] for path in ("/distrain", "/distrain/v1/jobs")] == [404, 404]
        assert list(scheduler_api(scheduler.client).jobs()) == []
        assert scheduler.get("/distrain/v1/jobs")[0] == 404, "a question has installed nothing"
        ensure_coordinator(scheduler.client)
        assert scheduler.get("/distrain/v1/jobs") == (200, '{"jobs":[],"next_cursor":null}')
        ensure_coordinator(scheduler.client)  # the second client finds all of it
        assert scheduler.get("/distrain/v1/jobs") == (200, '{"jobs":[],"next_cursor":null}')
        status, figures = scheduler.get("/metrics")
        assert status == 200
        assert figures.count('distrain_jobs{state="running"} 0.0') == 1
        for path in PAGES:
            status, page = scheduler.get(path)
            assert (status, '<a href="training">Training</a>' in page) == (200, True), path
        assert f"--scheduler {scheduler.client.scheduler.address}<" in shown(scheduler)
        _, dasks = scheduler.get("/status")
        assert dasks.count('<a href="training">Training</a>') == 1
        assert scheduler.get("/distrain/v1/jobs/a")[0] == 404


def test_a_scheduler_made_before_the_routes_were_configured_gets_them() -> None:
    key = "distributed.scheduler.http.routes"
    modules = [*dask.config.get(key), "distrain.scheduler.http.handler"]
    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
        dask.config.set({key: modules}),
    ):
        ensure_coordinator(client)
        assert BareScheduler(client).get("/distrain/v1/jobs")[0] == 200


@pytest.mark.slow
def test_a_token_guards_what_comes_late_and_all_that_was_there(tmp_path: Path) -> None:
    with bare_scheduler(tmp_path, **{TOKEN_VARIABLE: TOKEN}) as scheduler:
        ensure_coordinator(scheduler.client)
        ensure_coordinator(scheduler.client)
        for path in (*PAGES, "/distrain/v1/jobs", "/metrics", "/status"):
            status, told = scheduler.get(path)
            assert (status, "token is missing" in told) == (401, True), path
            assert scheduler.get(path, "wrong")[0] == 401
        for path in ("/training", "/distrain/v1/jobs", "/metrics"):
            assert scheduler.get(path, TOKEN)[0] == 200, path
        assert scheduler.get("/health") == (200, "ok")


@pytest.mark.slow
def test_a_scheduler_without_a_dashboard_serves_documents_and_figures(tmp_path: Path) -> None:
    with bare_scheduler(tmp_path, "--no-dashboard") as scheduler:
        ensure_coordinator(scheduler.client)
        assert scheduler.get("/distrain/v1/jobs") == (200, '{"jobs":[],"next_cursor":null}')
        assert "distrain_jobs{" in scheduler.get("/metrics")[1]
        assert scheduler.get("/distrain")[0] == 404


@pytest.mark.slow
def test_a_scheduler_that_cannot_show_its_jobs_has_a_coordinator(tmp_path: Path) -> None:
    with bare_scheduler(tmp_path, **{TOKEN_VARIABLE: "not ASCII: \u00e4"}) as scheduler:
        ensure_coordinator(scheduler.client)
        assert list(scheduler_api(scheduler.client).jobs()) == []
        assert scheduler.get("/distrain/v1/jobs")[0] == 404
    assert "cannot show its jobs" in (tmp_path / "dask.log").read_text()
