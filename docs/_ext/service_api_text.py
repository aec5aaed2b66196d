"""The reference of the job service's API, out of its OpenAPI document."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from markdown_pieces import code, first_sentence_capital, table, table_or_list

from distrain.service.api.app import openapi_document
from distrain.service.api.problems import CODES

_COMMON_CODES = frozenset(
    {
        "bad_request",
        "unauthenticated",
        "forbidden",
        "not_found",
        "too_large",
        "unavailable",
    }
)
"""Codes that nearly every call may return: the page names them once, under Errors."""

_OBVIOUS_IN_PATHS = frozenset({"cluster", "preflight_id", "project", "token_id", "user"})
"""Parameters in paths that need no line; `job_id` needs one if the document describes it."""

# Fields and parameters that mean the same wherever they stand and have no description.
_COMMON = {
    "action": "What the user did.",
    "allowed_roots": "The paths and URLs below which a spec may name files.",
    "at": "When it happened.",
    "cluster": "The cluster's name.",
    "created_at": "When it was made.",
    "details": "More about it; its keys depend on the action.",
    "expires_at": "When it expires.",
    "finished_at": "When the job ended.",
    "is_admin": "Whether the user is an admin.",
    "kind": "The kind of the cluster: `address`, `local` or `kubernetes`.",
    "label": "A text by which the user recognises the token.",
    "limit": "The maximum number of entries in the response.",
    "max_priority": "The highest priority that is allowed.",
    "message": "The reason in words: what failed, where, and a hint.",
    "model_packages": "Packages from which specs may name functions.",
    "modified_at": "When the file was last changed.",
    "num_ranks": "The number of ranks.",
    "observed_at": "When the cluster last reported.",
    "owner": "The user who submitted the job.",
    "path": "The file's path in the run folder.",
    "priority": "Jobs of higher priority start first.",
    "project": "The project's name.",
    "quota": "The project's limits.",
    "resumes": "How often the job was resumed.",
    "revoked_at": "When it was revoked.",
    "role": "The role in the project.",
    "run_dir": "The job's run folder.",
    "scopes": "The scopes of the token.",
    "since": "The first day.",
    "size_bytes": "The size of the file.",
    "started_at": "When the job first started.",
    "tags": "The job's tags.",
    "target": "The object of the action.",
    "timeout_s": "The maximum time to wait, in seconds.",
    "token_id": "The token's id.",
    "user": "The user's name.",
    "valid": "Whether the spec can be submitted.",
}
_SHARED = frozenset({"Health"})
"""Small types of several calls, which keep a section of their own."""

_FIRST = ("id", "name", "project", "owner", "cluster", "state", "reason", "message")
"""Fields that are listed first; the document has those of base classes first."""

_SIMPLE = {
    "string": "string",
    "integer": "integer",
    "number": "number",
    "boolean": "boolean",
    "object": "object",
}
_FORMATS = {"date-time": "time", "date": "day", "binary": "bytes"}
_LARGEST_LIMIT = (1 << 31) - 2
_MOST_FIELDS_IN_A_CALL = 2
"""Types of a body or a response with up to this number of fields have no section of their own."""
_CODE_OF_PROBLEM = re.compile(r"`(\w+)`:")
_JSON = "application/json"


def calls() -> str:
    """A heading, what it does, its parameters, its body, and its responses for each call."""
    parts: list[str] = []
    for path, operations in openapi_document()["paths"].items():
        head = operations.pop("head", None)  # its responses are those of `get`, without a body
        for method, operation in operations.items():
            methods = f"{method}, head" if method == "get" and head else method
            parts += _call(methods.upper(), path, operation)
    return "\n\n".join(part for part in parts if part)


def types() -> str:
    """A heading, what it is, and a table of fields for each type of bodies and responses."""
    parts = []
    for name, schema in _schemas().items():
        if "enum" in schema or name in _in_calls():
            continue
        parts += [f"### Type {name}", _about(schema)]
        fields, base = _fields(name), _base(name)
        if base:
            parts.append(f"It has the fields of {_link(base)}, and:")
            fields = [field for field in fields if field not in _fields(base)]
        parts.append(table_or_list(["field", "values", "meaning"], fields))
    return "\n\n".join(part for part in parts if part)


@cache
def _schemas() -> Mapping[str, Any]:
    schemas: Mapping[str, Any] = openapi_document()["components"]["schemas"]
    return schemas


def _fields(name: str) -> list[tuple[str, str, str]]:
    """Each field's name, values and meaning."""
    schema = _schemas()[name]
    required = schema.get("required", ()) if name.endswith("Request") else ()
    fields = schema.get("properties", {})
    first = [field for field in _FIRST if field in fields]
    return [
        (
            code(field),
            _values(fields[field], field in required, name),
            _meaning(field, fields[field]),
        )
        for field in dict.fromkeys([*first, *fields])
    ]


def _base(name: str) -> str | None:
    """Another type all of whose fields this type has with the same meanings."""
    own = set(_fields(name))
    for other, schema in _schemas().items():
        fields = set(_fields(other)) if "enum" not in schema else set()
        if len(fields) > _MOST_FIELDS_IN_A_CALL and fields < own:
            return other
    return None


@cache
def _in_calls() -> frozenset[str]:
    """The types that are described where a call takes or returns them."""
    inside = json.dumps(_schemas())
    return frozenset(
        name
        for name, schema in _schemas().items()
        if "enum" not in schema
        and len(schema.get("properties", {})) <= _MOST_FIELDS_IN_A_CALL
        and f'/{name}"' not in inside
        and name not in _SHARED
    )


def _about(schema: Mapping[str, Any]) -> str:
    return " ".join(schema.get("description", "").split())


def codes() -> str:
    """The codes of problems."""
    rows = [(code(name), str(status), title) for name, (status, title) in CODES.items()]
    return table(["code", "status", "meaning"], rows)


def document_text() -> str:
    """The OpenAPI document as it is committed."""
    return json.dumps(openapi_document(), indent=1, ensure_ascii=False) + "\n"


def _call(methods: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {methods} {path}"
    yield operation.get("description", "")
    answers = sorted(operation["responses"].items())
    body = operation.get("requestBody", {}).get("content", {})
    lines = [_parameter(p) for p in operation.get("parameters", ()) if not _is_obvious(p)]
    if body:
        lines.append("- Body: " + _body(body))
    for status, answer in answers:
        if not _is_problem(answer):
            lines.append(f"- {status}" + _answer(answer))
    errors = [
        f"`{name}` ({status})"
        for status, answer in answers
        if _is_problem(answer)
        for name in _CODE_OF_PROBLEM.findall(answer["description"])
        if name not in _COMMON_CODES and f"`{name}`" not in operation.get("description", "")
    ]
    if errors:
        others = "Other errors" if "`: " in operation.get("description", "") else "Errors"
        lines.append(f"- {others}: " + ", ".join(errors))
    yield "\n".join(lines)


def _parameter(p: Mapping[str, Any]) -> str:
    """A line about a parameter; those of the query need no word for their place."""
    values = _values(p["schema"], p["required"], "").replace(", or null", "")  # null: not sent
    place = "" if p["in"] == "query" else f"{p['in']}; "
    return f"- {code(p['name'])} ({place}{values}): {_meaning(p['name'], p)}"


def _is_obvious(parameter: Mapping[str, Any]) -> bool:
    name, described = parameter["name"], parameter.get("description", "")
    return parameter["in"] == "path" and (
        name in _OBVIOUS_IN_PATHS or (name == "job_id" and described in ("", "The job's id."))
    )


def _answer(answer: Mapping[str, Any]) -> str:
    content = answer.get("content", {})
    told = answer["description"].rstrip(".")
    if told == "Successful Response" or "text/event-stream" in content:
        told = ""
    body = _body(content)
    return "".join(f": {text}" for text in ("" if "\n" in body else told, body) if text)


def _body(content: Mapping[str, Any]) -> str:
    """The type of a body; of a small one, its fields as lines of their own."""
    named = content.get(_JSON, {}).get("schema", {}).get("$ref", "").rpartition("/")[2]
    if named in _in_calls():
        lines = [_about(_schemas()[named]).removesuffix(".") + ":"]
        for field, values, meaning in _fields(named):
            lines.append(f"  - {field}: {values}" + f". {meaning}" * bool(meaning))
        return "\n".join(lines)
    kinds = [
        _type(kind["schema"]) if name == _JSON else code(name) for name, kind in content.items()
    ]
    return " or ".join(kinds)


def _is_problem(answer: Mapping[str, Any]) -> bool:
    return "application/problem+json" in answer.get("content", {})


def _meaning(name: str, described: Mapping[str, Any]) -> str:
    if described.get("description", "").startswith(f"One of `{next(iter(CODES))}`"):
        return "One of the [codes](#errors)."
    return first_sentence_capital(described.get("description", "") or _COMMON.get(name, ""))


def _values(schema: Mapping[str, Any], required: bool, owner: str) -> str:
    """The type, limits and default; defaults of responses mean nothing, so they are left out."""
    several = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    limited = several[0] if len(several) == 1 else schema
    words = [_type(schema)]
    low, high = limited.get("minimum"), limited.get("maximum")
    if (high or 0) > _LARGEST_LIMIT:  # a limit of the database
        low = high = None
    if low is not None and high is not None:
        words.append(f"{low:,.0f} to {high:,.0f}")
    elif low is not None or high is not None:
        words.append(f"at least {low:,.0f}" if high is None else f"at most {high:,.0f}")
    for key, unit in (("maxLength", "characters"), ("maxItems", "values")):
        if key in limited:
            words.append(f"at most {limited[key]:,} {unit}")
    if required:
        words.append("required")
    elif schema.get("default") not in (None, "", [], {}) and (not owner or "Request" in owner):
        words.append(f"default {code(_default(schema['default']))}")
    return "; ".join(words)


def _default(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value)


def _link(name: str) -> str:
    return f"[{name}](#type-{name.lower()})"


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return _type(_schemas()[name]) if "enum" in _schemas()[name] else _link(name)
    if "anyOf" in schema:
        kinds = [_type(one) for one in schema["anyOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds)) + ", or null" * (len(kinds) < len(schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    if "enum" in schema:
        return " or ".join(code(value) for value in schema["enum"])
    return _FORMATS.get(schema.get("format", ""), _SIMPLE.get(schema.get("type", ""), "any value"))
