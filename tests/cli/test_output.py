"""What commands print: through one place, on the right stream, without control characters."""

import ast
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from rich.table import Table
from small_jobs import run_distrain

import distrain.cli
from distrain.cli import output
from distrain.cli.main import COMMANDS, cli, main
from distrain.cli.text import clean, clean_line

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x1b]52;c;ZXZpbA==\x07\u202egnp.exe\x9b2J\x08"
"""Sets a title, clears the screen, fills the clipboard, and turns a name around."""

OBEYED = set("\x07\x08\x1b\x9b\u202e")


def test_a_clean_text_keeps_letters_lines_and_tabs_and_nothing_that_is_obeyed() -> None:
    assert not OBEYED & set(clean(HOSTILE))
    assert clean("schön\tżółty 漢字 🙂 a\u00a0b\nnext\r\nlast") == (
        "schön\tżółty 漢字 🙂 a\u00a0b\nnext\nlast"
    )
    assert clean("\udcff\u2028\x00\x7f") == "????"
    assert clean_line("a\tb\nc") == "a b"
    assert clean_line("") == ""


def _calls(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)
        elif isinstance(node, ast.ImportFrom) and node.module == "click":
            yield from (f"click.{alias.name}" for alias in node.names)


def test_commands_print_through_one_module() -> None:
    folder = Path(distrain.cli.__file__).parent
    printing = {"print", "click.echo", "click.secho", "Console", "rich.print", "sys.stdout.write"}
    found = {
        f"{path.relative_to(folder)}: {call}"
        for path in folder.rglob("*.py")
        for call in _calls(path)
        if call in printing and path.name not in ("output.py", "interrupts.py")
    }
    assert found == set()


def test_a_console_cleans_what_it_draws_and_leaves_its_own_codes_alone() -> None:
    console = output.result_console()
    text = io.StringIO()
    console.file = text
    table = Table(title=HOSTILE, style="bold")
    table.add_column(HOSTILE)
    table.add_row(HOSTILE)
    console.print(table, HOSTILE, markup=False)
    assert "owned" in text.getvalue()
    assert not OBEYED & set(text.getvalue())


def test_a_pipe_gets_whole_lines() -> None:
    console = output.result_console()
    text = io.StringIO()
    console.file = text
    long = "/a/very/long/path" * 30
    table = Table(show_header=False)
    table.add_row("model", long)
    console.print(table)
    assert long in text.getvalue()


@pytest.mark.parametrize("words", [["--quiet", "echo"], ["echo", "--quiet"], ["echo", "-q"]])
def test_quiet_stands_before_a_command_or_after_it(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _add_echo(monkeypatch)
    loud = CliRunner().invoke(cli, ["echo"])
    assert (loud.stdout, loud.stderr) == ("remark\nresult\n", "warning\n")
    quiet = CliRunner().invoke(cli, words)
    assert (quiet.stdout, quiet.stderr) == ("result\n", "warning\n")


def test_with_json_remarks_go_to_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    _add_echo(monkeypatch)
    done = CliRunner().invoke(cli, ["echo", "--json"])
    assert json.loads(done.stdout) == {"version": 1, "a": HOSTILE}
    assert not OBEYED & set(done.stdout)
    assert done.stderr == "remark\nwarning\n"


def test_the_log_goes_to_standard_error_from_a_level_on(monkeypatch: pytest.MonkeyPatch) -> None:
    _add_echo(monkeypatch)
    logger = logging.getLogger("distrain")
    before = logger.level, list(logger.handlers)
    try:
        done = CliRunner().invoke(cli, ["--log-level", "info", "echo"])
        assert "INFO distrain.test: logged" in done.stderr
        assert "title" in done.stderr
        assert not OBEYED & set(done.stderr)
        done = CliRunner().invoke(cli, ["echo", "--log-level", "error"])
        assert "logged" not in done.stderr
    finally:
        logger.setLevel(before[0])
        logger.handlers = before[1]


def _add_echo(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that prints one line of each kind."""
    from distrain.cli.main import LazyGroup
    from distrain.cli.params import global_options, json_option

    @click.command(params=global_options(hidden=True))
    @json_option("JSON.")
    def echo(as_json: bool) -> None:
        output.say("remark")
        output.tell("result")
        output.warn("warning")
        logging.getLogger("distrain.test").info("logged %s", "a title \x1b]0;x\x07")
        if as_json:
            output.answer(a=HOSTILE)

    monkeypatch.setitem(COMMANDS, "echo", "A test's.")
    found = LazyGroup.get_command
    monkeypatch.setattr(
        LazyGroup,
        "get_command",
        lambda group, context, name: echo if name == "echo" else found(group, context, name),
    )


@pytest.mark.parametrize(
    "words",
    [
        ["frobnicate" + HOSTILE],
        ["train", HOSTILE + ".yaml"],
        ["logs", HOSTILE],
        ["audit", HOSTILE],
        ["schema", HOSTILE],
        ["prep", HOSTILE, "--out", "x"],
        ["compare", HOSTILE, HOSTILE],
        ["train", "x.yaml", "--set", HOSTILE],
        ["synth", "--rows", HOSTILE],
        ["top", "--dashboard", HOSTILE],
    ],
)
def test_errors_quote_what_was_typed_without_what_a_terminal_obeys(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code in (1, 2)
    told = capsys.readouterr()
    assert "owned" in told.err or "x.yaml" in told.err
    assert not OBEYED & set(told.out + told.err)


def test_the_package_runs_as_a_module() -> None:
    import subprocess
    import sys

    words = [sys.executable, "-m", "distrain", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == run_distrain("--version").stdout
