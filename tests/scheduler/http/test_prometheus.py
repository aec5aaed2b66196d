"""The jobs on `/metrics`: stable names, right values, few label values."""

import time
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
from counted_rows import counted
from monitored import Site, beside, metrics_state, new_site, steps_done
from prometheus_names import NAMES, Samples, samples_of

from distrain.jobs.events import (
    PHASES,
    STEP_BOUNDS_S,
    CheckpointSaved,
    EvaluationDone,
    RankExited,
    RankFinished,
)
from distrain.jobs.states import JobState
from distrain.metrics.targets import TargetMetrics
from distrain.scheduler.history.ranks import SHOWN_RANKS
from distrain.scheduler.http.prometheus import ENDED_JOBS

GPU_NAMES = {name for name in NAMES if "_gpu_" in name}  # absent without NVML
TARGET_NAMES = {"distrain_job_target_score"}  # absent where jobs have one target
TLS_NAMES = {"distrain_certificate_end_timestamp_seconds"}  # without series where there is no TLS


async def scrape(site: Site) -> Samples:
    """Values by name, then by the labels' values in their names' order."""
    answer = await site.get("/metrics")
    assert answer.code == 200
    return samples_of(answer.body.decode(), NAMES)


def finish(site: Site, job_id: str) -> None:
    for rank in range(2):
        site.tell(job_id, RankFinished(rank, 10, 100, 1.0, {}))
        site.tell(job_id, RankExited(rank, 0, stopped=False))


@beside(new_site)
async def test_metrics_of_further_targets_have_the_targets_name(site: Site) -> None:
    rows = np.array([1.0, 0.0]), np.array([1.0, 0.0])
    kinds = {"click": "binary", 'a "price"': "regression"}
    metrics = TargetMetrics({name: counted(kind, *rows) for name, kind in kinds.items()})
    site.submit("a")
    site.step("a", 10)
    for rank in range(2):
        site.tell("a", EvaluationDone(rank, 0, 10, 2.0, metrics.to_json()))
    found = (await scrape(site))["distrain_job_target_score"]
    assert found["a", "r2", "valid", 'a "price"'] == 1
    assert {labels[3] for labels in found} == {'a "price"'}


@beside(new_site)
async def test_names_and_values_of_a_job_that_runs_and_one_that_ended(site: Site) -> None:
    site.submit("ended")
    site.step("ended", 10)
    finish(site, "ended")
    site.submit("a")
    for step in (10, 20):
        site.step("a", step)
    for rank in range(2):
        site.tell("a", EvaluationDone(rank, 0, 20, 2.0, metrics_state()))
    site.tell("a", CheckpointSaved(0, 20, "/c/20", 2**20, 0.1, 0.2))
    found = await scrape(site)
    assert set(found) == set(NAMES) - GPU_NAMES - TLS_NAMES - TARGET_NAMES
    assert found["distrain_jobs"][("running",)] == found["distrain_jobs"][("succeeded",)] == 1
    assert found["distrain_job_info"] == {("a", "test"): 1, ("ended", "test"): 1}
    assert found["distrain_job_rows_total"] == {("a",): 400, ("ended",): 200}
    assert found["distrain_job_rows_per_second"] == {("a",): pytest.approx(200)}
    assert found["distrain_job_steps_done"][("a",)] == 20
    assert found["distrain_job_steps_planned"][("a",)] == 100
    assert found["distrain_job_phase_seconds_total"]["a", "data_wait"] == pytest.approx(0.75)
    assert found["distrain_job_phase_seconds_total"]["a", "exchange"] == pytest.approx(1.0)
    assert set(found["distrain_job_auc_ratio"]) == {
        ("a", "train"), ("a", "valid"), ("ended", "train")
    }  # fmt: skip
    buckets = found["distrain_job_step_duration_seconds_bucket"]
    assert (buckets["a", "0.1"], buckets["a", "0.05"], buckets["a", "+Inf"]) == (40, 0, 40)
    assert found["distrain_job_step_duration_seconds_sum"][("a",)] == pytest.approx(4.0)
    assert found["distrain_rank_step_duration_seconds"] == {
        ("a", "0"): pytest.approx(0.05), ("a", "1"): pytest.approx(0.1)
    }  # fmt: skip
    assert found["distrain_rank_data_wait_ratio"]["a", "1"] == pytest.approx(0.25)
    assert found["distrain_job_state"]["a", "running"] == 1
    assert sum(found["distrain_job_state"].values()) == 2
    assert set(found["distrain_job_ended_timestamp_seconds"]) == {("ended", "", "succeeded")}


@beside(new_site)
async def test_gpus_checkpoints_memory_and_the_time_to_go(site: Site) -> None:
    site.submit("a")
    site.step("a", 10)
    checkpoint = CheckpointSaved(0, 10, "/c/10", 2**20, 0.25, 3.0)
    site.tell("a", checkpoint)
    site.tell("a", replace(checkpoint, step=20, size_bytes=2**21))
    metrics = {"gpu_utilization": 75.0, "gpu_memory_used": 2**30, "gpu-memory-total": None}
    site.coordinator.scheduler = Mock(workers={"tcp://a-1:1": Mock(metrics=metrics)})
    found = await scrape(site)
    assert found["distrain_rank_gpu_utilisation_ratio"] == {("a", "1"): 0.75}
    assert found["distrain_rank_gpu_memory_used_bytes"] == {("a", "1"): 2**30}
    assert "distrain_rank_gpu_memory_total_bytes" not in found, "NVML did not tell"
    assert found["distrain_rank_memory_bytes"] == {
        ("a", "host", "0"): 2**28, ("a", "host", "1"): 2**28
    }  # fmt: skip
    assert found["distrain_job_checkpoint_write_seconds_total"] == {("a",): 6.0}
    assert found["distrain_job_checkpoint_stall_seconds_total"] == {("a",): 0.5}
    assert found["distrain_job_checkpoint_bytes"] == {("a",): 2**21}
    written_s = found["distrain_job_checkpoint_timestamp_seconds"][("a",)]
    assert abs(written_s - time.time()) < 600
    assert found["distrain_job_eta_seconds"] == {("a",): pytest.approx(9_800 / 200)}


@beside(new_site)
async def test_what_waits_in_the_queue_is_counted_and_has_no_series(site: Site) -> None:
    site.submit("a")
    assert (await scrape(site))["distrain_jobs_longest_pending_seconds"] == {(): 0}
    for number in range(3):
        site.queue(f"waits-{number}")
    site.coordinator.histories["waits-0"].state_since_s -= 3_600
    found = await scrape(site)
    assert found["distrain_jobs"][("pending",)] == 3
    assert found["distrain_jobs_longest_pending_seconds"][()] >= 3_600
    for name, series in found.items():
        if "job_id" in NAMES[name]:
            assert not any("waits" in value for labels in series for value in labels), name


@beside(new_site)
async def test_one_slow_step_of_a_hundred_is_seen(site: Site) -> None:
    site.submit("a", num_ranks=1)
    counts = [0] * (len(STEP_BOUNDS_S) + 1)
    counts[STEP_BOUNDS_S.index(0.005)], counts[STEP_BOUNDS_S.index(1.0)] = 99, 1
    report = replace(steps_done(0, 100, 1.3, 1.3), step_counts=counts)
    site.tell("a", report)
    found = await scrape(site)
    buckets = found["distrain_job_step_duration_seconds_bucket"]
    assert (buckets["a", "0.002"], buckets["a", "0.005"], buckets["a", "0.5"]) == (0, 99, 99)
    assert (buckets["a", "1"], buckets["a", "+Inf"]) == (100, 100)
    assert found["distrain_job_step_duration_seconds_sum"] == {("a",): pytest.approx(1.3)}
    site.tell("a", replace(report, step=200, step_counts=[1, 2, 3]))  # of another version
    found = await scrape(site)
    buckets = found["distrain_job_step_duration_seconds_bucket"]
    assert (buckets["a", "0.01"], buckets["a", "0.02"]) == (99, 199)


@beside(new_site)
async def test_label_values_are_bounded(site: Site) -> None:
    for number in range(ENDED_JOBS + 5):
        site.submit(f"old-{number}")
        finish(site, f"old-{number}")
    num_ranks = SHOWN_RANKS + 2
    site.submit("wide", num_ranks)
    for step in (10, 20):
        site.step("wide", step, num_ranks, own_s=0.01)
    found = await scrape(site)
    assert len(found["distrain_job_info"]) == ENDED_JOBS + 1
    assert ("old-0", "test") not in found["distrain_job_info"]  # the oldest goes first
    assert set(found["distrain_rank_step_duration_seconds"]) == {
        ("wide", "slowest"), ("wide", "median"), ("wide", "fastest")
    }  # fmt: skip
    assert len(found["distrain_job_phase_seconds_total"]) <= len(PHASES) * (ENDED_JOBS + 1)
    assert len(found["distrain_job_state"]) == len(JobState) * (ENDED_JOBS + 1)
    jobs = ENDED_JOBS + 1
    assert (
        len(found["distrain_job_step_duration_seconds_bucket"]) == (len(STEP_BOUNDS_S) + 1) * jobs
    )
