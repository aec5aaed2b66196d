"""Fixtures of tests that look at pages in Chromium; a conftest imports them."""

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from browser_tab import Tab


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless chromium.

    While playwright is there, the thread counts as one in an event loop: no test of another module
    could run one of its own.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("there is no chromium on this machine")
    with playwright.sync_playwright() as driver:
        # Chromium's own sandbox does not start as root, as in containers.
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        chromium = driver.chromium.launch(executable_path=path, args=flags)
        yield chromium
        chromium.close()


@pytest.fixture
def tab(browser: Any) -> Iterator[Tab]:
    """A tab in which nothing may go wrong."""
    tab = Tab(browser)
    yield tab
    tab.close()
    assert not tab.troubles, "\n".join(tab.troubles)
