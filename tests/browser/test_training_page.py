"""The Training page of a real scheduler, in a real browser, while two ranks train."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import real_nginx
from browser_tab import Tab
from dask_world import free_port
from waiting import until

from distrain.scheduler.dashboard.tables import _TITLES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

NAMED = "Bokeh.documents[0].get_model_by_name"
HEADLINE = f"{NAMED}('headline').text"


def points_of(plot: str) -> str:
    """The number of points of a plot's first line, as an expression in the page."""
    return f"({NAMED}('{plot}').renderers[0]?.data_source.get_length() ?? 0)"


def rows_per_s_move(tab: Tab) -> None:
    """Wait until rows per second were drawn, and drawn on."""
    tab.wait_until(f"{points_of('rows-per-second')} >= 2", timeout_s=60)
    before, text = tab.evaluate(points_of("rows-per-second")), tab.evaluate(HEADLINE)
    tab.wait_until(f"{points_of('rows-per-second')} > {before}")
    tab.wait_until(f"{HEADLINE} !== {json.dumps(text)}")


def test_a_running_training_is_watched_and_another_job_picked(
    training: Any, tab: Tab, output: Path
) -> None:
    tab.open(training.url + "/status")
    tab.page.get_by_role("link", name="Training", exact=True).click()
    tab.wait_until(f"window.Bokeh?.documents.length && {HEADLINE}.includes('long: running')", 60)
    rows_per_s_move(tab)
    tab.wait_until(
        f"{NAMED}('timeline').renderers[0].data_source.data['kind'].includes('checkpoint')"
    )
    assert tab.evaluate(f"{NAMED}('time-by-phase').renderers.length") == 9
    assert tab.evaluate(f"{NAMED}('gpu').visible") is False, "these ranks have none"
    table = tab.page.locator(".slick-row")
    assert "running" in table.nth(0).inner_text()
    step = table.nth(0).locator(".slick-cell").nth([*_TITLES].index("step"))
    shown = step.inner_text()
    until(lambda: step.inner_text() != shown, "the table's cells change as the job goes on")
    tab.page.screenshot(path=output / "training-page.png", full_page=True)

    tab.page.get_by_text("over time").click()
    tab.wait_until(f"{NAMED}('loss').renderers[0].glyph.x.field === 'elapsed_s'")

    select = tab.page.locator("select").nth(0)
    labels = select.locator("option").all_inner_texts()
    select.select_option(label=next(label for label in labels if label.startswith("short")))
    tab.wait_until(f"{HEADLINE}.includes('short: succeeded')")
    assert "- rows/s" not in tab.evaluate(HEADLINE), "of the whole run"
    tab.wait_until(f"{points_of('rows-per-second')} === 4")
    tab.page.screenshot(path=output / "training-page-other-job.png", full_page=True)

    table.nth(0).locator(".slick-cell").nth(0).click()
    tab.wait_until(f"{HEADLINE}.includes('long: running')")
    rows_per_s_move(tab)


def test_the_page_behind_a_proxy_with_a_prefix(training: Any, tab: Tab, tmp_path: Path) -> None:
    with nginx_before(training.url, "/team/dask/", tmp_path) as url:
        tab.open(url + "distrain")
        rows_per_s_move(tab)
        link = tab.page.get_by_role("link", name="Training", exact=True)
        assert link.evaluate("a => a.href") == url + "training"
        tab.leave()  # before the proxy ends


@contextmanager
def nginx_before(server: str, prefix: str, folder: Path) -> Iterator[str]:
    """A reverse proxy that serves a server's pages under a prefix; its URL."""
    port = free_port()
    config = folder / "nginx.conf"
    text = f"""pid {folder}/nginx.pid;
        events {{}}
        http {{
          access_log off;
          server {{
            listen 127.0.0.1:{port};
            location = /favicon.ico {{ return 204; }}
            location {prefix} {{
              proxy_pass {server}/;
              proxy_http_version 1.1;
              proxy_set_header Host $http_host;
              proxy_set_header Upgrade $http_upgrade;
              proxy_set_header Connection "upgrade";
            }}
          }}
        }}"""
    config.write_text(real_nginx.below(text, folder))
    url = f"http://127.0.0.1:{port}{prefix}"
    with real_nginx.running(config, lambda: _answers(url + "health")):
        yield url


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
