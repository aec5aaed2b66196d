"""The recipes of CONTRIBUTING.md hold: registries are what they are said to be."""

import dataclasses
import inspect
import tomllib
from importlib import import_module
from pathlib import Path
from typing import get_args

from distrain import prep
from distrain.jobs import events
from distrain.jobs.events import EVENT_TYPES
from distrain.jobs.optimizers import OPTIMIZERS, UPDATE_RULES, OptimizerKind
from distrain.jobs.spec import JobSpec, ModelSpec
from distrain.jobs.spec.data import READERS
from distrain.jobs.view import Record
from distrain.metrics import BinaryReport
from distrain.models.embeddings.kernels import cpu
from distrain.models.zoo import MODELS
from distrain.prep.operators import OPERATORS
from distrain.runs.sinks.choosing import SINKS
from distrain.runs.summary import Summary
from distrain.service.clusters.choosing import LAUNCHERS
from distrain.service.profiles import TRAITS, ClusterKind

ROOT = Path(__file__).resolve().parents[2]


def test_models_are_a_section_a_function_and_a_paragraph(sources):
    sections = {one.model_fields["kind"].default: one for one in get_args(get_args(ModelSpec)[0])}
    assert set(sections) == set(MODELS)
    page = sources[Path("docs/models/zoo.md")]
    assert {kind for kind in set(sections) - {"custom"} if f"`{kind}`" not in page} == set()
    for kind, section in sections.items():
        _, spec = inspect.signature(MODELS[kind]).parameters.values()
        assert spec.annotation is section, kind
        assert ("tasks" in section.model_fields) == ("sharing" in section.model_fields), kind


def test_names_of_each_kind_are_one_list_wherever_they_stand():
    reader = JobSpec.model_fields["data"].annotation.model_fields["reader"]
    assert {*get_args(ClusterKind)} == set(TRAITS) == set(LAUNCHERS)
    assert {"auto", *READERS} == set(get_args(reader.annotation))
    assert set(OPTIMIZERS) == set(get_args(OptimizerKind))
    assert cpu.RULES.keys() in ({*UPDATE_RULES}, set())  # none: built without a compiler
    assert {operator.kind for operator in OPERATORS.values()} == set(OPERATORS)
    assert {operator.__name__ for operator in OPERATORS.values()} <= set(prep._MODULES)
    assert set(EVENT_TYPES.values()) == set(get_args(events.Event))


def test_every_reader_of_the_table_says_what_it_cannot_read():
    for facts in READERS.values():
        module, _, name = facts.code.partition(":")
        reader = getattr(import_module(module), name)
        assert callable(reader.why_not)
        assert facts.on_gpu or callable(reader.of)


def test_sinks_have_one_table_an_extra_and_a_paragraph(sources):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert set(SINKS) <= set(extras)
    assert {name for name in SINKS if name not in sources[Path("docs/reports.md")].lower()} == set()


def test_metrics_have_the_same_names_wherever_they_are_passed_on():
    of_rows = {field.name for field in dataclasses.fields(BinaryReport)}
    for shown in (Record, Summary):
        names = {field.name for field in dataclasses.fields(shown)}
        assert {"auc", "auc_bound", "normalised_entropy"} <= names & of_rows
