"""Commands that are told to end: one line says what is left, and nothing half-written is."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from small_jobs import CARDINALITIES, write_prepared
from waiting import until

from distrain.errors import INTERRUPTED, TERMINATED
from distrain.jobs.spec import MlpSpec
from distrain.models import build_model
from distrain.models.saved_model import save_model
from distrain.schema import criteo_schema

MANY = 200
"""Links to one small file: more than a command can read before it hears the signal."""


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`data/`, with many files of prepared rows, `raw/` with many of raw ones, and `model`."""
    root = tmp_path_factory.mktemp("many")
    prepared = write_prepared(root / "prepared")
    raw = root / "raw.tsv"
    line = "\t".join(["1", *"1" * 13, *["68fd1e64"] * 26])
    raw.write_text(f"{line}\n" * 2_000)
    for name, file, suffix in (
        ("data", prepared / "train" / "part-0.parquet", "parquet"),
        ("raw", raw, "tsv"),
    ):
        (root / name).mkdir()
        for number in range(MANY):
            (root / name / f"part-{number:04}.{suffix}").symlink_to(file)
    (root / "data" / "schema.pbtxt").symlink_to(prepared / "schema.pbtxt")
    schema, spec = criteo_schema(CARDINALITIES), MlpSpec(embedding_dim=2, hidden=(4,))
    save_model(root / "model", build_model(schema, spec, seed=1), spec, schema)
    return root


def end(words: list[object], out: Path, number: signal.Signals) -> subprocess.CompletedProcess[str]:
    """Run a command, and send a signal to all of its processes once it has begun to write."""
    process = subprocess.Popen(
        [sys.executable, "-m", "distrain", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # as a terminal does it, Ctrl-C goes to the whole group
    )
    try:
        until(
            lambda: process.poll() is not None or list(out.parent.glob(f".{out.name}.partial-*")),
            "the command begins to write",
        )
        os.killpg(process.pid, number)
        stdout, stderr = process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return subprocess.CompletedProcess(words, process.returncode, stdout, stderr)


@pytest.mark.parametrize(
    ("words", "number", "code"),
    [
        ("synth --rows 4G", signal.SIGINT, INTERRUPTED),
        ("synth --rows 4G --quiet", signal.SIGTERM, TERMINATED),
        pytest.param(
            "prep {many}/raw --workers 1", signal.SIGINT, INTERRUPTED, marks=pytest.mark.slow
        ),
        pytest.param(
            "predict {many}/model {many}/data", signal.SIGINT, INTERRUPTED, marks=pytest.mark.slow
        ),
    ],
)
def test_an_output_that_was_begun_is_gone_and_one_line_says_so(
    many: Path, tmp_path: Path, words: str, number: signal.Signals, code: int
) -> None:
    out = tmp_path / "made" / "out"
    done = end([*words.format(many=many).split(), "--out", out], out, number)
    assert done.returncode == code, done.stderr
    how = "interrupted" if code == INTERRUPTED else "terminated"
    assert done.stderr.strip() == f"{how}: nothing was written to {out}"
    assert list(out.parent.iterdir()) == []


SLOW_IMPORT = """
import pathlib, runpy, sys, time
begun, sent, slow, *sys.argv = sys.argv[1:]

class Finder:
    def find_spec(self, name, *_):
        if name != slow:
            return
        pathlib.Path(begun).touch()
        try:
            while not pathlib.Path(sent).exists():
                time.sleep(0.01)
        except BaseException:  # as modules in C do
            raise ImportError("it is not installed")

sys.meta_path.insert(0, Finder())
runpy.run_module("distrain", run_name="__main__")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("slow", ["distrain.cli.main", "distrain.cli.login"])
def test_a_signal_ends_a_command_after_the_import_that_it_meets(
    tmp_path: Path, number: signal.Signals, slow: str
) -> None:
    begun, sent = tmp_path / "begun", tmp_path / "sent"
    words = [begun, sent, slow, "distrain", "login", "http://127.0.0.1:1"]  # reads its input
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_IMPORT, *map(str, words)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        try:
            until(lambda: process.poll() is not None or begun.exists(), "the import begins")
            process.send_signal(number)
            sent.touch()
            assert process.wait(timeout=120) == 128 + number
            assert process.stderr is not None
            told = process.stderr.read()
        finally:
            process.kill()
    first, *others = told.splitlines()
    assert first.startswith("interrupted" if number == signal.SIGINT else "terminated"), told
    assert others == [], told


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("method", ["make_context", "parse_args", "invoke"])
def test_a_signal_before_the_command_begins_is_one_line(
    number: signal.Signals, method: str
) -> None:
    code = (
        "import os, sys; from distrain.cli import main; import click; "
        f"click.Group.{method} = lambda *_, **__: os.kill(os.getpid(), {int(number)}); "
        "sys.argv = ['distrain', 'login']; main.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 128 + number
    first, *others = done.stderr.splitlines()
    assert first.startswith("interrupted" if number == signal.SIGINT else "terminated")
    assert others == []


def test_a_signal_behind_the_end_keeps_the_exit_code() -> None:
    """SIGTERM while Python ends, after the command has said all that it has to say."""
    code = (
        "import atexit, os, signal, sys; from distrain.cli.main import main; "
        "atexit.register(lambda: os.kill(os.getpid(), signal.SIGTERM)); "
        "sys.argv = ['distrain', *sys.argv[1:]]; main()"
    )
    for words, wanted in ((["--version"], 0), (["evaluate", "nothing", "nowhere"], 1)):
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
        assert done.returncode == wanted, done.stderr


def test_the_end_of_a_command_searches_its_objects_for_no_garbage() -> None:
    code = (
        "import atexit, gc, sys; from distrain.cli.main import main; "
        "atexit.register(lambda: print(len(gc.get_objects()) < gc.get_freeze_count())); "
        "sys.argv = ['distrain', '--version']; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "True"
