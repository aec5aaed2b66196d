"""From documents to columns and words."""

import math

import pytest
from made_documents import PHASE_SECONDS, curve, job, rank

from distrain.jobs.events import PHASES
from distrain.scheduler.dashboard.figure_data import (
    gpu_columns,
    memory_columns,
    phase_columns,
    step_time_columns,
    step_time_title,
    train_series,
    valid_series,
)
from distrain.scheduler.dashboard.job_text import (
    headline,
    job_columns,
    job_options,
    progress_pct,
    spec_html,
)


def test_curves_have_the_auc_bound_as_a_band() -> None:
    series = train_series(
        {**curve(1, 3), "auc": [None, 0.999, 0.7], "auc_bound": [None, 0.01, 0.2]}
    )
    assert {len(values) for values in series.values()} == {3}
    assert math.isnan(series["auc"][0])
    assert math.isnan(series["auc_low"][0])
    assert list(series["auc_high"][1:]) == pytest.approx([1.0, 0.9]), "no AUC is above 1"
    assert list(series["auc_low"][1:]) == pytest.approx([0.989, 0.5])


def test_no_points_are_columns_without_rows() -> None:
    for series in (train_series({}), valid_series({})):
        assert series
        assert {values.shape for values in series.values()} == {(0,)}


def test_phases_are_shares_of_wall_time() -> None:
    columns = phase_columns([rank(0), rank(1)])
    assert columns["rank"] == ["0", "1"]
    assert columns["forward_backward"] == [50.0, 50.0]
    assert columns["forward_backward_s"] == [2.0, 2.0]
    assert [sum(columns[phase][i] for phase in PHASES) for i in (0, 1)] == [100.0, 100.0]
    assert phase_columns([rank(0)], "seconds")["data_wait"] == [100.0]
    assert phase_columns([rank(0, total_seconds={})])["data_wait"] == [0.0], "nothing told yet"
    assert sum(PHASE_SECONDS.values()) == 4.0


def test_the_slowest_rank_is_marked_and_named() -> None:
    ranks = [rank(number, step_time_s=0.01 + 0.001 * (number == 7)) for number in range(9)]
    slowest = {"rank": 7, "step_time_s": 0.011, "median_step_time_s": 0.01}
    assert set(step_time_columns(ranks, slowest)["is_slow"]) == {"no"}, "10 % is noise"
    assert "rank 7" not in headline(job(ranks=ranks, slowest=slowest), "")
    far = {**slowest, "step_time_s": 0.0125}
    columns = step_time_columns(ranks, far)
    assert [r for r, is_it in zip(columns["rank"], columns["is_slow"], strict=True)
            if is_it == "yes"] == ["7"]  # fmt: skip
    assert step_time_title(far).startswith("Slowest: rank 7, 25 % over")
    assert "rank 7 on w7 (host)" in headline(job(ranks=ranks, slowest=far), "")


def test_what_is_not_known_yet_is_drawn_as_nothing() -> None:
    assert step_time_columns([rank(0, step_time_s=None)], None)["step_time_ms"] == [0.0]  # type: ignore[arg-type]
    assert progress_pct(job(num_steps=None)) == progress_pct(job(step=None)) == 0.0
    assert spec_html(None) == spec_html(job()) == ""
    columns = memory_columns([rank(0), rank(1, memory={"host_bytes": 2**31})])
    assert (columns["rank"], columns["host_gib"], columns["device_gib"]) == (["1"], [2.0], [0.0])


def test_only_ranks_with_a_gpu_have_bars_for_it() -> None:
    gpu = {"utilisation_pct": 80, "memory_used_bytes": 2**30, "memory_total_bytes": 2**32}
    columns = gpu_columns([rank(0), rank(1, gpu=gpu)])
    assert (columns["rank"], columns["memory_pct"]) == (["1"], [25.0])
    assert columns["memory_used_gib"] == [1.0]
    nothing = {"utilisation_pct": None, "memory_used_bytes": None, "memory_total_bytes": None}
    assert gpu_columns([rank(0, gpu=nothing)])["utilisation_pct"] == [0.0]
    assert gpu_columns([rank(0)])["rank"] == []


def test_the_table_and_the_selector_hold_every_job() -> None:
    jobs = [job("b"), job("a", "failed", reason="RankDied", eta_s=None, loss=None)]
    columns = job_columns(jobs)
    assert columns["job_id"] == ["b", "a"]
    assert columns["state"] == ["running", "failed (RankDied)"]
    assert columns["progress_pct"] == [25.0, 25.0]
    assert columns["eta_s"] == ["1m15s", "-"]
    assert [value for value, _ in job_options(jobs)] == ["", "b", "a"]
    assert {name for name, values in job_columns([]).items() if values == []} == set(columns)


def test_why_an_attempt_ended_is_told_while_the_next_one_starts() -> None:
    moments = [
        {"kind": "restart", "text": "attempt 1 ended: RankDied: rank 1 was killed\nlast words"},
        {"kind": "state", "text": "running"},
    ]
    restarted = job(state="starting", attempt=2, rows_per_s=None, timeline=moments)
    text = headline(restarted, "")
    assert "attempt 2; attempt 1 ended: RankDied: rank 1 was killed<" in text
    assert "rows/s" not in text
    moments.append({"kind": "state", "text": "stopping: RankHung: <rank 0> did nothing"})
    assert "stopping: RankHung: &lt;rank 0&gt;" in headline(restarted, "")
    failed = job(state="failed", reason="RankDied", message="it was killed", timeline=moments)
    text = headline(failed, "")
    assert "color:#b3261e" in text
    assert "failed (RankDied)" in text
    assert "it was killed" in text
    assert "stopping" not in text


def test_what_people_wrote_is_escaped() -> None:
    text = headline(job(name="<script>x</script>", message="a < b\nhint: c"), "")
    assert ("<script>" in text, "a &lt; b<br>hint: c" in text) == (False, True)
    shown = spec_html(job(tags={"team": "<ads>"}, spec={"name": "a<b"}))
    assert ("<ads>" in shown, "team: &lt;ads&gt;" in shown, "a&lt;b" in shown) == (
        False,
        True,
        True,
    )
    assert "AUC 0.7500 (bins: within 1.0e-03)" in text
    assert "±" not in text, "that would read as a confidence interval"
    assert "AUC 0.7500 ·" in headline(job(auc_bound=0.0), ""), "sorted rows have no error of bins"
    assert "train job.yaml --scheduler tcp://a:&lt;1&gt;</code>" in headline(None, "tcp://a:<1>")
