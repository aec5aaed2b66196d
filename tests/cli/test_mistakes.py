"""Mistakes on the command line: told at once, in the words of the command line."""

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from distrain.cli.main import cli, main
from distrain.cli.training import demo
from distrain.errors import DataError, OutputError, SpecError
from distrain.jobs.spec import load_spec


def run(*words: object) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words], prog_name="distrain")


USAGE = """
train
train job.yaml --resume runs/a
train --resume runs/a --run-dir runs/b
train --resume runs/a --target y
train --resume runs/a --features f.yaml
train --resume runs/a --max-bad 5% --bad-lines skip
train x.csv --features f.yaml --valid none
train x.csv --target y --detach
train job.yaml --without-checkpoint
train job.yaml --set resources.backend=env --run-dir runs/a --overwrite
evaluate m x --seed 0
evaluate m x --top 5
evaluate m x --seen history
prep x --out y --workers 0
prep x --out y --max-bad 5%
train x.csv --target y --bad-lines stop --max-bad 5%
evaluate m x --max-bad 5%
predict m x --out y --max-bad 5%
prep x --out y --block-mib 0
predict m x --out y --workers 0
predict m x --out y --batch-size 0
evaluate m x --threads 0
init criteo-mlp --data x --ranks 0
init mpl
demo --ranks 0
prep x --out y --workflow w --freq-threshold 3
prep x --out y --workflow w --max-size 3
report ~no-such-user/run
"""
"""Options that exclude or need each other, and values out of range."""


def test_mistakes_on_the_command_line_are_usage_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text("data: {train: a}\nmodel: {kind: mlp}\n")
    for run_dir in ("runs/a", "runs/b"):
        (tmp_path / run_dir).mkdir(parents=True)
    for line in USAGE.strip().splitlines():
        result = run(*shlex.split(line))
        assert result.exit_code == 2, (line, result.output)
        option = next((word for word in reversed(line.split()) if word.startswith("--")), "")
        assert option in result.stderr, (line, result.stderr)


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("train x.csv --label y", "--target"),
        ("train x.csv --target y --epochs 3", "--set train.epochs="),
        ("tune job.yaml --learning-rate 1", "--set train.optimizer.lr="),
        ("submit job.yaml --num-ranks=2", "--set resources.num_ranks="),
        ("train x.csv --optimizer=adam", "--set train.optimizer.kind="),
        ("train x.csv --kind dlrm", "'--model'"),
        ("plan job.yaml --kind dlrm", None),
        ("evaluate m x --epochs 3", None),
    ],
)
def test_an_option_of_another_name_is_suggested(
    line: str, meant: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(shlex.split(line))
    told = capsys.readouterr().err
    assert meant in told if meant else "--set" not in told


def test_a_run_without_a_saved_model_says_so(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    result = run("evaluate", tmp_path, tmp_path)
    assert isinstance(result.exception, DataError)


def test_numbers_of_ranks_that_cannot_train_are_refused_before_anything_is_made(
    tmp_path: Path,
) -> None:
    for words in (("init", "criteo-dlrm", "--data", tmp_path), ("demo",)):
        done = run(*words, "--ranks", 99_999, "--out", tmp_path / "out")
        assert isinstance(done.exception, SpecError)
        assert list(tmp_path.iterdir()) == []


def test_init_says_what_it_wrote_and_what_is_not_there(tmp_path: Path) -> None:
    out = tmp_path / "my job.yaml"
    done = run("init", "criteo-dlrm", "--data", tmp_path / "data", "--ranks", 16, "--out", out)
    assert done.exit_code == 0
    assert f"note: there is no folder {tmp_path / 'data' / 'train'} yet" in done.output
    assert f"written to {out}\nnext: distrain train '{out}'\n" in done.output
    spec = load_spec(out)
    assert (spec.resources.num_ranks, spec.train.lanes) == (16, 48)
    assert spec.data.valid == (), "there are no rows for it"


@pytest.mark.parametrize("mine", ["notes.txt", "job.yaml", "run"])
def test_a_demo_overwrites_nothing_but_a_demo(tmp_path: Path, mine: str) -> None:
    (tmp_path / mine).write_text("mine")
    done = run("demo", "--overwrite", "--out", tmp_path)
    assert isinstance(done.exception, OutputError)
    assert done.exception.where == {"path": str(tmp_path), "holds": mine}
    assert (tmp_path / mine).read_text() == "mine"


def test_a_demo_replaces_an_earlier_one_and_its_paths_may_be_odd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "a: b #1"
    (out / "raw").mkdir(parents=True)
    (out / "raw" / "planted.json").write_text("{}")
    (out / "run").mkdir()
    (out / "run" / "old").touch()
    ran: list[tuple[object, ...]] = []
    monkeypatch.setattr(demo, "_run", lambda *words: ran.append(words))
    monkeypatch.setattr(demo, "_compare", lambda *_: None)
    refused = run("demo", "--out", out)
    assert isinstance(refused.exception, OutputError)
    assert refused.exception.hint == "Choose another --out, or pass --overwrite."
    assert run("demo", "--out", out, "--overwrite").exit_code == 0
    assert [words[0] for words in ran] == ["synth", "prep", "train"]
    assert [path.name for path in out.iterdir()] == ["job.yaml"]
    assert load_spec(out / "job.yaml").data.train == (str(out / "data" / "train"),)
    assert shlex.quote(str(out / "job.yaml")) in (out / "job.yaml").read_text()


def test_a_home_that_the_shell_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shells expand `~` at the beginning of a word alone, and not where it is quoted."""
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    (tmp_path / "home" / "old").mkdir()
    done = run("report", "~/old", "--out=~/report.html")
    assert f"{tmp_path}/home/old" in str(done.exception), "the run is looked for there"
    done = run("synth", "--out=~/rows", "--rows", "10", "--files", "1")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "home" / "rows").is_dir()
    assert list((tmp_path / "work").iterdir()) == []
