"""The `distrain` command as such; each command has its own tests."""

import re
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

from distrain import errors
from distrain.cli import main as entry
from distrain.cli.main import COMMANDS, cli, main
from distrain.version import build


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_every_command_and_the_exit_codes(flag):
    result = CliRunner().invoke(cli, [flag])
    assert result.exit_code == 0
    for name, (_, words) in COMMANDS.items():
        assert re.search(rf"^ +{name} +{re.escape(words.split()[0])}", result.output, re.M)
    text = " ".join(result.output.split())
    for code, words in ((1, "bad input"), (69, "no cluster"), (100, "the job failed")):
        assert f"{code} {words}" in text


def test_the_version():
    assert build() in CliRunner().invoke(cli, ["--version"]).output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_listed_command_has_its_help_with_an_example(name):
    result = CliRunner().invoke(cli, [name, "--help"], prog_name="distrain")
    assert result.exit_code == 0, result.output
    usage, _, rest = result.output.partition("\n")
    assert usage.startswith(f"Usage: distrain {name} ")
    assert f"distrain {name}" in rest


@pytest.mark.parametrize(
    ("typed", "guess"), [("trian", " Did you mean 'train'?"), ("frobnicate", "")]
)
def test_an_unknown_command_is_a_usage_error_with_a_guess(typed, guess):
    result = CliRunner().invoke(cli, [typed])
    assert result.exit_code == 2
    assert f"No such command '{typed}'.{guess}\n" in result.output


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.SpecError, 1),
        (errors.DataError, 1),
        (errors.OutputError, 1),
        (errors.ClusterError, 69),
        (errors.JobError, 100),
        (errors.JobCancelled, 103),
    ],
)
def test_an_expected_error_is_told_without_a_traceback(monkeypatch, capsys, kind, code):
    monkeypatch.setattr(
        entry.cli, "main", Mock(side_effect=kind("what", where={"file": "a"}, hint="do this"))
    )
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == code
    assert capsys.readouterr() == ("", "error: what\n  file: a\n  hint: do this\n")


def test_an_unexpected_error_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr(entry.cli, "main", Mock(side_effect=KeyError("a bug")))
    with pytest.raises(KeyError, match="a bug"):
        main([])
