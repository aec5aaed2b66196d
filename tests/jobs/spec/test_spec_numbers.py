"""Numbers of a job spec: from files and `--set` alike, and no booleans in their place."""

from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
import yaml

from distrain.errors import SpecError
from distrain.jobs.spec import JobSpec, ModelSpec, load_spec, parse_spec
from distrain.jobs.spec.fields import Section
from distrain.jobs.spec.load import dump_yaml, parse_yaml

SECTIONS = {"data": "train: day_0", "model": "kind: mlp"}


def both_ways(tmp_path: Path, section: str, field: str, text: str) -> list[JobSpec]:
    """What a file and what `--set` make of a field."""
    sections = {section: ""} | SECTIONS
    smallest, longer = tmp_path / "smallest.yaml", tmp_path / "longer.yaml"
    smallest.write_text("".join(f"{name}: {{{held}}}\n" for name, held in SECTIONS.items()))
    sections[section] = ", ".join(filter(None, [sections[section], f"{field}: {text}"]))
    longer.write_text("".join(f"{name}: {{{held}}}\n" for name, held in sections.items()))
    return [load_spec(longer), load_spec(smallest, [f"{section}.{field}={text}"])]


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-3", 1e-3), ("2E-2", 2e-2), ("1.5e2", 150.0), (".5e0", 0.5), ("+1e0", 1.0), ("1.e1", 10)],
)
def test_a_number_with_an_exponent_is_a_number(tmp_path: Path, text: str, value: float) -> None:
    from_file, from_set = both_ways(tmp_path, "train", "clip_grad_norm", text)
    assert from_file == from_set
    assert from_file.train.clip_grad_norm == value
    written = yaml.safe_load(dump_yaml(from_file.model_dump(mode="json")))
    assert type(written["train"]["clip_grad_norm"]) is float


def test_such_numbers_reach_the_options_of_a_model_as_numbers() -> None:
    model = {"kind": "custom", "function": "a.b:c"}
    document = {"data": {"train": "d"}, "model": model}
    spec = parse_spec(document, ["model.options={rate: 1e-3, name: '1e-3'}"])
    assert spec.model.options == {"rate": 0.001, "name": "1e-3"}  # type: ignore[union-attr]
    text = dump_yaml(spec.model_dump(mode="json"))
    assert parse_spec(parse_yaml(text)) == parse_spec(yaml.safe_load(text)) == spec


def numbers(kind: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The fields of a section, and of those inside it, that take numbers alone."""
    for name, field in kind.model_fields.items():
        here = (*path, field.alias or name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from numbers(field.annotation, here)
        elif kinds_of(field.annotation) <= {int, float, NoneType}:
            yield here


def kinds_of(annotation: Any) -> set[Any]:
    if get_origin(annotation) is Literal:
        return {str}
    inner = get_args(annotation)
    if get_origin(annotation) is Annotated:
        inner = inner[:1]
    return set().union(*map(kinds_of, inner)) if inner else {annotation}


def fields_of_numbers() -> Iterator[tuple[str, tuple[str, ...]]]:
    """A kind of model, and the path of a field that takes numbers."""
    for path in numbers(JobSpec):
        yield "mlp", path
    for kind in get_args(get_args(ModelSpec)[0]):
        for path in numbers(kind):
            yield kind.model_fields["kind"].default, ("model", *path)


def test_no_field_of_numbers_takes_a_truth_value() -> None:
    for kind, path in fields_of_numbers():
        document: dict[str, Any] = {"data": {"train": "d"}, "model": {"kind": kind}}
        section = document
        for key in path[:-1]:
            section = section.setdefault(key, {})
        for value in (True, [True, True]):
            section[path[-1]] = value
            with pytest.raises(SpecError, match=path[-1]):
                parse_spec(document)


def test_truth_values_stay_where_they_belong() -> None:
    options = {"wide": True, "deep": [True, {"on": False}]}
    model = {"kind": "custom", "function": "a.b:c", "options": options}
    document = {"data": {"train": "d", "drop_last": True}, "model": model}
    spec = parse_spec(document, ["train.cuda_graph=no"])
    assert spec.train.cuda_graph is False
    assert spec.data.drop_last
    assert spec.model.options == options  # type: ignore[union-attr]
