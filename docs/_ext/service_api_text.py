"""The reference of the job service's API, out of its OpenAPI document."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from markdown_pieces import code, first_sentence_capital, table

from distrain.service.api.app import openapi_document
from distrain.service.api.problems import CODES


def calls() -> str:
    """A heading, what it does, and tables of parameters and answers for each call."""
    document = openapi_document()
    return "\n\n".join(
        _call(method, path, operation)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    )


def codes() -> str:
    """The codes of problems."""
    rows = [(code(name), str(status), title) for name, (status, title) in CODES.items()]
    return table(["code", "status", "meaning"], rows)


def document_text() -> str:
    """The OpenAPI document as it is committed."""
    return json.dumps(openapi_document(), indent=1, ensure_ascii=False) + "\n"


def _call(method: str, path: str, operation: Mapping[str, Any]) -> str:
    parts = [f"### {method.upper()} {path}", operation.get("description", "")]
    parameters = [
        (code(p["name"]), p["in"], first_sentence_capital(p.get("description", "")))
        for p in operation.get("parameters", ())
    ]
    if parameters:
        parts.append(table(["parameter", "in", "meaning"], parameters))
    body = operation.get("requestBody", {}).get("content", {})
    if body:
        parts.append("Body: " + ", ".join(_schema(kind["schema"]) for kind in body.values()) + ".")
    parts.append(table(["status", "answer"], _answers(operation["responses"])))
    return "\n\n".join(parts)


def _answers(responses: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for status, answer in sorted(responses.items()):
        problem = "application/problem+json" in answer.get("content", {})
        kinds = [_schema(kind["schema"]) for kind in answer.get("content", {}).values()]
        told = [answer["description"]] if problem else [answer["description"].rstrip("."), *kinds]
        yield status, ": ".join(text for text in told if text)


def _schema(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return code(schema["$ref"].rpartition("/")[2])
    several = [_schema(one) for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    return " or ".join(text for text in several if text) or code(schema.get("type", ""))
