"""Views and lists of jobs, read by a version that knows more keys or fewer than who wrote them."""

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from distrain.jobs.api_answers import Job
from distrain.jobs.job_view import (
    JSON_VERSION,
    AttemptStarted,
    Checkpoints,
    JobView,
    Notice,
    Record,
    Restart,
)
from distrain.jobs.states import JobState
from distrain.jobs.status import job_of_scheduler

RECORD = Record("train", 0, 5, 50, 50, 1.0, 9.0, 0.5, 0.9, 0.7, 1e-4, stall_pct=(1.0, 2.0))
VIEW = JobView(
    "a-1",
    "a",
    JobState.RUNNING,
    2,
    2,
    pids=(7, None),
    progress=(AttemptStarted(1, 0, 2), RECORD, Notice("the disk is full")),
    next_record=3,
    restarts=(Restart(1, "RankDied", "killed", 5, 2.5),),
    checkpoints=Checkpoints(count=1, step=5),
    rank_stall_pct=(1.0, 2.0),
)
LISTING = Job(id="a-1", name="a", state="running", attempt=2, num_ranks=2, tags={"team": "ads"})
LATER = st.dictionaries(st.text(min_size=1).map(lambda name: f"later {name}"), st.integers())


def as_sent(view: JobView) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(view.to_json()))
    return document


@given(LATER)
def test_keys_of_a_later_version_are_ignored_wherever_they_stand(later: dict[str, int]) -> None:
    document = as_sent(VIEW) | later | {"version": JSON_VERSION + 1}
    document["checkpoints"] |= later
    document["restarts"] = [restart | later for restart in document["restarts"]]
    document["progress"] = [entry | later for entry in document["progress"]]
    assert JobView.from_json(document) == VIEW
    assert job_of_scheduler(LISTING.model_dump() | later) == LISTING


def test_entries_of_a_later_version_are_left_out() -> None:
    for place in range(4):
        document = as_sent(VIEW)
        document["progress"].insert(place, {"entry": "later", "text": "of a later version"})
        assert JobView.from_json(document) == VIEW


@given(st.sets(st.sampled_from([field.name for field in fields(JobView)[5:]])))
def test_keys_that_an_earlier_version_did_not_write_have_their_defaults(left: set[str]) -> None:
    document = {key: value for key, value in as_sent(VIEW).items() if key not in left}
    del document["version"]
    defaults = JobView("a-1", "a", JobState.RUNNING, 2, 2)
    expected = replace(VIEW, **{name: getattr(defaults, name) for name in left})
    assert JobView.from_json(document) == expected


def test_parts_of_an_earlier_version_have_their_defaults() -> None:
    document = as_sent(replace(VIEW, progress=(RECORD,)))
    document["checkpoints"] = {"count": 1, "step": 5}
    for name in ("stall_pct", "attempt", "reports", "stall_summary", "reliability"):
        del document["progress"][0][name]
    read = JobView.from_json(document)
    assert read.checkpoints == VIEW.checkpoints
    assert read.progress == (replace(RECORD, stall_pct=()),)


def test_a_state_of_a_later_version_can_be_listed_but_is_no_view() -> None:
    listed = job_of_scheduler({**LISTING.model_dump(), "state": "hibernating"})
    assert (listed.state, listed.is_final) == ("hibernating", False)
    with pytest.raises(ValueError, match="hibernating"):
        JobView.from_json({**as_sent(VIEW), "state": "hibernating"})


def test_what_no_job_is_without_must_be_there() -> None:
    with pytest.raises(KeyError, match="id"):
        job_of_scheduler({"state": "running"})
    with pytest.raises(KeyError, match="state"):
        job_of_scheduler({"id": "a"})
    with pytest.raises(ValueError, match="missing"):
        JobView.from_json({})
