"""From YAML or JSON text, with overrides, to a JobSpec; mistakes are collected, then told."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from distrain.errors import SpecError
from distrain.spec.document import parse_yaml, read_document
from distrain.spec.explain import explain_all
from distrain.spec.sections import JobSpec
from distrain.storage.urls import without_secrets


def load_spec(path: str | Path, overrides: Iterable[str] = ()) -> JobSpec:
    """Read a job spec from a YAML file, or a JSON file if its name ends in `.json`.

    Args:
        path: The file.
        overrides: `section.field=value` assignments; values are read as YAML.

    Raises:
        SpecError: The file is missing or not YAML, or the spec has mistakes (all are listed).
    """
    return parse_spec(read_document(Path(path)), overrides, source=str(path))


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
    try:
        merged = _plain(document)
    except RecursionError:
        raise SpecError("the job spec is nested too deeply", where=where) from None
    problems = [problem for text in overrides if (problem := _override(merged, text))]
    try:
        spec = JobSpec.model_validate(merged)
    except ValidationError as error:
        problems += explain_all(error.errors())
    if problems:
        raise SpecError(without_secrets("\n".join(problems)), where=where)
    return spec


def _plain(document: Mapping[Any, Any]) -> dict[str, Any]:
    return {_key(k): _plain(v) if isinstance(v, Mapping) else v for k, v in document.items()}


def _key(key: object) -> str:
    # YAML and JSON can escape half a surrogate pair, which no file or terminal takes.
    return str(key).encode(errors="backslashreplace").decode()


def _override(document: dict[str, Any], assignment: str) -> str | None:
    """Carry out one assignment, or say why it cannot be."""
    path, sign, text = assignment.partition("=")
    keys = path.strip().split(".")
    if not sign or not all(keys):
        return f"cannot use the override {assignment!r}; write it as section.field=value"
    for key in keys[:-1]:
        inner = document.setdefault(key, {})
        if not isinstance(inner, dict):
            return f"cannot set {path}: {key} is not a section"
        document = inner
    try:
        document[keys[-1]] = parse_yaml(text)
    except ValueError as error:
        return f"cannot set {path} to {text!r}: {error}"
    return None
