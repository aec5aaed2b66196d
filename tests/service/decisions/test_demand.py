"""How many workers a cluster should have whose number the service sets."""

import random

import pytest
from service_jobs import NOW_S, a_cluster, a_job, running, stuck

from distrain.service.decisions.admission import admit, workers_wanted
from distrain.service.values import Job, Quota

EMPTY = a_cluster(total=0, free=0)


@pytest.mark.parametrize(
    ("queue", "active", "wanted"),
    [
        ([], [], 0),
        ([a_job(1, num_ranks=3), a_job(2, num_ranks=2)], [], 5),
        ([a_job(1, num_ranks=3)], [running(2, num_ranks=2)], 5),
        ([a_job(1, num_ranks=6), a_job(2, num_ranks=6)], [], 8),  # of which both are used in turn
        ([a_job(1, num_ranks=9)], [], 0),  # they could not run it
        ([a_job(1, num_ranks=9)], [running(2)], 1),
        ([a_job(1, num_ranks=3)], [stuck(2, num_ranks=4)], 7),  # it waits for workers, too
        ([a_job(1)], [running(2, num_ranks=20)], 8),
    ],
)
def test_ranks_that_would_run(queue: list[Job], active: list[Job], wanted: int) -> None:
    assert workers_wanted(queue, active, {}, EMPTY, NOW_S, most=8) == wanted


def test_a_job_that_waits_for_its_quota_wants_no_workers() -> None:
    quotas = {"ads": Quota(max_ranks=4)}
    queue = [a_job(1, num_ranks=3), a_job(2, num_ranks=3)]
    assert workers_wanted(queue, [], quotas, EMPTY, NOW_S, most=8) == 3
    elsewhere = {"ads": 2}
    assert workers_wanted(queue, [], quotas, EMPTY, NOW_S, most=8, elsewhere=elsewhere) == 0


def test_an_elastic_job_wants_all_its_ranks_and_fits_with_its_fewest() -> None:
    job = a_job(1, num_ranks=16)
    assert workers_wanted([job], [], {}, EMPTY, NOW_S, most=8, min_ranks={job.id: 4}) == 8


def test_workers_are_wanted_while_the_scheduler_is_still_silent() -> None:
    silent = a_cluster(epoch=None)
    assert workers_wanted([a_job(1, num_ranks=2)], [], {}, silent, NOW_S, most=8) == 2


def test_with_what_is_wanted_the_next_job_can_always_be_handed_over() -> None:
    rng = random.Random(7)
    for _ in range(300):
        queue = [
            a_job(n, num_ranks=rng.randint(1, 10), priority=rng.randint(0, 2)) for n in range(6)
        ]
        wanted = workers_wanted(queue, [], {}, EMPTY, NOW_S, most=8)
        assert wanted <= 8
        chosen, why = admit(queue, [], {}, a_cluster(total=wanted, free=wanted), NOW_S)
        if any(job.num_ranks <= 8 for job in queue):
            assert chosen
        small = [job for job in queue if job.num_ranks <= 8 and job.id in why]
        assert not any("workers, and job" in why[job.id] for job in small), why
