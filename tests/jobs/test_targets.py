"""Metrics of further targets in a job's records and figures."""

from dataclasses import replace

from distrain.jobs.api_answers import Job
from distrain.jobs.job_view import JobView, Record, record_from_json
from distrain.jobs.states import JobState
from distrain.jobs.status import _MOST_OF_A_TARGET, _MOST_TARGETS, job_of_scheduler

BARE = Record("valid", 0, 10, 40, 200, 1.0, None, 0.5, 0.9, 0.7, None)
TARGETS = {"price": {"rmse": 2.5, "r2": None}, "like": {"auc": 0.75}}
RECORD = replace(BARE, targets=TARGETS)


def test_a_record_without_further_targets_is_written_as_before_there_were_any():
    assert "targets" not in BARE.to_json()
    assert record_from_json(BARE.to_json()) == BARE
    view = JobView("a", "a", JobState.RUNNING, 1, 1, progress=(BARE,))
    assert "targets" not in view.to_json()["progress"][0]


def test_further_targets_travel_with_a_record():
    view = JobView("a", "a", JobState.RUNNING, 1, 1, progress=(RECORD,))
    assert JobView.from_json(view.to_json()) == view
    assert RECORD.value("price.rmse") == 2.5
    assert RECORD.value("price.r2") is RECORD.value("price.other") is None
    assert RECORD.value("loss") == 0.5
    assert replace(RECORD, own={"recall_at_10": 0.25}).value("recall_at_10") == 0.25
    figures = RECORD.figures()
    assert (figures["price.rmse"], figures["like.auc"], figures["auc"]) == (2.5, 0.75, 0.7)
    assert "targets" not in figures


def test_further_targets_are_figures_of_a_job():
    status = Job(id="a", state="running", valid_targets={"price": {"rmse": 2.5}})
    assert job_of_scheduler(status.model_dump()) == status
    assert status.figures == {"valid_targets": {"price": {"rmse": 2.5}}}


def test_what_another_scheduler_says_of_targets_is_bounded_and_cleaned():
    many = {f"target {n}": {f"m{k}": k for k in range(100)} for n in range(100)}
    odd = {"x" * 1000 + "\0": {"rmse": 1}, "a\0b": {"rmse": "high", "r2": float("nan")}}
    document = {"id": "a", "state": "running", "targets": odd | many, "valid_targets": [1]}
    status = job_of_scheduler(document)
    assert status.valid_targets is None
    assert len(status.targets) <= _MOST_TARGETS
    for name, metrics in status.targets.items():
        assert len(name) <= _MOST_OF_A_TARGET
        assert "\0" not in name
        assert 0 < len(metrics) <= _MOST_TARGETS
    assert job_of_scheduler({**document, "targets": {"a": {"rmse": None}}}).targets is None
