"""What commands print: through one place, on the right stream, without control characters."""

import ast
import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from rich.table import Table

import distrain.cli
from distrain.cli import output
from distrain.cli.main import COMMANDS, cli, main
from distrain.cli.output import clean, clean_line

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
def test_results_remarks_and_warnings_have_their_streams(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _add_echo(monkeypatch)
    loud = CliRunner().invoke(cli, ["echo"])
    told = CliRunner().invoke(cli, ["echo", "--json"])
    assert json.loads(told.stdout) == {"version": 1, "a": HOSTILE}
    assert not OBEYED & set(told.stdout)
    assert told.stderr == "remark\nwarning\n"
    assert (loud.stdout, loud.stderr) == ("remark\nresult\n", "warning\n")
    quiet = CliRunner().invoke(cli, words)
    assert (quiet.stdout, quiet.stderr) == ("result\n", "warning\n")


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
    from distrain.cli.options import global_options, json_option

    @click.command(params=global_options(hidden=True))
    @json_option("JSON.")
    def echo() -> None:
        output.print_remark("remark")
        output.print_result("result")
        output.print_warning("warning")
        logging.getLogger("distrain.test").info("logged %s", "a title \x1b]0;x\x07")
        output.print_answer(a=HOSTILE)

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
        ["top", "--scheduler", HOSTILE],
    ],
)
def test_errors_quote_what_was_typed_without_what_a_terminal_obeys(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code in (1, 2, 69)
    told = capsys.readouterr()
    assert "owned" in told.err or "x.yaml" in told.err
    assert not OBEYED & set(told.out + told.err)


def _hostile_run(root: Path) -> Path:
    """A run whose spec, log and summary were written by somebody who means ill."""
    from small_jobs import small_document

    from distrain.jobs.spec import parse_spec
    from distrain.runs.open_run import open_run

    document = {**small_document(root / "data"), "tags": {"team": HOSTILE}}
    with open_run(root, parse_spec(document), "hostile-1") as recorder:
        paths = recorder.paths
    log = paths.log(rank=0, attempt=1)
    log.parent.mkdir(parents=True)
    log.write_text(f"2026-01-01 00:00:00,000 ERROR distrain: {HOSTILE}\n", encoding="utf-8")
    return root


def test_no_command_prints_what_a_run_has_for_the_terminal_to_obey(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    runs = [_hostile_run(tmp_path / name) for name in ("a", f"b{HOSTILE.replace('/', '')}")]
    for words in (
        ["compare", *runs],
        ["logs", runs[1]],
        ["report", runs[1]],
    ):
        done = CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=False)
        assert done.exit_code == 0
        assert "owned" in done.output
        assert not OBEYED & set(_without_colours(done.output)), words


def test_a_job_of_somebody_elses_prints_nothing_for_the_terminal_to_obey(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from distrain.cli.job_progress import JobProgress
    from distrain.cli.jobs.list import JobsTable
    from distrain.cli.jobs.status_lines import job_lines
    from distrain.cli.top.tables import screen
    from distrain.jobs.api_answers import Job
    from distrain.jobs.job_view import JobView, Notice, Restart
    from distrain.jobs.states import JobState

    setback = vars(Restart(1, "RankDied", HOSTILE, 0, 1.0))
    shown = {"id": HOSTILE, "state": "failed", "reason": HOSTILE, "message": HOSTILE}
    more = {"name": HOSTILE, "run_dir": HOSTILE, "tags": {"a": HOSTILE}, "setbacks": [setback]}
    listed = Job.read(shown | more)
    view = JobView(
        HOSTILE, HOSTILE, JobState.FAILED, 2, 1, reason=HOSTILE, message=f"x\n{HOSTILE}",
        restarts=(Restart(1, "RankDied", HOSTILE, 0, 1.0),), progress=(Notice(HOSTILE),),
    )  # fmt: skip
    output.result_console().print(JobsTable([listed]))
    output.result_console().print(screen([], listed, 24, "note"))
    for line in job_lines(listed):
        output.print_result(line)
    JobProgress(output.progress_console()).show(view)
    told = capsys.readouterr().out
    assert told.count("owned") >= 10
    assert not OBEYED & set(told)


def _without_colours(text: str) -> str:
    """Without the codes that choose a style, which are our own."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)
