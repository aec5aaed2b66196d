"""pydantic's errors in the words of a job spec: path, what is wrong, what is allowed."""

from collections.abc import Sequence
from difflib import get_close_matches
from types import UnionType
from typing import Any, get_args, get_origin

from distrain.spec.models import ModelSpec
from distrain.spec.sections import JobSpec
from distrain.storage import without_secrets

LONGEST_VALUE = 80
"""Characters of an offending value that are shown."""

# pydantic speaks of Python's types; a job spec knows lists and mappings.
_WORDS = {
    "string_type": "a text is needed (in quotes, if it looks like a number)",
    "tuple_type": "a list is needed",
    "string_pattern_mismatch": "1 to 63 letters, digits, dots, hyphens and underscores are needed, "
    "the first a letter or digit",
    "dict_type": "a mapping of keys is needed",
    "model_type": "a mapping of keys is needed",
    "model_attributes_type": "a mapping of keys is needed",
}


def explain_all(errors: Sequence[Any]) -> list[str]:
    """One line for each of pydantic's errors (`ValidationError.errors()`)."""
    inner = {item["loc"][:-1] for item in errors}
    # A list whose only item is wrong is, to pydantic, too short as well.
    kept = [e for e in errors if not (e["type"] == "too_short" and e["loc"] in inner)]
    return [_explain(item) for item in kept]


def _explain(item: Any) -> str:
    loc = list(item["loc"])
    if loc[:1] == ["model"] and len(loc) > 1:
        del loc[1]  # pydantic puts the union's tag there: model.dlrm.top means model.top
    path, kinds = ".".join(_key(part) for part in loc), ", ".join(_model_kinds())
    match item["type"]:
        case "extra_forbidden":
            return f"{path}: {_unknown_key(str(loc[-1]), _keys_of(item['loc'][:-1]))}"
        case "missing":
            return f"{path}: required, but missing"
        case "union_tag_not_found":
            return f"{path}.kind: required, but missing (allowed: {kinds})"
        case "union_tag_invalid":
            given = shown(item["input"].get("kind"))
            return f"{path}.kind: {given} is no model (allowed: {kinds})"
        case "too_short":
            return f"{path}: needs at least {item['ctx']['min_length']} item"
        case "too_long":
            return f"{path}: has more than {item['ctx']['max_length']} items"
        case kind:
            message = _WORDS.get(kind) or str(item["msg"]).removeprefix("Value error, ")
    if not loc:
        return message
    return f"{path}: {message[0].lower()}{message[1:]}, not {shown(item['input'])}"


def shown(value: object) -> str:
    """A value on one short line.

    >>> shown({"a": None}), shown(None), len(shown("x" * 1000))
    ("{'a': None}", 'null', 80)
    """
    if value is None:
        return "null"
    try:
        text = without_secrets(repr(value))  # before it is cut, and a secret with it
    except (ValueError, RecursionError):  # integers of thousands of digits, endless nesting
        return "something too large to show"
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 3] + "..."


def _key(part: object) -> str:
    text = str(part)
    return text if text and text.isprintable() else repr(text)


def _unknown_key(key: str, allowed: list[str]) -> str:
    near = get_close_matches(key, allowed, n=1, cutoff=0.5)
    guess = f"; did you mean {near[0]!r}?" if near else ""
    return f"unknown key{guess} (allowed: {', '.join(allowed)})"


def _model_kinds() -> dict[str, Any]:
    return {m.model_fields["kind"].default: m for m in get_args(get_args(ModelSpec)[0])}


def _keys_of(loc: tuple[Any, ...]) -> list[str]:
    """The keys that the section at `loc` allows."""
    section: Any = JobSpec
    for part in loc:
        if section is JobSpec and part == "model":
            section = _model_kinds()
        elif isinstance(section, dict):
            section = section[part]
        else:
            section = section.model_fields[part].annotation
        if get_origin(section) is UnionType:  # a section that may be null
            section = get_args(section)[0]
    return [field.alias or name for name, field in section.model_fields.items()]
