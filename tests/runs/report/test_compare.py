"""`distrain compare`: what differs is shown, what does not is left out."""

import re

import pytest
from click.testing import CliRunner
from kept_runs import finished_view, keep_run, records_of, spec_of, view_of

from distrain.cli.runs.report import compare as command
from distrain.jobs.states import JobState
from distrain.runs.report.comparison import compare
from distrain.runs.run_data import RunData, read_run_data


@pytest.fixture
def roots(tmp_path):
    one = keep_run(tmp_path / "one", finished_view(records_of()), spec_of(epochs=1), "clicks-1")
    other = keep_run(
        tmp_path / "other",
        view_of(JobState.RUNNING, records_of(50)),
        spec_of(epochs=2, optimizer={"kind": "adam", "lr": 0.5}),
        "clicks-2",
    )
    return [one, other]


def test_only_settings_that_differ_are_listed(roots):
    found = compare([read_run_data(root) for root in roots])
    settings = {row[0]: row[1:] for row in found.settings}
    assert settings["train.epochs"] == ("1", "2")
    assert settings["train.optimizer.lr"][1] == "0.5"
    assert settings["train.optimizer.kind"][1] == "adam"
    assert all(place.startswith("train.") for place in settings)
    assert found.environment == ()
    assert found.names == ("one", "other"), "the jobs have the same name"
    three = compare([read_run_data(root) for root in (roots[0], roots[0], roots[1])])
    assert {row[0]: row[1:] for row in three.settings}["train.epochs"] == ("1", "1", "2")
    assert three.names == (str(roots[0]), str(roots[0]), str(roots[1]))


@pytest.mark.parametrize(("rows", "best"), [(500, {0}), (499, set())])
def test_metrics_of_other_rows_are_neither_better_nor_worse(roots, monkeypatch, rows, best):
    outcome, of_run = vars(RunData)["outcome"].fget, {"clicks-1": 500, "clicks-2": rows}
    scored = property(lambda run: {**outcome(run), "scored_rows": of_run[run.name]})
    monkeypatch.setattr(RunData, "outcome", scored)
    found = compare([read_run_data(root) for root in roots])
    assert found.best.get("AUC", frozenset()) == best
    assert "rows/s" in found.best


def test_folders_that_are_named_by_ids_have_the_ids_end_as_names(tmp_path):
    view, spec = finished_view(records_of()), spec_of()
    ids = (f"{spec.name}-20260301-ab12", "mine-1", "yours-1")
    roots = [keep_run(tmp_path / job_id, view, spec, job_id) for job_id in ids]
    names = compare([read_run_data(root) for root in roots]).names
    assert names == (f"{spec.name} ab12", "mine-1", "yours-1")


def test_outcomes_stand_side_by_side_also_of_runs_without_an_end(roots):
    outcomes = {
        row[0]: row[1:] for row in compare([read_run_data(root) for root in roots]).outcomes
    }
    assert outcomes["state"] == ("succeeded", "broken off")
    assert outcomes["rows trained"] == ("10,000", "5,000")
    assert outcomes["AUC"] == (
        "0.70000 (bins: within 1.0e-03)",
        "0.65000 (bins: within 1.0e-03)",
    )
    assert outcomes["parameters"] == ("12", "-")


def test_the_command_prints_the_tables(roots):
    done = CliRunner().invoke(command, [*map(str, roots)])
    assert done.exit_code == 0, done.output
    assert re.search(r"train\.epochs\W+1\W+2\W", done.output)
    assert CliRunner().invoke(command, [str(roots[0])]).exit_code == 2, "one is too few"
