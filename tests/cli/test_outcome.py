"""The table that ends a run."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from distrain.cli.outcome import print_summary
from distrain.jobs.states import JobState
from distrain.jobs.view import Checkpoints, JobView
from distrain.run_paths import RunPaths
from distrain.runs import summarise

LOADER = {"rows": 2_000_000, "decode_s": 1.0, "fill_s": 0.5, "mean_queue_depth": 3.25}


def printed(tmp_path, **fields):
    view = JobView("clicks-1", "clicks", JobState.SUCCEEDED, 1, 2, **fields)
    text = io.StringIO()
    print_summary(Console(file=text, width=160), summarise(view, []), RunPaths(tmp_path))
    return text.getvalue()


def test_each_rank_has_a_line_about_its_loader(tmp_path):
    text = printed(
        tmp_path, rank_stall_pct=(0.25, 1.0), rank_loader=(LOADER, {**LOADER, "fill_s": 2.0})
    )
    lines = [line.split("rank ")[1].strip() for line in text.splitlines() if "rank " in line]
    work = "decode 0.50, fill {} s/M rows; queue 3.2"
    assert [line.rstrip(" │") for line in lines] == [
        "0: 0.2 %; " + work.format("0.25"),
        "1: 1.0 %; " + work.format("1.00"),
    ]


def test_ranks_that_tell_nothing_of_their_loaders_have_a_shorter_line(tmp_path):
    assert "rank 1: 1.0 % " in printed(tmp_path, rank_stall_pct=(0.0, 1.0))
    assert "fill" not in printed(tmp_path, rank_stall_pct=(0.0, 1.0))


def test_a_run_that_never_trained_has_a_dash(tmp_path):
    (line,) = [line for line in printed(tmp_path).splitlines() if "waiting for data" in line]
    assert "-" in line


def test_an_auc_that_is_not_defined_says_why(tmp_path):
    view = JobView("clicks-1", "clicks", JobState.SUCCEEDED, 1, 2)
    one_class = replace(summarise(view, []), scored_on="valid", scored_rows=90)
    text = io.StringIO()
    print_summary(Console(file=text, width=160), one_class, RunPaths(tmp_path))
    assert "not defined: all of these rows have one label, or weigh 0" in text.getvalue()
    retrieval = replace(one_class, own={"recall_at_10": 0.25})
    print_summary(Console(file=text, width=160), retrieval, RunPaths(tmp_path))
    assert re.search(r"recall at 10 among these rows. items +│ 0.25000", text.getvalue())
    assert "not defined" not in printed(tmp_path)


def test_checkpoints_that_could_not_be_written_are_counted(tmp_path):
    def row(**fields):
        lines = printed(tmp_path, **fields).splitlines()
        return [line for line in lines if line.lstrip("│ ").startswith("checkpoints")]

    (line,) = row(checkpoints=Checkpoints(failed=5))
    assert "0 written, 5 failed" in line
    (line,) = row(checkpoints=Checkpoints(2, 9, "c/step-9", 0.25, 1.0, failed=1))
    assert "2 written, 1 failed, for which training stood still 0.25 s in all" in line
    assert row() == [], "none was due"


@pytest.mark.parametrize(("entropy", "is_told"), [(0.99, False), (1.0, True), (1.25, True)])
def test_a_model_that_a_constant_beats_is_told(tmp_path, entropy, is_told):
    view = JobView("clicks-1", "clicks", JobState.SUCCEEDED, 1, 2)
    text = io.StringIO()
    scored = replace(summarise(view, []), normalised_entropy=entropy)
    print_summary(Console(file=text, width=160), scored, RunPaths(tmp_path))
    told = f"{entropy:.5f} (a constant has 1: this model is worse)" in text.getvalue()
    assert told == is_told


@pytest.mark.parametrize(
    ("bound", "words"), [(0.0, "exact for these rows"), (1e-4, "exact for these rows is within")]
)
def test_how_exact_an_auc_is_is_said_of_its_rows_alone(tmp_path, bound, words):
    view = JobView("clicks-1", "clicks", JobState.SUCCEEDED, 1, 2)
    text = io.StringIO()
    scored = replace(summarise(view, []), auc=0.75, auc_bound=bound, scored_rows=90)
    print_summary(Console(file=text, width=160), scored, RunPaths(tmp_path))
    assert words in text.getvalue()


def test_brackets_in_names_of_targets_are_no_markup(tmp_path):
    targets = {"b[/c]": {"rmse": 2.5}, "[red]d": {"rmse": 1.5}}
    view = JobView("clicks-1", "clicks", JobState.SUCCEEDED, 1, 2)
    text = io.StringIO()
    scored = replace(summarise(view, []), targets=targets)
    print_summary(Console(file=text, width=160), scored, RunPaths(tmp_path))
    assert all(name in text.getvalue() for name in targets)
