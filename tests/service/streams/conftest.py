"""One live service for the tests of a module."""

from collections.abc import Iterator

import httpx2
import pytest
from live_service import LiveService, live_service


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    """A service over SQLite."""
    with live_service(tmp_path_factory.mktemp("service")) as live:
        yield live


@pytest.fixture(scope="module")
def alice(service: LiveService) -> Iterator[httpx2.Client]:
    """Her connection to the service."""
    with service.client("alice") as client:
        yield client
