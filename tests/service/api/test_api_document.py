"""The OpenAPI document: committed as it is served, with all answers, and every call secured."""

from distrain.service.api.app import openapi_document
from distrain.service.api.problems import CODES

PUBLIC = {"/livez", "/readyz", "/metrics"}
NOT_READY = ("/readyz", "503")
"""An answer with what failed, and no problem."""


def operations():
    for path, methods in openapi_document()["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_every_call_documents_its_problems_and_needs_a_caller():
    for path, method, operation in operations():
        assert operation["description"], path
        responses = operation["responses"]
        assert "400" in responses, path
        for status, answer in responses.items():
            if int(status) >= 400 and (path, status) != NOT_READY:
                assert "application/problem+json" in answer.get("content", {}), (path, status)
        if path not in PUBLIC:
            schemes = {name for need in operation["security"] for name in need}
            assert schemes == {"token", "session"}, (path, method)
            assert {"401", "403"} <= set(responses), (path, method)


def test_requests_are_closed():
    schemas = openapi_document()["components"]["schemas"]
    bodies = {
        name
        for _, _, operation in operations()
        for kind in operation.get("requestBody", {}).get("content", {}).values()
        for name in str(kind["schema"]).split("'")
        if name.startswith("#/components/schemas/")
    }
    assert bodies
    for name in bodies:
        assert schemas[name.rpartition("/")[2]]["additionalProperties"] is False, name


def test_codes_have_statuses():
    assert all(400 <= status < 600 for status, _ in CODES.values())
