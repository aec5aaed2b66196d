"""The reference of the job spec, from its pydantic models."""

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from markdown_pieces import code, table
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from distrain.jobs.spec import JobSpec
from distrain.jobs.spec.fields import Section
from distrain.jobs.spec.models.kinds import ModelSpec
from distrain.jobs.spec.tasks import SharingSpec, TaskSpec

_KINDS = get_args(get_args(ModelSpec)[0])
_OF_MODELS = {
    "tasks": "mapping of names to [tasks](#modeltasksname)",
    "sharing": "[a kind](#modelsharing-kind-shared_bottom), a mapping with its options, or `null`",
}
_TYPES = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false"}


def sections() -> str:
    """A heading and a table for each section, in the order of the document."""
    parts = ["## The document itself", _about(JobSpec), _fields("", JobSpec)]
    for path, section in _sections("", JobSpec):
        parts += [f"## {path}", _about(section), _fields(path.partition(" ")[0] + ".", section)]
        if path.startswith("model") and section is _KINDS[-1]:
            parts += _of_tasks()
    return "\n\n".join(parts)


def _of_tasks() -> Iterator[str]:
    """The sections `tasks` and `sharing`, which many models have."""
    yield from ("## model.tasks.NAME", _about(TaskSpec), _fields("model.tasks.NAME.", TaskSpec))
    for kind in get_args(get_args(SharingSpec)[0]):
        yield f"## model.sharing (kind: {kind.model_fields['kind'].default})"
        yield from (_about(kind), _fields("model.sharing.", kind))


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


def _fields(prefix: str, section: type[Section]) -> str:
    rows = []
    for name, field in _own(section):
        path = prefix + _name(name, field)
        if not field.description:
            raise LookupError(f"the field {path} has no description")
        kind = _OF_MODELS.get(name) or _type(field.annotation)
        rows.append((code(path), kind, _default(field), field.description))
    return table(["field", "value", "default", "meaning"], rows)


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
        return f"list of {_type(inner[0])}s".replace("texts", "text")
    if get_origin(annotation) is dict:
        return f"mapping of text to {_type(get_args(annotation)[1])}"
    if hasattr(annotation, "__metadata__"):
        return _type(get_args(annotation)[0])
    if _is_section(annotation):
        return "mapping of " + ", ".join(code(key) for key in annotation.model_fields)
    if annotation is Any:
        return "any value"
    if get_args(annotation):  # a union
        kinds = get_args(annotation)
        return " or ".join(code("null") if kind is type(None) else _type(kind) for kind in kinds)
    return _TYPES[annotation.__name__]
