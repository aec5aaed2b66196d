"""Explains pydantic's errors in terms of the YAML document: path, mistake, allowed values."""

import json
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from itertools import groupby
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from distrain.jobs.spec.fields import FUNCTION, REMOVED_KEY
from distrain.jobs.spec.job import JOB_NAME, JobSpec
from distrain.jobs.spec.tasks import TASK_NAME
from distrain.storage.urls import without_secrets

_LIKENESS = 0.7  # below this similarity a suggested name would mislead
LONGEST_VALUE = 80
"""Maximum number of characters shown of an invalid value."""

_WHOLE, _NUMBER, _FLAG = "an integer is needed", "a number is needed", "true or false is needed"

# pydantic's messages name Python's types; a job spec has numbers, lists and mappings.
_WORDS = {
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "int_parsing_size": "an integer of fewer digits is needed",
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": "a finite number is needed",
    "bool_type": _FLAG,
    "bool_parsing": _FLAG,
    "string_type": "a string is needed (in quotes, if it looks like a number)",
    "string_too_short": "a text of one or more characters is needed",
    "tuple_type": "a list is needed",
}
_OF_PATTERNS = {
    JOB_NAME: "1 to 63 letters, digits, dots, hyphens and underscores are needed, the first a "
    "letter or digit",
    TASK_NAME: "1 to 63 letters, digits, hyphens and underscores are needed, the first not a "
    "hyphen",
    FUNCTION: "package.module:NAME is needed",
}
_MAPPINGS = ("dict_type", "model_type", "model_attributes_type")


def explain_all(errors: Sequence[Any], root: type[BaseModel] = JobSpec) -> list[str]:
    """Return one line for each of pydantic's errors.

    Errors that a union's types cause together give one line.

    Args:
        errors: The result of `ValidationError.errors()`.
        root: The model that the document was validated as.
    """
    return [line for _, line in explained(errors, root)]


def explained(
    errors: Sequence[Any], root: type[BaseModel] = JobSpec
) -> list[tuple[list[Any], str]]:
    """Return the lines of `explain_all`, each with the keys that lead to the mistake."""
    told = _of_one_type(errors, root)
    inner = {item["loc"][:-1] for item in told}
    # pydantic reports a list whose only item is wrong as too short as well.
    kept = [e for e in told if not (e["type"] == "too_short" and e["loc"] in inner)]
    return [(_followed(item["loc"], root)[0], _explain(item, root)) for item in kept]


def unknown_key(loc: Sequence[Any], root: type[BaseModel]) -> str:
    """Return the message for a key that a section lacks, if possible with a suggestion.

    `loc` is the path of the key in a document of the model `root`.
    """
    return _unknown_key(str(loc[-1]), _followed(loc, root)[1])


def _of_one_type(errors: Iterable[Any], root: type[BaseModel], depth: int = 0) -> list[Any]:
    """Return pydantic's errors; for a union, only those of the type that fits the value best.

    If the value has none of the union's types, one error names them all.

    Args:
        errors: The errors of a document; for a union, pydantic lists those of each of its types.
        root: The document's model.
        depth: Number of unions in each error's path that are handled already.
    """
    found: list[Any] = []
    for loc, group in groupby(errors, lambda item: _loc_of_union(item["loc"], root, depth)):
        members = [*group]
        if loc is None:
            found += members
            continue
        near = [e for e in members if len(e["loc"]) > len(loc) + 1 or not _is_of_type(e)]
        if near:
            found += _of_one_type(near, root, depth + 1)
        else:
            found.append({**members[0], "loc": loc, "type": "union", "msg": _any_of(members)})
    return found


def _loc_of_union(loc: Sequence[Any], root: type[BaseModel], depth: int) -> tuple[Any, ...] | None:
    """Return the path of the union at which an error occurred; `None` if there is no union.

    Of several unions on the error's path, `depth` outer ones are skipped.
    """
    ends = _followed(loc, root)[2][depth:]
    return tuple(loc[: ends[0]]) if ends else None


def _is_of_type(item: Any) -> bool:
    """Return True if an error says only that the value has the wrong type or literal."""
    kind: str = item["type"]
    return kind == "literal_error" or kind.endswith(("_type", "_parsing"))


def _any_of(errors: Sequence[Any]) -> str:
    """Return one message for the errors of a union's types, with the values that each type takes.

    >>> _any_of([{"type": "bool_type"}, {"type": "literal_error", "ctx": {"expected": "'auto'"}}])
    "true or false or 'auto' is needed"
    """
    words = [
        item["ctx"]["expected"] if item["type"] == "literal_error" else _words_for(item)
        for item in errors
    ]
    *first, last = (word.partition(" is needed")[0] for word in words)
    return f"{', '.join(first)} or {last} is needed"


def _words_for(item: Any) -> str:
    if item["type"] in _MAPPINGS:
        return "a mapping of keys is needed"
    if item["type"] == "string_pattern_mismatch" and item["ctx"]["pattern"] in _OF_PATTERNS:
        return _OF_PATTERNS[item["ctx"]["pattern"]]
    return _WORDS.get(item["type"]) or str(item["msg"]).removeprefix("Value error, ")


def _explain(item: Any, root: type[BaseModel]) -> str:
    """Return one line about one of pydantic's errors: the path in the document, and the mistake."""
    keys, place, _ = _followed(item["loc"], root)
    path = ".".join(_key(part) for part in keys)
    match item["type"]:
        case "extra_forbidden":
            return f"{path}: {unknown_key(item['loc'], root)}"
        case "missing":
            return f"{path}: required, but missing"
        case kind if kind == REMOVED_KEY:
            return f"{path}: {item['msg']}"
        case "union_tag_not_found":
            tag, kinds = _kinds_of(place)
            return f"{path}.{tag}: required, but missing (allowed: {', '.join(kinds)})"
        case "union_tag_invalid":
            tag, kinds = _kinds_of(place)
            problem = "not a model" if keys == ["model"] else "unknown"
            given = shown(item["input"].get(tag))
            guess = _guess(str(item["input"].get(tag)), list(kinds))
            return f"{path}.{tag}: {given} is {problem}{guess} (allowed: {', '.join(kinds)})"
        case "too_short":
            return f"{path}: needs at least {item['ctx']['min_length']} item"
        case "too_long":
            return f"{path}: has more than {item['ctx']['max_length']} items"
        case kind if kind in _MAPPINGS:
            section = place if _kinds_of(place)[1] else _inside(place, keys[-1])
            message = f"{_words_for(item)}, such as {{{_example(section)}}}"
        case _:
            message = _words_for(item)
    if not keys:
        return message
    return f"{path}: {message[0].lower()}{message[1:]}; got {shown(item['input'])}"


def _example(section: Any) -> str:
    """Return an example of a section's content, `KEY: DEFAULT` for up to two of its keys.

    For a union with a discriminator, it is the discriminator's key and first value. For a mapping
    whose keys are not fixed, it is `NAME: VALUE`.
    """
    tag, kinds = _kinds_of(section)
    if kinds:
        return f"{tag}: {next(iter(kinds))}"
    if not (isinstance(section, type) and issubclass(section, BaseModel)):
        return "NAME: VALUE"
    pairs = [
        f"{field.alias or name}: {_default(field)}"
        for name, field in section.model_fields.items()
        if field.is_required() or isinstance(field.default, str | int | float)
    ]
    return ", ".join(pairs[:2])


def _default(field: FieldInfo) -> str:
    return "..." if field.is_required() else json.dumps(field.default).strip('"')


def shown(value: object) -> str:
    """Return a value as text for messages, without secrets, in at most `LONGEST_VALUE` characters.

    >>> shown({"a": None}), shown(None), len(shown("x" * 1000))
    ("{'a': None}", 'null', 80)
    """
    if value is None:
        return "null"
    try:
        text = without_secrets(repr(value))  # before the cut: part of a secret is not recognised
    except (ValueError, RecursionError):  # integers of thousands of digits, endless nesting
        return "something too large to show"
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 3] + "..."


def _key(part: object) -> str:
    text = str(part)
    return text if text and text.isprintable() else repr(text)


def _unknown_key(key: str, section: Any) -> str:
    """Return the message for an unknown key of a section, if possible with a suggestion."""
    allowed = _keys_of(section)
    below = [f"{name}.{key}" for name in allowed if key in _keys_below(_inside(section, name))]
    guess = _of_other_tools(key, allowed) or _guess(key, allowed)
    guess = guess or (f"; did you mean {below[0]!r}?" if below else "")
    return f"unknown key{guess} (allowed: {', '.join(allowed)})"


_OTHER_TOOLS = {
    **dict.fromkeys(("lr", "learning_rate", "eta"), "optimizer.lr"),
    **dict.fromkeys(("batch_size", "batch"), "global_batch_size"),
    **dict.fromkeys(("num_epochs", "n_epochs", "max_epochs"), "epochs"),
}
"""Fields of `train` by their names in other tools."""

ARGUMENTS_OF_OTHER_TOOLS = {
    **dict.fromkeys(("label", "labels", "y"), "target"),
    "val": "valid",
    "kind": "model",
    "output": "out",
}
"""Arguments of `fit` and options of commands, by their names in other tools."""


def _of_other_tools(key: str, allowed: list[str]) -> str:
    path = _OTHER_TOOLS.get(key.lower(), "")
    for name in (path, path.rpartition(".")[2], f"train.{path}"):
        if path and name.partition(".")[0] in allowed:
            return f"; did you mean {name!r}?"
    return ""


def spec_field(name: str) -> str | None:
    """Return the path of the field of a job spec that has a name, also one of other tools.

    For a section, it is the path of the section's first field. `None` if there is no such field, if
    it is a mapping of names, and for the kind of the model, which alone does not suit the section's
    other fields.

    >>> spec_field("epochs"), spec_field("learning_rate"), spec_field("hidden"), spec_field("label")
    ('train.epochs', 'train.optimizer.lr', 'model.hidden', None)
    >>> spec_field("optimizer"), spec_field("tasks"), spec_field("kind")
    ('train.optimizer.kind', None, None)
    """
    if path := _OTHER_TOOLS.get(name):
        return f"train.{path}"
    for key in _keys_of(JobSpec):
        place = _inside(JobSpec, key)
        holder = next((one for one in _sections_of(place) if name in _keys_of(one)), None)
        if holder is None or name == _kinds_of(place)[0]:
            continue
        value = _inside(holder, name)
        if get_origin(value) in (dict, Mapping):
            return None
        inner = _sections_of(value)
        return ".".join([key, name, *(_keys_of(inner[0])[:1] if inner else ())])
    return None


def _guess(text: str, allowed: list[str]) -> str:
    near = get_close_matches(text, allowed, n=1, cutoff=_LIKENESS)
    return f"; did you mean {near[0]!r}?" if near else ""


def _keys_below(place: Any) -> set[str]:
    return {key for section in _sections_of(place) for key in _keys_of(section)}


def _sections_of(place: Any) -> list[type[BaseModel]]:
    """Return the sections that a type allows: one, several for a union, or none."""
    sections = list(_kinds_of(place)[1].values()) or [place]
    return [one for one in sections if isinstance(one, type) and issubclass(one, BaseModel)]


def _followed(loc: Sequence[Any], root: type[BaseModel]) -> tuple[list[Any], Any, list[int]]:
    """Follow an error's `loc` from `root` through sections, mappings, lists and unions.

    Returns the document's keys on this path, the type that contains the last key, and the positions
    of the elements of `loc` that are not keys, but name a type of a union.
    """
    keys: list[Any] = []
    unions: list[int] = []
    place: Any = root
    above: Any = root
    for depth, part in enumerate(loc):
        if part == "[key]":  # the key itself is wrong, not its value
            break
        if kinds := _kinds_of(place)[1]:
            place = kinds[part]
        elif members := _members(place):
            unions.append(depth)
            place = next((one for one in members if str(part).startswith(_name(one))), None)
            above = place
        else:
            keys.append(part)
            above, place = place, _inside(place, part)
    return keys, above if not _kinds_of(place)[1] else place, unions


def _members(place: Any) -> list[Any]:
    """Return the types of a union without a discriminator, except `None`; `[]` for other types.

    `int | None` gives `[int]`.
    """
    if get_origin(place) not in (UnionType, Union):
        return []
    return [_bare(one) for one in get_args(place) if one is not NoneType]


def _name(kind: Any) -> str:
    return getattr(get_origin(kind) or kind, "__name__", str(kind))


def _inside(place: Any, part: Any) -> Any:
    """Return the type of the value at key `part` of a section, mapping or list.

    `place` is the type of that section, mapping or list. `None` if it is another type, or has no
    such key.
    """
    if isinstance(place, type) and issubclass(place, BaseModel):
        by_key = {field.alias or name: field for name, field in place.model_fields.items()}
        return _bare(by_key.get(part) or place.model_fields.get(part))
    origin, inner = get_origin(place), get_args(place)
    if origin in (dict, Mapping, tuple, list) and inner:
        return _bare(inner[1] if origin in (dict, Mapping) else inner[0])
    return None


def _bare(annotation: Any) -> Any:
    """Return a type annotation, or that of a field, without `Annotated` and without `None`.

    A union with a discriminator is returned as a `FieldInfo`.
    """
    if isinstance(annotation, FieldInfo):
        if annotation.discriminator is not None:
            return annotation
        return _bare(annotation.annotation)
    if get_origin(annotation) is Annotated:
        kind, *extra = get_args(annotation)
        tagged = [e for e in extra if isinstance(e, FieldInfo) and e.discriminator is not None]
        return FieldInfo.from_annotation(annotation) if tagged else _bare(kind)
    members = _members(annotation)
    return members[0] if len(members) == 1 else annotation


def _kinds_of(place: Any) -> tuple[str, dict[str, Any]]:
    """Return a union's discriminator, such as `kind`, and its sections by the value of that key.

    `"", {}` if `place` is not a union with a discriminator.
    """
    if not isinstance(place, FieldInfo) or not isinstance(place.discriminator, str):
        return "", {}
    tag = place.discriminator
    union = place.annotation
    union = get_args(union)[0] if get_origin(union) is Annotated else union
    members = [
        arg for arg in get_args(union) if isinstance(arg, type) and issubclass(arg, BaseModel)
    ]
    return tag, {value: m for m in members for value in get_args(m.model_fields[tag].annotation)}


def _keys_of(section: Any) -> list[str]:
    return [field.alias or name for name, field in section.model_fields.items()]
