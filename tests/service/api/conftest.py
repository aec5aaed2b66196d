from collections.abc import Iterator

import pytest
from api_world import World, api_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with api_world(tmp_path_factory.mktemp("api")) as found:
        yield found
