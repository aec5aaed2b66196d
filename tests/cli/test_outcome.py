"""The table that ends a run."""

import io
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from distrain.cli.outcome import print_summary
from distrain.jobs.job_view import Checkpoints, JobView
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.states import JobState
from distrain.runs.summary import summarise

OUTCOMES = {
    "of two ranks": ({"rank_stall_pct": (0.25, 1.0)}, {}),
    "checkpoints failed": (
        {"rank_stall_pct": (0.0, 1.0), "checkpoints": Checkpoints(2, 9, "c", 0.25, 1.0, failed=1)},
        {},
    ),
    "never trained": ({"checkpoints": Checkpoints(failed=5)}, {}),
    "no AUC": ({}, {"scored_on": "valid", "scored_rows": 90}),
    "retrieval": ({}, {"scored_on": "valid", "scored_rows": 90, "own": {"recall_at_10": 0.25}}),
    "a constant is better": ({}, {"normalised_entropy": 1.0}),
    "a constant is worse": ({}, {"normalised_entropy": 0.99}),
    "exact": ({}, {"auc": 0.75, "auc_bound": 0.0, "scored_rows": 90}),
    "within a bound": ({}, {"auc": 0.75, "auc_bound": 1e-4, "scored_rows": 90}),
    "targets with brackets": ({}, {"targets": {"b[/c]": {"rmse": 2.5}, "[red]d": {"rmse": 1.5}}}),
}
"""Fields of the last view, and of the summary that is made from it."""


def test_the_table_tells_how_the_run_ended(tmp_path, wording):
    for name, (fields, more) in OUTCOMES.items():
        view = JobView("clicks-1", "clicks", JobState.SUCCEEDED, 1, 2, **fields)
        text = io.StringIO()
        summary = replace(summarise(view, []), **more)
        print_summary(Console(file=text, width=160), summary, RunPaths(Path("runs/a")))
        wording(f"{name}\n{text.getvalue()}")


def test_the_table_names_logs_that_exist(tmp_path):
    paths = RunPaths(tmp_path)
    summary = summarise(JobView("clicks-1", "clicks", JobState.SUCCEEDED, 1, 2), [])
    for has_logs in (False, True):
        if has_logs:
            paths.logs.mkdir()
        text = io.StringIO()
        print_summary(Console(file=text, width=400), summary, paths)
        assert (str(paths.logs) in text.getvalue()) == has_logs
