"""From YAML or JSON text, with overrides, to a JobSpec; mistakes are collected, then told."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from distrain.errors import SpecError
from distrain.spec.sections import JobSpec

# Names that the job spec reserves and this version cannot honour yet; silence would mislead.
_RESERVED = {
    "checkpoint": "checkpoints during training",
    "restart": "restarts after failures",
    "queue": "priorities (jobs run in the order of their submission)",
    "data.cache_dir": "a local cache of decoded rows",
    "resources.min_ranks": "elastic gangs",
    "resources.memory_per_rank_gib": "memory limits per rank",
}


def load_spec(path: str | Path, overrides: Iterable[str] = ()) -> JobSpec:
    """Read a job spec from a YAML or JSON file.

    Args:
        path: The file.
        overrides: `section.field=value` assignments; values are read as YAML.

    Raises:
        SpecError: The file is missing or not YAML, or the spec has mistakes (all are listed).
    """
    import yaml

    path = Path(path)
    try:
        document = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise SpecError("no such job spec", where={"file": str(path)}) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"cannot read the job spec: {error}", where={"file": str(path)}) from None
    except yaml.YAMLError as error:
        raise SpecError(f"not YAML: {error}", where={"file": str(path)}) from None
    return parse_spec(document, overrides, source=str(path))


def parse_spec(
    document: object, overrides: Iterable[str] = (), *, source: str | None = None
) -> JobSpec:
    """Make a JobSpec of a plain document.

    >>> spec = parse_spec({"data": {"train": "day_0"}, "model": {"kind": "mlp"}},
    ...                   ["train.optimizer.lr=0.5"])
    >>> spec.train.optimizer.lr
    0.5

    Raises:
        SpecError: It has mistakes; all are listed, each with its path.
    """
    from pydantic import ValidationError

    where = {"file": source} if source else {}
    if not isinstance(document, Mapping):
        raise SpecError(
            "a job spec is a mapping of sections",
            where=where,
            hint="At least `data: {train: PATH}` and `model: {kind: dlrm}`.",
        )
    merged = _plain(document)
    for override in overrides:
        _override(merged, override)
    reserved = [
        f"{p}: this version has no {what}" for p, what in _RESERVED.items() if _has(merged, p)
    ]
    if reserved:
        raise SpecError("\n".join(reserved), where=where, hint="Leave it out.")
    try:
        return JobSpec.model_validate(merged)
    except ValidationError as error:
        problems = [_explain(item) for item in error.errors()]
        raise SpecError("\n".join(problems), where=where) from None


def _plain(document: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(k): _plain(v) if isinstance(v, Mapping) else v for k, v in document.items()}


def _override(document: dict[str, Any], assignment: str) -> None:
    import yaml

    path, sign, text = assignment.partition("=")
    keys = path.strip().split(".")
    if not sign or not all(keys):
        raise SpecError(
            f"cannot use the override {assignment!r}", hint="Write it as section.field=value."
        )
    for key in keys[:-1]:
        inner = document.setdefault(key, {})
        if not isinstance(inner, dict):
            raise SpecError(f"cannot set {path}: {key} is not a section")
        document = inner
    try:
        document[keys[-1]] = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SpecError(f"cannot read the value of {path}: {error}") from None


def _has(document: Mapping[str, Any], path: str) -> bool:
    section, _, field = path.partition(".")
    inner = document.get(section)
    if not field:
        return section in document
    return isinstance(inner, Mapping) and field in inner


def _explain(item: Any) -> str:
    """One line for one of pydantic's errors: path, what is wrong, what is allowed."""
    loc = [str(part) for part in item["loc"]]
    if loc[:1] == ["model"] and len(loc) > 1:
        del loc[1]  # pydantic puts the union's tag there: model.dlrm.top means model.top
    path = ".".join(loc) or "the spec"
    if item["type"] == "extra_forbidden":
        allowed = _keys_of(item["loc"][:-1])
        near = get_close_matches(loc[-1], allowed, n=1, cutoff=0.5)
        guess = f"; did you mean {near[0]!r}?" if near else ""
        return f"{path}: unknown key{guess} (allowed: {', '.join(allowed)})"
    if item["type"] == "missing":
        return f"{path}: required, but missing"
    if item["type"] in ("union_tag_invalid", "union_tag_not_found"):
        kinds = str(item["ctx"].get("expected_tags", "'mlp', 'dlrm'"))
        given = item["ctx"].get("tag")
        return f"{path}.kind: {f'{given!r} is no model' if given else 'missing'} (allowed: {kinds})"
    message = str(item["msg"]).removeprefix("Value error, ")
    if not loc:
        return message
    return f"{path}: {message[0].lower()}{message[1:]}, not {item['input']!r}"


def _keys_of(loc: tuple[Any, ...]) -> list[str]:
    """The keys that the section at `loc` allows."""
    from typing import get_args

    section: Any = JobSpec
    for part in loc:
        if section is JobSpec and part == "model":
            section = {m.model_fields["kind"].default: m for m in get_args(get_args(_model())[0])}
        elif isinstance(section, dict):
            section = section[part]
        else:
            section = section.model_fields[part].annotation
    return [field.alias or name for name, field in section.model_fields.items()]


def _model() -> Any:
    from distrain.spec.sections import ModelSpec

    return ModelSpec
