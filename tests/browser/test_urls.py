"""Where a scheduler serves the pages."""

import asyncio

import dask
import pytest
from distributed import Scheduler
from tornado.httpclient import AsyncHTTPClient

from distrain.scheduler.dashboard.dask_dashboard import (
    PAGE_URL,
    DashboardOnRequest,
)
from distrain.workers.local import ON_REQUEST


async def fetch(url: str) -> str:
    answer = await AsyncHTTPClient().fetch(url)
    return str(answer.body.decode())


@pytest.mark.slow
@pytest.mark.parametrize("on_request", [False, True])
def test_pages_are_served_under_dasks_own_prefix(on_request: bool) -> None:
    prefix = "team/dask"

    async def look() -> None:
        options = {
            "dashboard": not on_request,
            "dashboard_address": "127.0.0.1:0",
            "http_prefix": prefix,
            "preload": "distrain.preload",
        }
        async with Scheduler(host="127.0.0.1", port=0, **options) as scheduler:
            served = scheduler.http_application.applications
            assert any(isinstance(one, DashboardOnRequest) for one in served) == on_request
            url = f"http://127.0.0.1:{scheduler.http_server.port}/{prefix}"
            page = await fetch(url + PAGE_URL)
            assert page.count('<a href="training">Training</a>') == 1, "relative, and once"
            assert "cdn.bokeh" not in page
            status = await fetch(url + "/status")
            assert '<a href="training">Training</a>' in status

    with dask.config.set({ON_REQUEST: on_request}):
        asyncio.run(look())
