"""The reference of the service's configuration, from its pydantic models."""

from collections.abc import Iterator
from typing import Any, get_args

from markdown_pieces import code, table
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from distrain.service.settings import Settings

_DATA_DIR = "~/.local/share/distrain/serve"


def sections() -> str:
    """A heading and a table for each section of `serve.yaml`."""
    parts = ["### The document itself", _fields("", Settings)]
    first = dict[type[BaseModel], str]()
    for path, section in _sections("", Settings):
        if section in first:
            parts += [
                f"### {path}",
                f"The same keys as [{first[section]}](#{first[section].replace('.', '')}).",
            ]
            continue
        first[section] = path
        about = " ".join((section.__doc__ or "").split())
        parts += [f"### {path}", about, _fields(f"{path}.", section)]
    return "\n\n".join(part for part in parts if part)


def field_paths() -> list[str]:
    """Every field's path, such as `listen.port`."""
    found = [name for name, _ in _own(Settings)]
    for path, section in _sections("", Settings):
        found += [f"{path}.{name}" for name, _ in _own(section)]
    return found


def _sections(prefix: str, section: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in section.model_fields.items():
        inner = _inner(field.annotation)
        if inner is not None:
            path = f"{prefix}{name}" + (".NAME" if _is_mapping(field) else "")
            yield path, inner
            yield from _sections(f"{path}.", inner)


def _own(section: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in section.model_fields.items():
        if _inner(field.annotation) is None:
            yield name, field


def _inner(annotation: Any) -> type[BaseModel] | None:
    """The section that a field holds, perhaps for each of several names."""
    for found in (annotation, *get_args(annotation)):
        if isinstance(found, type) and issubclass(found, BaseModel):
            return found
    return None


def _is_mapping(field: FieldInfo) -> bool:
    return getattr(field.annotation, "__origin__", None) is dict


def _fields(prefix: str, section: type[BaseModel]) -> str:
    rows = []
    for name, field in _own(section):
        if not field.description:
            raise LookupError(f"the field {prefix}{name} has no description")
        rows.append((code(prefix + name), code(_default(name, field)), field.description))
    return table(["key", "default", "meaning"], rows) if rows else ""


def _default(name: str, field: FieldInfo) -> str:
    if name == "data_dir":
        return _DATA_DIR
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return "required"
    if value is None:
        return "null"
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)
