"""A cluster's workers come when jobs need them, and go when all are idle."""

from pathlib import Path

import pytest
from fake_kube import FakeKube
from made_certificates import write_certificate
from reconciled import service_of
from told_scheduler import ToldScheduler
from waiting import until

from distrain.errors import ClusterError
from distrain.service.clusters.kubernetes import KubernetesLauncher
from distrain.service.clusters.launcher import LauncherState
from distrain.service.reconcile.cluster_connection import (
    ASK_AGAIN_S,
    LOOK_AT_IDLE_S,
    Scaling,
)
from distrain.service.settings import ClusterProfile


class Place:
    """Scales without delay, counts, and has a clock that only the test moves."""

    def __init__(self, least=0, most=8):
        self.min_workers, self.max_workers = least, most
        self.replicas, self.grown, self.shrinks, self.trouble = 0, [], 0, ""
        self.now_s = 1000.0

    def grow(self, num_workers):
        self.grown.append(num_workers)
        if self.trouble:
            raise ClusterError(self.trouble)
        self.replicas = max(self.replicas, num_workers)

    def shrink(self):
        self.shrinks += 1
        self.replicas = min(self.replicas, self.min_workers)

    def state(self):
        return LauncherState("starting", f"{self.replicas} wanted")

    def scaling(self, idle_stop_s=60.0):
        return Scaling("gpu", self, idle_stop_s, lambda: self.now_s)


def test_workers_are_asked_for_once_and_again_when_they_do_not_come():
    place = Place()
    scaling = place.scaling()
    for wanted, there in ((2, 0), (2, 0), (4, 1), (4, 4), (4, 4)):
        scaling.look(wanted, there=there, in_use=0)
    assert (place.grown, scaling.words) == ([2, 4], "")
    scaling.look(4, there=3, in_use=3)
    place.now_s += ASK_AGAIN_S
    scaling.look(4, there=3, in_use=3)
    assert (place.grown, scaling.words) == ([2, 4, 4], "4 wanted")
    few = Place(least=2)
    few.scaling().look(0, there=0, in_use=0)
    assert few.grown == [2], "the least workers are there from the start"


def test_trouble_is_told_and_not_repeated_with_every_look():
    place = Place()
    place.trouble = "forbidden"
    scaling = place.scaling()
    for _ in range(3):
        scaling.look(2, there=0, in_use=0)
    assert (place.grown, scaling.words) == ([2], "forbidden")
    place.trouble = ""
    place.now_s += ASK_AGAIN_S
    scaling.look(2, there=0, in_use=0)
    assert scaling.words == "2 wanted"


def test_workers_go_only_when_all_have_been_idle_for_long():
    place = Place(least=1)
    scaling = place.scaling()
    scaling.look(4, there=4, in_use=4)
    place.replicas = 4
    for wanted, in_use in ((0, 0), (1, 0), (0, 1), (0, None), (0, 0)):
        place.now_s += 50
        scaling.look(wanted, there=None if in_use is None else 4, in_use=in_use)
    assert place.shrinks == 0
    place.now_s += 60
    scaling.look(0, there=4, in_use=0)
    assert (place.shrinks, place.replicas) == (1, 1)
    place.grown.clear()
    scaling.look(3, there=1, in_use=0)
    assert place.grown == [3]


def test_workers_that_came_otherwise_are_told_to_go_again_and_without_a_limit_all_stay():
    place = Place()
    place.replicas = 2
    scaling = place.scaling(0.0)
    scaling.look(0, there=2, in_use=0)
    place.now_s += LOOK_AT_IDLE_S
    scaling.look(0, there=2, in_use=0)
    assert place.shrinks == 2
    scaling = place.scaling(None)
    for _ in range(3):
        scaling.look(0, there=4, in_use=0)
        place.now_s += 1e6
    assert place.shrinks == 2


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return write_certificate(tmp_path_factory.mktemp("certificate"), "kube", 2)[:2]


@pytest.fixture
def site(tmp_path: Path, certificate, east: ToldScheduler, told_at_once, monkeypatch):
    """A scheduler whose workers are those of a workload, a service, and its reconciler."""
    east.set_workers(0)
    with FakeKube(tmp_path, certificate) as kube:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(kube.port))
        kube.workers()
        kube.changed = east.set_workers
        profile = ClusterProfile(
            kind="kubernetes",
            url=east.url,
            run_root=tmp_path / "runs",
            idle_stop_s=0.0,
            kubernetes={"workload": "statefulset/workers", "max_workers": 4},
        )
        launcher = KubernetesLauncher("east", profile, kube.account)
        with service_of(tmp_path, east=profile) as service:
            yield kube, east, service, lambda: service.reconciler(launcher=lambda name: launcher)


@pytest.mark.slow
def test_jobs_bring_workers_a_wider_one_more_and_idleness_none(site):
    kube, scheduler, service, reconciler = site
    service.submit("narrow", num_ranks=1)
    with reconciler():
        service.comes_to("running", "narrow")
        assert kube.workers().replicas == 1
        service.submit("wide", num_ranks=3)
        service.submit("giant", num_ranks=5)
        service.comes_to("running", "wide")
        assert kube.workers().replicas == 4
        until(lambda: "4 workers at most" in service.job("giant").why_pending)
        scheduler.end("wide")
        service.ends("wide")
        assert kube.workers().replicas == 4  # one still trains
        scheduler.end("narrow")
        until(lambda: kube.workers().replicas == scheduler.num_workers == 0)  # giant has no part
        service.submit("late", num_ranks=2)
        service.comes_to("running", "late")
    assert scheduler.started == {(job, 1): 1 for job in ("narrow", "wide", "late")}


@pytest.mark.parametrize("trouble", ["may not patch", "does not answer"])
def test_why_workers_do_not_come_is_told_and_keeps_no_job_from_being_followed(site, trouble):
    kube, scheduler, service, reconciler = site
    scheduler.set_workers(1)
    service.submit("first")
    with reconciler():
        service.comes_to("running", "first")
        kube.rules.remove(("patch", "apps", "statefulsets/scale"))
        kube.faults.extend(["close"] * (10_000 if trouble == "does not answer" else 0))
        service.submit("second", num_ranks=2)
        until(lambda: trouble in service.job("second").why_pending)
        until(lambda: trouble in service.store.clusters()[0].state["message"])
        assert service.store.clusters()[0].state["wanted_workers"] == 3
        scheduler.end("first")
        service.ends("first")
