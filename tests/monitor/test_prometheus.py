"""The jobs on `/metrics`: stable names, right values, few label values."""

import asyncio
from collections.abc import Iterable

import pytest
from monitored import Site, metrics_state, on_site
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_names import NAMES

from distrain.coordinator.states import JobState
from distrain.events import PHASES, EvaluationDone, RankExited, RankFailed, RankFinished
from distrain.monitor.prometheus import ENDED_JOBS
from distrain.monitor.shown_ranks import SHOWN_RANKS
from distrain.monitor.step_times import BOUNDS_S

Samples = dict[str, dict[tuple[str, ...], float]]


async def scrape(site: Site) -> Samples:
    """Values by name, then by the labels' values in their names' order."""
    answer = await site.get("/metrics")
    assert answer.code == 200
    return samples_of(text_string_to_metric_families(answer.body.decode()))


def samples_of(families: Iterable[Metric]) -> Samples:
    found: Samples = {}
    for family in families:
        for sample in family.samples:
            if sample.name.startswith("distrain_"):
                labels = tuple(value for _, value in sorted(sample.labels.items()))
                assert labels not in found.setdefault(sample.name, {}), "twice"
                found[sample.name][labels] = sample.value
                assert set(sample.labels) == NAMES[sample.name]
    return found


def finish(site: Site, job_id: str) -> None:
    for rank in range(2):
        site.tell(job_id, RankFinished(rank, 10, 100, 1.0, {}))
        site.tell(job_id, RankExited(rank, 0, stopped=False))


def test_names_and_values_of_a_job_that_runs_and_one_that_ended() -> None:
    async def story(site: Site) -> None:
        site.submit("ended")
        site.step("ended", 10)
        finish(site, "ended")
        site.submit("a")
        for step in (10, 20):
            site.step("a", step)
        for rank in range(2):
            site.tell("a", EvaluationDone(rank, 0, 20, 2.0, metrics_state()))
        found = await scrape(site)
        assert set(found) == set(NAMES)
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

    on_site(story)


def test_a_job_that_failed_says_why() -> None:
    async def story(site: Site) -> None:
        site.submit("a", restart={"max_rank_failures": 0})
        site.tell("a", RankFailed(0, "NonFiniteLoss", "the loss became nan at step 3", step=3))
        for rank in range(2):
            site.tell("a", RankExited(rank, 1, stopped=False))
        while not site.coordinator.machine.jobs["a"].state.is_final:
            await asyncio.sleep(0.01)  # it waits for other ranks' accounts
        found = await scrape(site)
        (labels,) = found["distrain_job_ended_timestamp_seconds"]
        assert labels == ("a", "NonFiniteLoss", "failed")

    on_site(story)


def test_label_values_are_bounded() -> None:
    async def story(site: Site) -> None:
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
        assert len(found["distrain_job_step_duration_seconds_bucket"]) == (len(BOUNDS_S) + 1) * jobs

    on_site(story)
