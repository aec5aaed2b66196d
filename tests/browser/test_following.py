"""What is new since the last look, and what a browser is told of it."""

from typing import Any

import numpy as np
from bokeh.models import ColumnDataSource
from hypothesis import given, strategies as st
from made_documents import MadeDocuments, job

from distrain.scheduler.dashboard.panel import KEPT_POINTS, extend, update_source
from distrain.scheduler.dashboard.watching import Watch, pick

CELLS = st.lists(st.integers(0, 2), max_size=4)


@given(CELLS, CELLS)
def test_data_are_set_exactly_if_they_differ(old: list[int], new: list[int]) -> None:
    source, sent = ColumnDataSource({"a": list(old), "b": list(old)}), []
    source.on_change("data", lambda _name, _old, _new: sent.append(1))
    changed = update_source(source, {"a": list(new), "b": list(new)})
    assert {name: list(values) for name, values in source.data.items()} == {"a": new, "b": new}
    assert changed == (old != new) == bool(sent)


def test_a_curve_in_a_browser_stays_bounded() -> None:
    source = ColumnDataSource({"x": []})
    for _ in range(5):
        extend(source, {"x": np.arange(1_000.0)}, replaces=False)
    assert len(source.data["x"]) == KEPT_POINTS
    extend(source, {"x": np.arange(10_000.0)}, replaces=True)
    assert len(source.data["x"]) == KEPT_POINTS


def test_the_running_job_is_followed_until_somebody_picks_another() -> None:
    jobs = [job("c", "pending"), job("b", "running"), job("a", "succeeded")]
    assert pick(jobs, "") == "b"
    assert pick(jobs, "a") == "a"
    assert pick(jobs, "forgotten") is None, "not another one in its place"
    assert pick(jobs[:1] + jobs[2:], "") == "c"
    assert pick(jobs[2:], "") == "a"
    assert pick([], "a") is None


def test_a_look_brings_only_what_is_new() -> None:
    documents = MadeDocuments(job("b"), job("a", "succeeded"))
    watch = Watch(lambda: documents)
    first = watch.refresh()
    assert (first.replaces, first.metrics["train"]["step"]) == (True, [1])
    documents.steps["b"] = 3
    second = watch.refresh()
    assert (second.replaces, second.metrics["train"]["step"]) == (False, [2, 3])
    assert (watch.refresh().metrics["train"]["step"], watch.refresh().replaces) == ([], False)
    documents.generation += 1
    assert watch.refresh().replaces, "points were taken back"
    watch.wanted = "a"
    third = watch.refresh()
    assert third.replaces
    assert third.job is not None
    assert third.job["id"] == "a"
    assert documents.asked[-1] == ("a", None), "another job's cursor means nothing here"


def test_a_job_that_is_not_there_is_missing_until_it_comes() -> None:
    documents = MadeDocuments(job("b"))
    watch = Watch(lambda: documents, "nosuch")
    view = watch.refresh()
    assert (view.job, view.missing, view.metrics) == (None, "nosuch", {})
    assert [entry["id"] for entry in view.jobs] == ["b"]
    documents.entries.append(job("nosuch"))
    documents.steps["nosuch"] = 1
    view = watch.refresh()
    assert view.job is not None
    assert (view.job["id"], view.missing, view.replaces) == ("nosuch", "", True)


def test_a_scheduler_without_jobs_or_without_a_coordinator() -> None:
    found: list[Any] = [None]
    watch = Watch(lambda: found[0])
    assert watch.refresh().job is None
    for documents, replaces in ((MadeDocuments(), False), (MadeDocuments(job("b")), True)):
        found[0] = documents
        assert watch.refresh().replaces == replaces
    found[0] = MadeDocuments()
    assert (watch.refresh().job, watch.refresh().jobs) == (None, [])
