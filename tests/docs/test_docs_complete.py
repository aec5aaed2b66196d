"""Everything that users rely on is in the documentation."""

import dataclasses
import inspect
import re
from pathlib import Path

import click
import pytest
import yaml

from distrain import client, errors
from distrain.cli.interrupts import INTERRUPTED, TERMINATED
from distrain.cli.main import COMMANDS, cli
from distrain.errors import DistrainError
from distrain.events import EVENT_TYPES, PHASES
from distrain.jobs import TRANSITIONS, JobState, Reason
from distrain.jobs.view import Record
from distrain.run_paths import RunPaths
from distrain.runs import Summary
from distrain.spec import JobSpec, parse_spec
from distrain.version import RELEASE

ROOT = Path(__file__).resolve().parents[2]
EXIT_CODES = {0, 2, INTERRUPTED, TERMINATED} | {
    cls.exit_code
    for cls in [*vars(errors).values(), *vars(client).values()]
    if inspect.isclass(cls) and issubclass(cls, DistrainError)
}


def lines_of(page):
    return {line.strip() for line in page.splitlines()}


def spec_paths(schema, definitions, prefix=""):
    """Every field's path, out of pydantic's own JSON Schema."""
    for name, field in schema["properties"].items():
        for section in [field, *field.get("oneOf", ())]:
            if "$ref" in section:
                inner = definitions[section["$ref"].rpartition("/")[2]]
                yield from spec_paths(inner, definitions, f"{prefix}{name}.")
        if "$ref" not in field and "oneOf" not in field:
            yield prefix + name


def test_every_spec_field_is_in_the_reference(pages):
    schema = JobSpec.model_json_schema()
    wanted = set(spec_paths(schema, schema["$defs"]))
    assert {"data.schema", "model.top", "model.hidden", "train.schedule.decay"} <= wanted
    assert wanted <= lines_of(pages["spec"])


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_the_reference_with_its_options(pages, name):
    page = pages["commands"]
    section = page.partition(f"\ndistrain {name}¶")[2].partition("¶")[0]
    assert section
    command = cli.get_command(click.Context(cli), name)
    options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    missing = [o.opts[-1] for o in options if not re.search(rf"^{o.opts[-1]}\b", section, re.M)]
    assert not missing


def test_every_event_and_phase_is_in_the_reference(pages):
    page = pages["events"]
    for kind, event in EVENT_TYPES.items():
        assert f"kind: {kind}" in page
        assert f"{event.__name__}¶" in page
    assert set(PHASES) <= lines_of(page)


@pytest.mark.parametrize("record", [Record, Summary])
def test_every_field_of_the_run_files_is_in_the_reference(pages, record):
    names = {field.name for field in dataclasses.fields(record)}
    assert names <= lines_of(pages["events"])


def test_every_failure_reason_is_explained(pages):
    assert {reason.value for reason in Reason} <= lines_of(pages["failures"])


def test_every_state_and_move_is_in_the_docs(pages):
    cells = [line for line in pages["states"].splitlines() if line.strip()]
    for state in JobState:
        moves = cells[cells.index(state.value, cells.index("moves to")) + 2]
        told = set(re.findall(r"\w+", moves)) & set(JobState)
        assert told == TRANSITIONS[state]


@pytest.mark.parametrize("page", ["commands", "failures"])
def test_every_exit_code_is_in_the_docs(pages, page):
    assert {str(code) for code in EXIT_CODES} <= lines_of(pages[page])


def test_the_whole_spec_of_the_reference_parses_and_shows_every_section(sources):
    (block,) = re.findall(r"^```yaml\n(.*?)^```", sources[Path("docs/spec.md")], re.M | re.S)
    document = yaml.safe_load(block)
    assert set(document) == set(JobSpec.model_fields)
    spec = parse_spec(document)
    assert spec.resources.num_ranks == 2


def test_the_quickstart_names_every_file_of_a_run(sources):
    paths = RunPaths(Path("run"))
    names = {paths.spec, paths.metrics, paths.summary, paths.curves, paths.model, paths.logs}
    page = sources[Path("docs/quickstart.md")]
    section = page.partition("## What a run leaves")[2].partition("\n## ")[0]
    assert all(path.name in section for path in names)


def test_the_readme_is_short_and_says_what_has_not_run(sources):
    readme = sources[Path("README.md")]
    assert len(readme.splitlines()) <= 120
    assert re.search(r"^> .*on several GPUs never", readme, re.M)
    assert "$ make test " in readme


def test_every_page_is_in_one_group_of_the_index(sources):
    trees = re.findall(r"^```{toctree}\n(.*?)^```", sources[Path("docs/index.md")], re.M | re.S)
    listed = [
        line
        for tree in trees
        for line in tree.splitlines()
        if re.fullmatch(r"[\w/-]+", line) and not line.startswith(":")
    ]
    groups = [re.findall(r"^:caption: \"?([\w-]+)", tree, re.M)[0] for tree in trees]
    assert list(dict.fromkeys(groups)) == ["Tutorials", "How-to", "Reference", "Explanation"]
    assert len(listed) == len(set(listed))
    pages = {
        path.relative_to("docs").with_suffix("") for path in sources if path.parts[0] == "docs"
    }
    inner = {page for page in pages if len(page.parts) > 1 and page.name != "index"}
    assert {str(page) for page in pages - inner} - {"index"} == set(listed)


def test_the_changelog_has_this_version_with_a_date(sources):
    version = re.escape(RELEASE)
    assert re.search(
        rf"^## \[{version}\] - \d{{4}}-\d\d-\d\d$", sources[Path("CHANGELOG.md")], re.M
    )


def test_decisions_are_short_and_say_context_decision_and_consequences(sources):
    records = {p: t for p, t in sources.items() if p.match("docs/decisions/0*.md")}
    assert len(records) >= 8
    for path, text in records.items():
        headings = re.findall(r"^## (.+)$", text, re.M)
        assert headings == ["Context", "Decision", "Consequences"], path
        assert len(text.splitlines()) <= 40, path


def test_the_glossary_explains_the_figures_of_the_outcome_table(sources):
    terms = re.findall(r"^(\w.*)\n: ", sources[Path("docs/glossary.md")], re.M)
    listed = {term for line in terms for term in line.split(", ")}
    figures = {"normalised entropy", "calibration", "bound", "stall", "decode", "fill", "queue"}
    assert figures | {"waiting for data", "scored on", "read by", "parameters"} <= listed
