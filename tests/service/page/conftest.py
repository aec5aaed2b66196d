"""A service with its pages, and a browser's tab as tests of other pages have it."""

import pytest
from browser_fixtures import browser, tab
from page_world import page_world

__all__ = ["browser", "tab"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with page_world(tmp_path_factory.mktemp("page")) as found:
        yield found
