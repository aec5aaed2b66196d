"""Who is handed over, and that each job that waits is told what it waits for."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from service_jobs import NOW_S, a_cluster, a_job, running, stuck

from distrain.service.decisions.admission import admit, in_order
from distrain.service.decisions.cluster_state import ClusterNow
from distrain.service.values import Intent, Job, Phase, Quota

ELASTIC = a_job(1, num_ranks=8)


@pytest.mark.parametrize(
    ("queue", "active", "cluster", "min_ranks", "chosen", "why"),
    [
        ([a_job(2), a_job(1)], [], a_cluster(), {}, "job-1 job-2", {}),
        # The first that does not fit goes to the coordinator, and the rest stay.
        (
            [a_job(1, num_ranks=3), a_job(2, num_ranks=3), a_job(3)], [], a_cluster(), {},
            "job-1 job-2",
            {"job-3": "behind job-2 (priority 0), which waits for 3 workers of cluster east"},
        ),
        # A higher priority is handed over although nothing is free.
        (
            [a_job(7), a_job(8, priority=5)], [running(1, num_ranks=4), stuck(2)],
            a_cluster(free=0), {}, "job-8", {"job-7": "behind job-8 (priority 5)"},
        ),
        # An elastic job needs only its fewest ranks.
        ([ELASTIC], [], a_cluster(), {}, "", {"job-1": "cluster east has 4 workers"}),
        ([ELASTIC], [], a_cluster(), {"job-1": 2}, "job-1", {}),
        # The project with the fewest ranks goes first, then the owner.
        (
            [a_job(10), a_job(11, owner="bob"), a_job(12, project="search", owner="carol")],
            [running(1), running(2)], a_cluster(total=8, free=6), {}, "job-12 job-11 job-10", {},
        ),
        # Cancelled and handed over jobs are no candidates.
        (
            [a_job(1, intent=Intent.CANCEL), a_job(2, phase=Phase.HANDING_OVER)], [], a_cluster(),
            {}, "", {},
        ),
    ],
)  # fmt: skip
def test_who_is_handed_over_in_which_order(
    queue: list[Job], active: list[Job], cluster: ClusterNow, min_ranks: dict[str, int],
    chosen: str, why: dict[str, str],
) -> None:  # fmt: skip
    found, told = admit(queue, active, {}, cluster, NOW_S, min_ranks=min_ranks)
    assert " ".join(job.id for job in found) == chosen
    assert {job_id: told[job_id][: len(words)] for job_id, words in why.items()} == why
    assert told.keys() == why.keys()


def test_a_quota_names_the_jobs_that_use_it_and_when_there_is_room() -> None:
    active = [
        running(1, num_ranks=6, progress={"eta_s": 600.0}),
        running(2, num_ranks=2),
    ]
    queue = [a_job(3, num_ranks=2), a_job(4), a_job(5, project="search")]
    quotas = {"ads": Quota(max_ranks=8)}
    chosen, why = admit(queue, active, quotas, a_cluster(total=16, free=8), NOW_S)
    assert [job.id for job in chosen] == ["job-5"]
    for words in ("8 of 8 ranks", "job-1, job-2", "2027-01-15T08:10:00Z"):
        assert words in why["job-3"]
    assert why["job-4"].startswith("behind job-3")


def test_ranks_on_other_clusters_count() -> None:
    quota = {"ads": Quota(max_ranks=4)}
    _, why = admit([a_job(1)], [], quota, a_cluster(), NOW_S, elsewhere={"ads": 4})
    assert "4 of 4 ranks in use by its jobs on other clusters (4)" in why["job-1"]


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        (
            a_cluster(epoch=None, since_s=NOW_S, trouble="connection refused"),
            "cluster east has not been reachable since 2027-01-15T08:00:00Z: connection refused",
        ),
        (
            a_cluster(epoch=None, since_s=NOW_S, starting=True),
            "cluster east is starting since 2027-01-15T08:00:00Z",
        ),
        (a_cluster(epoch=None), "cluster east has not been reachable yet"),
        (
            a_cluster(total=1, free=1),
            "cluster east has 1 worker, and the job needs 2: it cannot start until 1 more worker "
            "joins; or lower resources.num_ranks",
        ),
    ],
)
def test_why_it_waits_for_its_cluster(cluster: ClusterNow, words: str) -> None:
    assert admit([a_job(1, num_ranks=2)], [], {}, cluster, NOW_S) == ([], {"job-1": words})


def _random_case(rng: random.Random) -> tuple[list[Job], list[Job], dict[str, Quota], ClusterNow]:
    total = rng.choice([0, 1, 4, 16])
    cluster = a_cluster(total=total, free=total)
    if rng.random() < 0.1:
        cluster = replace(cluster, epoch=None, starting=rng.random() < 0.5)
    jobs = [
        a_job(
            number,
            project=rng.choice(["ads", "search", "feed"]),
            owner=rng.choice(["alice", "bob", "carol"]),
            priority=rng.choice([0, 0, 5, 10]),
            num_ranks=rng.choice([1, 1, 2, 4, 8, 32]),
        )
        for number in range(1, rng.randint(2, 30))
    ]
    active: list[Job] = []
    free = total
    for job in list(jobs):
        if rng.random() < 0.3:
            jobs.remove(job)
            starts = rng.random() < 0.7 and job.num_ranks <= free
            free -= job.num_ranks if starts else 0
            why = "" if starts or rng.random() < 0.5 else "no workers"
            state, attempt = ("running", 1) if starts else ("pending", 0)
            eta = {"eta_s": rng.uniform(1, 9e3)} if rng.random() < 0.5 else {}
            phase = rng.choice([Phase.HANDED_OVER, Phase.HANDED_OVER, Phase.HANDING_OVER])
            active.append(
                replace(
                    job, phase=phase, state=state, attempt=attempt, why_pending=why, progress=eta
                )
            )
    workers = replace(cluster.workers, free=free)
    quotas = {name: Quota(max_ranks=rng.choice([None, 2, 8])) for name in ("ads", "search")}
    return jobs, active, quotas, replace(cluster, workers=workers)


def test_1000_random_queues() -> None:
    rng = random.Random(6)
    waited: Counter[str] = Counter()
    for _ in range(1000):
        queue, active, quotas, cluster = _random_case(rng)
        chosen, why = admit(queue, active, quotas, cluster, NOW_S)
        assert {job.id for job in chosen}.isdisjoint(why)
        assert {job.id for job in chosen} | set(why) == {job.id for job in queue}
        _check_quotas(chosen, active, quotas)
        _check_priorities(chosen, active, cluster)
        ids = {job.id for job in (*active, *queue)}
        for job_id, words in why.items():
            waited[_kind(words, job_id, ids)] += 1
        _check_work_goes_on(queue, chosen, active, quotas, cluster)
    assert len(waited) == 6, waited
    assert min(waited.values()) > 10, waited


def _check_quotas(chosen: list[Job], active: list[Job], quotas: dict[str, Quota]) -> None:
    before = Counter[str]()
    for job in active:
        before[job.project] += job.num_ranks
    after = before.copy()
    for job in chosen:
        after[job.project] += job.num_ranks
    for project, quota in quotas.items():
        if quota.max_ranks is not None:
            assert after[project] <= max(quota.max_ranks, before[project])


def _check_priorities(chosen: list[Job], active: list[Job], cluster: ClusterNow) -> None:
    assert not chosen or cluster.answers
    assert all(job.num_ranks <= cluster.workers.usable for job in chosen)
    order = [job.priority for job in chosen]
    assert order == sorted(order, reverse=True)
    stuck = [job for job in active if job.phase is Phase.HANDED_OVER and job.why_pending]
    highest = max((job.priority for job in stuck), default=None)
    assert highest is None or all(job.priority > highest for job in chosen)


def _check_work_goes_on(
    queue: list[Job],
    chosen: list[Job],
    active: list[Job],
    quotas: dict[str, Quota],
    cluster: ClusterNow,
) -> None:
    """Nobody waits while nothing is at the coordinator, and quota and cluster have space."""
    if not cluster.answers or any(job.state == "pending" for job in active):
        return
    used = Counter[str]()
    for job in active:
        used[job.project] += job.num_ranks
    for job in queue:
        most = quotas.get(job.project, Quota()).max_ranks
        room = most is None or used[job.project] + job.num_ranks <= most
        if room and job.num_ranks <= cluster.workers.usable:
            assert chosen, "the queue stands still"


def _kind(words: str, job_id: str, ids: set[str]) -> str:
    if words.startswith("cluster east"):
        return "starting" if "starting" in words else "small" if "needs" in words else "reachable"
    if words.startswith("behind "):
        blocker = words.split()[1].rstrip(",")
        assert blocker in ids
        assert blocker != job_id
        return "behind"
    assert "quota of project" in words
    if "in use by" in words:
        assert any(other in words for other in ids - {job_id})
        return "quota"
    return "quota too small"


def test_the_queue_is_shown_in_the_order_in_which_it_is_handed_over() -> None:
    active = [running(1, project="ads", num_ranks=4)]
    queue = [
        a_job(2, project="ads"),
        a_job(3, project="web", owner="bob"),
        a_job(4, project="web", owner="eve"),
        a_job(5, project="ads", priority=1),
    ]
    for elsewhere, order in ({}, [5, 3, 4, 2]), ({"web": 9}, [5, 2, 3, 4]):
        chosen, _ = admit(queue, active, {}, a_cluster(100, 100), NOW_S, elsewhere=elsewhere)
        assert in_order(queue, active, elsewhere) == chosen
        assert [job.seq for job in chosen] == order
    # The ranks that run count, too.
    assert [job.seq for job in in_order(queue[:2], active, {})] == [3, 2]
    assert [job.seq for job in in_order(queue[:2], [], {})] == [2, 3]
