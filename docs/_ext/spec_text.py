"""The reference of the job spec, from its pydantic models."""

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any, Literal, get_args, get_origin

from markdown_pieces import MOST_ROWS_OF_A_LIST, code, table, table_or_list
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from distrain.jobs.spec import JobSpec
from distrain.jobs.spec.fields import Section
from distrain.jobs.spec.models.kinds import ModelSpec
from distrain.jobs.spec.tasks import SharingSpec, TaskSpec

_KINDS = get_args(get_args(ModelSpec)[0])
_OF_MODELS = {
    "tasks": "object: string to [task](#modeltasksname)",
    "sharing": "[a kind](#modelsharing-kind-shared_bottom), an object with its options, or `null`",
}
_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
_OR_NULL = " or `null`"
_FEWEST_KINDS = 2
"""Fields that this number of models have with one meaning are explained once."""


def sections() -> str:
    """A heading and a table for each section, in the order of the document."""
    parts = ["## The document itself", _about(JobSpec), _fields("", JobSpec)]
    seen: dict[type[Section], str] = {}
    for path, section in _sections("", JobSpec):
        if section is _KINDS[0]:
            parts += _of_models()
        if section in _KINDS:
            parts += [f"## {path}", _about(section), *_of_kind(section)]
        elif section in seen:
            parts += [f"## {path}", f"The fields and defaults are those of {_link(seen[section])}."]
        else:
            seen[section] = path
            parts += [f"## {path}", _about(section), _fields(path.partition(" ")[0] + ".", section)]
        if path.startswith("model") and section is _KINDS[-1]:
            parts += _of_tasks()
    return "\n\n".join(part for part in parts if part)


def _link(path: str) -> str:
    return f"[{code(path)}](#{path.replace('.', '')})"


def _of_models() -> Iterator[str]:
    """The section `model`: the fields that several kinds have."""
    yield "## model"
    without = [code(_kind(kind)) for kind in _KINDS if not _has_tasks(kind)]
    yield (
        "`model.kind` is the model's name; the other fields depend on it. This table describes the "
        "fields that several kinds have. The section of a kind has its own fields, and its "
        "defaults of these common fields."
    )
    yield (
        "`tasks` (default `{}`) and `sharing` (default `null`) are fields of all kinds except "
        f"{', '.join(without[:-1])} and {without[-1]}."
    )
    rows = [
        (code(f"model.{name}"), kind, meaning) for name, (kind, meaning) in _common_fields().items()
    ]
    yield table(["field", "value", "meaning"], rows)


def _kind(section: type[Section]) -> str:
    return str(section.model_fields["kind"].default)


def _has_tasks(section: type[Section]) -> bool:
    return set(_OF_MODELS) <= {_name(name, field) for name, field in _own(section)}


def _common_fields() -> dict[str, tuple[str, str]]:
    """The value and the meaning of the fields that several kinds have, by name."""
    counts = Counter(
        (_name(name, field), _value_of(name, field), field.description or "")
        for kind in _KINDS
        for name, field in _own(kind)
        if name != "kind"
    )
    found: dict[str, tuple[str, str]] = {}
    for (name, value, meaning), count in counts.most_common():
        is_wider = name in found and value == found[name][0] + _OR_NULL
        if count >= _FEWEST_KINDS and (name not in found or is_wider):
            found[name] = value, meaning
    return found


def _is_common(name: str, field: FieldInfo) -> bool:
    """Whether the common field describes this one, which may lack its value `null`."""
    value, meaning = _common_fields().get(name, ("", ""))
    own = _value_of(name, field)
    return own in (value, value.removesuffix(_OR_NULL)) and field.description in (
        meaning,
        meaning.partition("; null: ")[0] + "." if own != value else meaning,
    )


def _of_kind(section: type[Section]) -> Iterator[str]:
    """A table of a model's own fields, and the defaults of the fields that others have, too."""
    shared = {
        _name(name, field): field
        for name, field in _own(section)
        if _is_common(_name(name, field), field)
    }
    if {*(_name(name, field) for name, field in _own(section))} - {"kind", *shared}:
        yield _fields("model.", section, without={"kind", *shared})
    defaults = [
        code(f"{name}: {_default(field).strip('`')}") + _not_null(name, field)
        for name, field in shared.items()
        if name not in _OF_MODELS
    ]
    if defaults:
        yield f"[Common fields](#model): {', '.join(defaults)}."


def _not_null(name: str, field: FieldInfo) -> str:
    """A remark if the common field may be null, and this one not."""
    own = _value_of(name, field)
    return " (not null)" if _common_fields()[name][0] == own + _OR_NULL else ""


def _of_tasks() -> Iterator[str]:
    """The sections `tasks` and `sharing`, which many models have."""
    yield from ("## model.tasks.NAME", _about(TaskSpec), _fields("model.tasks.NAME.", TaskSpec))
    for kind in get_args(get_args(SharingSpec)[0]):
        yield f"## model.sharing (kind: {_kind(kind)})"
        yield from (_about(kind), _fields("model.sharing.", kind, without={"kind"}))


def field_paths() -> list[str]:
    """Every field's path, such as `train.optimizer.lr`."""
    paths = _paths("", JobSpec)
    for path, section in _sections("", JobSpec):
        paths += _paths(path.partition(" ")[0] + ".", section)
    return paths


def _paths(prefix: str, section: type[Section]) -> list[str]:
    return [prefix + _name(name, field) for name, field in _own(section)]


def _sections(prefix: str, section: type[Section]) -> Iterator[tuple[str, type[Section]]]:
    for name, field in section.model_fields.items():
        if field.discriminator is not None:
            for kind in _KINDS:
                yield f"{prefix}{name} (kind: {kind.model_fields['kind'].default})", kind
            continue
        for inner in (field.annotation, *get_args(field.annotation)):  # or one that may be null
            if _is_section(inner):
                yield prefix + name, inner
                yield from _sections(f"{prefix}{name}.", inner)


def _own(section: type[Section]) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in section.model_fields.items():
        if field.discriminator is None and not _is_section(field.annotation):
            yield name, field


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Section)


def _about(section: type[Section]) -> str:
    return " ".join((section.__doc__ or "").split())


def _fields(prefix: str, section: type[Section], without: Collection[str] = ()) -> str:
    rows = []
    for name, field in _own(section):
        path = prefix + _name(name, field)
        if not field.description:
            raise LookupError(f"the field {path} has no description")
        if _name(name, field) not in without:
            rows.append((code(path), _value_of(name, field), _default(field), field.description))
    if len(rows) <= MOST_ROWS_OF_A_LIST:
        rows = [(*row[:2], _in_words(row[2]), row[3]) for row in rows]
    return table_or_list(["field", "value", "default", "meaning"], rows)


def _in_words(default: str) -> str:
    """A default as a list has it, which lacks the column's heading."""
    return default if default == "required" else f"default {default}"


def _value_of(name: str, field: FieldInfo) -> str:
    kind = _OF_MODELS.get(name) or _type(field.annotation)
    # The schema of such a field has a value beside the annotation, which is its default.
    return f"{kind} or {_default(field)}" if callable(field.json_schema_extra) else kind


def _name(name: str, field: FieldInfo) -> str:
    return field.alias or name


def _default(field: FieldInfo) -> str:
    if callable(field.json_schema_extra):  # its schema has a default of its own
        schema: dict[str, Any] = {}
        field.json_schema_extra(schema)
        return code(schema["default"])
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return "required"
    if value is None:
        return code("null")
    if isinstance(value, bool):
        return code(str(value).lower())
    if isinstance(value, tuple):
        return code(str(list(value)))
    return code(value)


def _type(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return ", ".join(code(value) for value in get_args(annotation))
    if get_origin(annotation) is tuple:
        inner = [a for a in get_args(annotation) if a is not Ellipsis]
        kind, with_, fields = _type(inner[0]).partition(" with ")
        return f"list of {kind}s{with_}{fields}"
    if get_origin(annotation) is dict:
        return f"object: string to {_type(get_args(annotation)[1])}"
    if hasattr(annotation, "__metadata__"):
        return _type(get_args(annotation)[0])
    if _is_section(annotation):
        return "object with " + ", ".join(code(key) for key in annotation.model_fields)
    if annotation is Any:
        return "any value"
    if get_args(annotation):  # a union
        kinds = get_args(annotation)
        return " or ".join(code("null") if kind is type(None) else _type(kind) for kind in kinds)
    return _TYPES[annotation.__name__]
