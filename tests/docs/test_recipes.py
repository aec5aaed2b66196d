"""The recipes of CONTRIBUTING.md hold: files exist, registries are what they are said to be."""

import inspect
import re
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from distrain.jobs.spec import JobSpec, ModelSpec
from distrain.loader.reading.reader import READERS
from distrain.models.zoo import MODELS
from distrain.prep.operators import DOCUMENT_KEYS
from distrain.runs.sinks.choosing import SINKS
from distrain.service.clusters.choosing import LAUNCHERS
from distrain.service.profiles import ClusterKind

ROOT = Path(__file__).resolve().parents[2]
SPAN = re.compile(r"`([^`\n]+)`")
NAMED_IN = re.compile(r"`([A-Za-z_]\w*)` in\s+`([^`\s]+)`")
# Lower-case words without an underscore are keys of the spec, commands or words of a sentence.
IDENTIFIER = re.compile(r"(?=.*[A-Z_])[A-Za-z_]\w*")


@pytest.fixture(scope="module")
def recipes(sources):
    """Each recipe's text by its heading."""
    text = sources[Path("CONTRIBUTING.md")].partition("\n## How to add\n")[2]
    pieces = re.split(r"^### (.+)\n", text.partition("\n## ")[0], flags=re.M)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def places_in(text):
    """The paths that a text names and the files of each; `a.py` is beside the path before it."""
    folder, places = "", {}
    for span in SPAN.findall(text):
        if re.fullmatch(r"(?:distrain|docs|tests|deploy)/[^\s]*", span):
            folder = span if span.endswith("/") else span.rpartition("/")[0]
        elif not re.fullmatch(r"\w+\.(?:py|json|toml)", span):
            continue
        path = span if "/" in span or not (ROOT / folder / span).exists() else f"{folder}/{span}"
        at = ROOT / re.sub(r"\b[A-Z]{4,}(?:\.py)?", "", path)  # NAME.py is the file to write
        is_folder = at.is_dir() and path.endswith("/")
        files = [*at.rglob("*.py")] if is_folder else [at] if at.is_file() else []
        places[span] = (at, files)
    return places


def defines(file, name):
    """Whether a file defines a function, class, variable or field of that name."""
    if file.suffix not in {".py", ".h", ".c"}:
        return False
    word = re.escape(name)
    of_c = rf"|#define {word}\b|\b{word}\($" if file.suffix != ".py" else ""
    python = rf"^\s*(?:async def|def|class) {word}\b|^\s*{word}\s*(?::|=(?!=))"
    return re.search(python + of_c, file.read_text(), re.M) is not None


def test_every_recipe_names_identifiers_where_they_are_defined(recipes):
    lost = []
    for heading, text in recipes.items():
        places = places_in(text)
        pairs = {(name, span) for name, span in NAMED_IN.findall(text) if span in places}
        wanted = [(name, places[span][1]) for name, span in pairs]
        for item in re.findall(r"^(?:\d\.|-) `[^`]*/.*(?:\n +\S.*)*", text, re.M):
            files = [file for _, found in places_in(item).values() for file in found]
            names = {span for span in SPAN.findall(item) if IDENTIFIER.fullmatch(span)}
            wanted += [
                (name, files) for name in names - {"NAME", "None", *(name for name, _ in pairs)}
            ]
        lost += [
            (heading, name)
            for name, files in wanted
            if not any(defines(file, name) for file in files)
        ]
    assert lost == []


def test_models_are_a_section_a_function_and_a_paragraph(sources):
    sections = {one.model_fields["kind"].default: one for one in get_args(get_args(ModelSpec)[0])}
    assert set(sections) == set(MODELS)
    page = sources[Path("docs/models/index.md")]
    assert {kind for kind in set(sections) - {"custom"} if f"`{kind}`" not in page} == set()
    for kind, section in sections.items():
        _, spec = inspect.signature(MODELS[kind]).parameters.values()
        assert spec.annotation is section, kind
        assert ("tasks" in section.model_fields) == ("sharing" in section.model_fields), kind


def test_kinds_of_clusters_are_a_name_and_a_launcher():
    assert {*get_args(ClusterKind)} == set(LAUNCHERS)


def test_readers_have_one_list_of_names():
    reader = JobSpec.model_fields["data"].annotation.model_fields["reader"]
    assert {"auto", *READERS} == set(get_args(reader.annotation))


def test_keys_of_operators_are_in_the_table_of_the_page(sources):
    page = sources[Path("docs/features.md")]
    assert {key.name for key in DOCUMENT_KEYS if f"| `{key.name}`" not in page} == set()
    order = ", ".join(f"`{key.name}`" for key in DOCUMENT_KEYS)
    assert f"applied in this order: {order};" in page


def test_sinks_have_one_table_an_extra_and_a_paragraph(sources):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert set(SINKS) <= set(extras)
    assert {name for name in SINKS if name not in sources[Path("docs/reports.md")].lower()} == set()
