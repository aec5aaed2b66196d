from pathlib import Path

import pytest
from click.testing import CliRunner
from small_jobs import write_prepared

from distrain.cli.training.init import command
from distrain.errors import OutputError
from distrain.jobs.states import JobState
from distrain.spec import load_spec
from distrain.spec.presets import PRESETS
from distrain.submission.inline import run_inline


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_trains_as_written(preset: str, tmp_path: Path) -> None:
    data = write_prepared(tmp_path / "data")
    out = tmp_path / "job.yaml"
    done = CliRunner().invoke(command, [preset, "--data", str(data), "--out", str(out)])
    assert done.exit_code == 0, done.output
    spec = load_spec(out, ["resources.backend=inline", "train.global_batch_size=1000"])
    assert spec.name == preset
    view = run_inline(spec, tmp_path / "run", "job", lambda _: None)
    assert view.state is JobState.SUCCEEDED


def test_every_preset_can_be_chosen() -> None:
    (choice,) = [p for p in command.params if p.name == "preset"]
    assert set(choice.type.choices) == set(PRESETS)  # type: ignore[attr-defined]


def test_validation_is_left_out_where_there_are_no_rows_for_it(tmp_path: Path) -> None:
    out = tmp_path / "job.yaml"
    CliRunner().invoke(command, ["criteo-mlp", "--data", str(tmp_path), "--out", str(out)])
    assert load_spec(out).data.valid == ()


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "job.yaml"
    out.write_text("mine")
    done = CliRunner().invoke(command, ["criteo-mlp", "--data", "d", "--out", str(out)])
    assert isinstance(done.exception, OutputError)
    assert out.read_text() == "mine"
