"""Requests that the OpenAPI document allows, and some that it does not, to a running server."""

from collections.abc import Iterator

import pytest
import schemathesis
from api_world import World, api_world, served
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.specs.openapi.schemas import OpenApiSchema

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
QUICK = settings(
    max_examples=3,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, str]]:
    """A world whose application uvicorn serves, and its address."""
    with api_world(tmp_path_factory.mktemp("served")) as world, served(world.app) as address:
        yield world, address


@pytest.fixture(scope="module")
def schema(site: tuple[World, str]) -> OpenApiSchema:
    """The document of the running server, without streams, which end with their client alone."""
    _, address = site
    found = schemathesis.openapi.from_url(f"{address}/v1/openapi.json", wait_for_schema=10)
    return found.exclude(path_regex="/events$")


def send(site: tuple[World, str], case: schemathesis.Case) -> None:
    """Send a request as an admin, and check the answer against the document.

    503 is an answer, where the document has it: no scheduler answers this service.
    """
    world, address = site
    case.headers.update(world.headers("admin"))
    response = case.call(base_url=address, timeout=30)
    unavailable = response.status_code == 503
    checks = [check for check in CHECKS if not (unavailable and check == not_a_server_error)]
    case.validate_response(response, checks=checks)


def test_every_answer_is_documented(site: tuple[World, str], schema: OpenApiSchema):
    sent = 0
    for found in schema.get_all_operations():
        operation = found.ok()

        @QUICK
        @given(case=operation.as_strategy())
        def check(case: schemathesis.Case) -> None:
            nonlocal sent
            send(site, case)
            sent += 1

        check()
    assert sent > 50
