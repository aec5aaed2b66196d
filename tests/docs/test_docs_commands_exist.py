"""What the documentation tells people to type exists."""

import re
import shlex
from pathlib import Path

import click

from distrain.cli.main import COMMANDS, cli
from distrain.errors import SpecError
from distrain.jobs.spec import parse_spec

ROOT = Path(__file__).resolve().parents[2]
MINIMAL_SPECS = [
    {"data": {"train": "t", "valid": "v"}, "model": {"kind": kind}} for kind in ("dlrm", "mlp")
]


def typed_commands(text):
    """The words of each `$ distrain ...` in a console block, continuation lines joined."""
    for block in re.findall(r"^```console\n(.*?)^```", text, re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("$ distrain "):
                yield shlex.split(line.removeprefix("$ distrain "), comments=True)


def help_examples(name):
    """The words of each example in a command's own help."""
    found = cli.get_command(click.Context(cli), name).help or ""
    for line in found.splitlines():
        if line.strip().startswith("distrain "):
            yield shlex.split(line.strip().removeprefix("distrain ").split(">")[0], comments=True)


def check(words):
    name, *rest = words
    assert name in COMMANDS, words
    command = cli.get_command(click.Context(cli), name)
    context = click.Context(command, info_name=name)
    # A parser of click's own: it raises for options that do not exist or lack their value.
    values, _, _ = command.make_parser(context).parse_args(args=list(rest))
    overrides = values.get("overrides") or []
    if overrides:
        assert any(_parses(spec, overrides) for spec in MINIMAL_SPECS), words


def _parses(document, overrides):
    try:
        parse_spec(document, overrides)
    except SpecError:
        return False
    return True


def test_commands_in_the_docs_exist(sources):
    found = [words for text in sources.values() for words in typed_commands(text)]
    assert {"demo", "synth", "prep", "train", "evaluate", "predict"} <= {w[0] for w in found}
    for words in found:
        check(words)


def test_examples_in_the_help_exist():
    for name in COMMANDS:
        for words in help_examples(name):
            check(words)


def test_make_targets_in_the_docs_exist(sources):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = {t for text in sources.values() for t in re.findall(r"`make ([a-z-]+)`", text)}
    named |= {t for text in sources.values() for t in re.findall(r"^\$ make ([a-z-]+)", text, re.M)}
    assert {"demo", "test", "check"} <= named <= targets


def test_no_page_writes_to_the_same_place_twice(sources):
    """A reader types a page from top to bottom, in one folder."""
    for page, text in sources.items():
        written = set()
        for name, *rest in typed_commands(text):
            command = cli.get_command(click.Context(cli), name)
            context = click.Context(command, info_name=name)
            values, _, _ = command.make_parser(context).parse_args(args=list(rest))
            default = "job.yaml" if name == "init" else None
            for place in {values.get("out") or default, values.get("run_dir")} - {None}:
                place = str(place).rstrip("/")
                assert place not in written or values.get("overwrite"), (page, name, place)
                written.add(place)
