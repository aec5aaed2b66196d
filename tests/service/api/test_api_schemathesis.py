"""Requests that the OpenAPI document allows, and some that it does not, to a running server."""

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
import uvicorn
from api_world import World, api_world
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import FlakyStrategyDefinition
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
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, str]]:
    """A world whose application uvicorn serves, and its address."""
    with api_world(tmp_path_factory.mktemp("served")) as world:
        config = uvicorn.Config(world.app, port=0, log_level="warning", proxy_headers=False)
        server = uvicorn.Server(config)
        socket = config.bind_socket()
        thread = threading.Thread(target=server.run, args=([socket],))
        thread.start()
        try:
            yield world, f"http://127.0.0.1:{socket.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(30)
            socket.close()
            assert not thread.is_alive()


@pytest.fixture(scope="module")
def schema(served: tuple[World, str]) -> OpenApiSchema:
    """The document of the running server, without streams, which end with their client alone."""
    _, address = served
    found = schemathesis.openapi.from_url(f"{address}/v1/openapi.json", wait_for_schema=10)
    return found.exclude(path_regex="/events$")


def checks_of(case: schemathesis.Case) -> list[Any]:
    """What an answer must hold; that the service is not ready, with 503, is one."""
    return [check for check in CHECKS if check != not_a_server_error or case.path != "/readyz"]


def send(served: tuple[World, str], case: schemathesis.Case) -> None:
    """Send a request as an admin, and hold the answer against the document."""
    world, address = served
    case.headers.update(world.headers("admin"))
    if case.path.endswith("/wait"):
        case.query = {**case.query, "timeout_s": 0}
    case.call_and_validate(base_url=address, checks=checks_of(case), timeout=30)


def test_every_answer_is_documented(served: tuple[World, str], schema: OpenApiSchema):
    sent = 0
    for found in schema.get_all_operations():
        operation = found.ok()

        @QUICK
        @given(case=operation.as_strategy())
        def check(case: schemathesis.Case) -> None:
            nonlocal sent
            send(served, case)
            sent += 1

        check()
    assert sent > 50


@pytest.mark.slow
def test_no_chain_of_requests_breaks_the_server(served: tuple[World, str], schema: OpenApiSchema):
    world, address = served
    failures: list[BaseException] = []
    statuses: Counter[int] = Counter()

    class Chain(schema.as_state_machine()):  # type: ignore[misc]
        def get_call_kwargs(self, case: schemathesis.Case) -> dict[str, object]:
            if case.path.endswith("/wait"):
                case.query = {**case.query, "timeout_s": 0}
            return {"base_url": address, "headers": world.headers("admin"), "timeout": 30}

        def validate_response(self, response: Any, case: schemathesis.Case, **more: Any) -> None:
            statuses[response.status_code] += 1
            try:
                case.validate_response(response, checks=checks_of(case))
            except BaseException as error:
                failures.append(error)

    # What the server keeps of one chain may change the next: that is no fault of an answer.
    with contextlib.suppress(FlakyStrategyDefinition):
        Chain.run(settings=settings(QUICK, max_examples=25, stateful_step_count=12))
    assert not failures, failures[0]
    assert statuses[200] > 20
    assert statuses[201] > 5
