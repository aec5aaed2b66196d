"""Mistakes on the command line: told at once, in the words of the command line."""

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from distrain.cli.main import cli
from distrain.cli.training import demo
from distrain.errors import DataError, OutputError, SpecError
from distrain.spec import load_spec


def run(*words: object) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words], prog_name="distrain")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("train", "Give either a SPEC.yaml or --resume RUN."),
        ("train job.yaml --resume runs/a", "Give either a SPEC.yaml or --resume RUN."),
        ("train --resume runs/a --run-dir runs/b", "leave --run-dir out"),
        ("train job.yaml --without-checkpoint", "--without-checkpoint is for --resume."),
        ("evaluate m x --seed 0", "--seed is for --importance."),
        ("evaluate m x --top 5", "--top is for --items."),
        ("evaluate m x --seen history", "--seen is for --items."),
    ],
)
def test_options_that_exclude_or_need_each_other_are_a_usage_error(
    words: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text("name: clicks\n")
    for run_dir in ("runs/a", "runs/b"):
        (tmp_path / run_dir).mkdir(parents=True)
    result = run(*shlex.split(words))
    assert result.exit_code == 2, result.output
    assert problem in " ".join(result.stderr.replace("│", " ").split())


def test_a_run_without_a_saved_model_says_so(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    result = run("evaluate", tmp_path, tmp_path)
    assert isinstance(result.exception, DataError)
    assert "the run has no saved model" in str(result.exception)


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("prep x --out y --workers 0", "--workers"),  # Dask would wait for workers for ever
        ("prep x --out y --block-mib 0", "--block-mib"),
        ("prep x --out y --embedding-dim 0", "--embedding-dim"),
        ("predict m x --out y --workers 0", "--workers"),
        ("predict m x --out y --batch-size 0", "--batch-size"),
        ("evaluate m x --batch-size 0", "--batch-size"),
        ("evaluate m x --threads 0", "--threads"),
        ("init criteo-mlp --data x --ranks 0", "--ranks"),
        ("demo --ranks 0", "--ranks"),
    ],
)
def test_none_of_something_that_must_be_is_a_usage_error(words: str, option: str) -> None:
    done = run(*words.split())
    assert done.exit_code == 2
    assert f"Invalid value for '{option}': 0 is not in the range x>=1." in done.output


@pytest.mark.parametrize("option", ["--freq-threshold", "--max-size", "--num-buckets"])
def test_a_fitted_workflow_takes_no_options_of_the_fit(option: str) -> None:
    done = run("prep", "x", "--out", "y", "--workflow", "w", option, "3")
    assert done.exit_code == 2
    assert f"--workflow is fitted already: leave out {option}." in done.output


def test_prep_finds_a_taken_output_before_it_starts_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distrain.cluster.open_cluster", None)
    raw = tmp_path / "raw.tsv"
    raw.write_text("1\n")
    done = run("prep", raw, "--out", tmp_path)
    assert isinstance(done.exception, OutputError)


def test_init_refuses_a_number_of_ranks_that_cannot_train(tmp_path: Path) -> None:
    out = tmp_path / "job.yaml"
    done = run("init", "criteo-dlrm", "--data", tmp_path, "--ranks", 99999, "--out", out)
    assert isinstance(done.exception, SpecError)
    assert "resources.num_ranks 99999 needs 799992 lanes, but 65536 are the most" in str(
        done.exception
    )
    assert not out.exists()


def test_init_writes_lanes_that_the_ranks_divide(tmp_path: Path) -> None:
    out = tmp_path / "job.yaml"
    run("init", "criteo-dlrm", "--data", tmp_path, "--ranks", 16, "--out", out)
    assert load_spec(out).train.lanes == 48


def test_init_says_what_it_wrote_and_what_is_not_there(tmp_path: Path) -> None:
    out = tmp_path / "my job.yaml"
    done = run("init", "criteo-dlrm", "--data", tmp_path / "data", "--ranks", 3, "--out", out)
    assert done.exit_code == 0
    assert f"note: there is no folder {tmp_path / 'data' / 'train'} yet" in done.output
    assert f"written to {out}\nnext: distrain train '{out}'\n" in done.output
    assert load_spec(out).resources.num_ranks == 3


def test_schema_says_that_the_preset_is_not_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("schema", "criteo").stderr == ""
    Path("criteo").mkdir()
    done = run("schema", "criteo", "--json")
    assert "for the folder of that name: criteo/" in done.stderr
    assert len(json.loads(done.stdout)["columns"]) == 40


def test_a_demo_that_cannot_train_ends_before_anything_is_generated(tmp_path: Path) -> None:
    done = run("demo", "--ranks", 70_000, "--out", tmp_path / "demo")
    assert isinstance(done.exception, SpecError)
    assert list(tmp_path.iterdir()) == []


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


def test_a_demo_of_a_few_rows_has_no_auc_to_compare(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planted, summary = tmp_path / "planted.json", tmp_path / "summary.json"
    planted.write_text('{"splits": {"valid": {"bayes_auc": 0.5}}}')
    summary.write_text('{"auc": null}')
    demo._compare(planted, summary)
    assert "too few to compare" in capsys.readouterr().out


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


def test_a_home_of_nobody_is_a_usage_error() -> None:
    done = run("report", "~no-such-user/run")
    assert done.exit_code == 2
    assert "'~no-such-user/run' begins with the home of a user that is not known" in done.output
