"""A cluster's workers come when jobs need them, and go when all are idle."""

import threading
import time
from contextlib import contextmanager

import pytest
from fake_kube import FakeKube, make_certificate
from fake_scheduler import FakeScheduler
from served_jobs import SPEC

from distrain.errors import ClusterError
from distrain.service.clusters import kube_api
from distrain.service.clusters.kubernetes import KubernetesLauncher
from distrain.service.clusters.launcher import LauncherState
from distrain.service.decide import passes
from distrain.service.reconcile.contact import AFTER_TROUBLE_S, ASK_AGAIN_S, HOLD_S, Scaling
from distrain.service.reconcile.reconciler import Reconciler
from distrain.service.settings import ClusterProfile, Settings
from distrain.service.store import migrate, open_store
from distrain.service.values import NewJob, Phase, Quota, RequestKey


class Place:
    """Scales without delay, and counts."""

    def __init__(self, least=0, most=8):
        self.min_workers, self.max_workers = least, most
        self.replicas, self.starts, self.shrinks, self.trouble = 0, [], 0, ""

    def start(self, num_workers=None):
        self.starts.append(num_workers)
        if self.trouble:
            raise ClusterError(self.trouble)
        self.replicas = max(self.replicas, num_workers)

    def shrink(self):
        self.shrinks += 1
        before, self.replicas = self.replicas, min(self.replicas, self.min_workers)
        return before > self.replicas

    def state(self):
        return LauncherState("starting", f"{self.replicas} wanted")


class Clock:
    now_s = 1000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


def test_workers_are_asked_for_once_and_again_when_they_do_not_come(clock):
    place = Place()
    scaling = Scaling("gpu", place, 60.0, clock)
    for wanted, there in ((2, 0), (2, 0), (4, 1), (4, 4), (4, 4)):
        scaling.look(wanted, there=there, in_use=0)
    assert place.starts == [2, 4]
    assert scaling.words == ""
    scaling.look(4, there=3, in_use=3)
    clock.now_s += ASK_AGAIN_S
    scaling.look(4, there=3, in_use=3)
    assert place.starts == [2, 4, 4]
    assert scaling.words == "4 wanted"


def test_trouble_is_told_and_not_repeated_with_every_look(clock):
    place = Place()
    place.trouble = "forbidden"
    scaling = Scaling("gpu", place, 60.0, clock)
    for _ in range(3):
        scaling.look(2, there=0, in_use=0)
    assert (place.starts, scaling.words) == ([2], "forbidden")
    place.trouble = ""
    clock.now_s += AFTER_TROUBLE_S
    scaling.look(2, there=0, in_use=0)
    assert scaling.words == "2 wanted"


def test_workers_go_only_when_all_have_been_idle_for_long(clock):
    place = Place(least=1)
    scaling = Scaling("gpu", place, 60.0, clock)
    scaling.look(4, there=4, in_use=4)
    place.replicas = 4
    for wanted, in_use in ((0, 0), (1, 0), (0, 1), (0, None), (0, 0)):
        clock.now_s += 50
        scaling.look(wanted, there=None if in_use is None else 4, in_use=in_use)
    assert place.shrinks == 0
    clock.now_s += 60
    scaling.look(0, there=4, in_use=0)
    assert (place.shrinks, place.replicas) == (1, 1)
    assert scaling.hold  # a job now would start on workers that end
    place.starts.clear()
    scaling.look(3, there=3, in_use=0)
    assert place.starts == []
    scaling.look(3, there=1, in_use=0)
    assert (scaling.hold, place.starts) == ("", [3])


def test_workers_that_never_end_hold_jobs_up_for_a_bounded_time(clock):
    place = Place()
    place.replicas = 2
    scaling = Scaling("gpu", place, 0.0, clock)
    scaling.look(0, there=2, in_use=0)
    assert scaling.hold
    clock.now_s += HOLD_S
    scaling.look(0, there=2, in_use=0)
    assert not scaling.hold  # those are another's: there was nothing to end any more
    assert place.shrinks == 2


def test_without_a_time_for_idleness_workers_stay(clock):
    place = Place()
    scaling = Scaling("gpu", place, None, clock)
    for _ in range(3):
        scaling.look(0, there=4, in_use=0)
        clock.now_s += 1e6
    assert place.shrinks == 0


def test_the_least_workers_are_there_from_the_start(clock):
    place = Place(least=2)
    Scaling("gpu", place, 60.0, clock).look(0, there=0, in_use=0)
    assert place.starts == [2]


def until(holds):
    end_s = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end_s, "it never holds"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def site(tmp_path, certificate, monkeypatch):
    """A scheduler whose workers are those of a workload, and a database."""
    monkeypatch.setattr(kube_api, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(kube_api, "WHOLE_S", 0.5)
    monkeypatch.setattr(passes, "WHY_EVERY_S", 0.0)
    with FakeKube(tmp_path, certificate) as kube, FakeScheduler(num_workers=0) as scheduler:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(kube.port))
        kube.workers()
        kube.changed = lambda replicas: setattr(scheduler, "num_workers", replicas)
        profile = ClusterProfile(
            kind="kubernetes",
            url=scheduler.url,
            run_root=tmp_path / "runs",
            idle_stop_s=1.0,
            kubernetes={"workload": "statefulset/workers", "max_workers": 4},
        )
        settings = Settings(data_dir=tmp_path / "data", clusters={"gpu": profile})
        settings.data_dir.mkdir()
        migrate(settings)
        with open_store(settings) as store:
            store.put_project("default", Quota())
            launcher = KubernetesLauncher("gpu", profile, kube.account)
            yield kube, scheduler, settings, store, launcher


@contextmanager
def reconciler(settings, store, launcher):
    one, stop = Reconciler(settings, store, launcher=lambda name: launcher), threading.Event()
    thread = threading.Thread(target=one.run, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def submit(settings, store, job_id, num_ranks):
    run_dir = str(settings.run_root("gpu") / "default" / job_id)
    spec = {**SPEC, "resources": {"num_ranks": num_ranks}}
    new = NewJob(job_id, "default", "alice", "ctr", "gpu", 0, num_ranks, run_dir, spec)
    store.submit(new, RequestKey("alice", job_id, "0" * 64))


def test_jobs_bring_workers_a_wider_one_more_and_idleness_none(site):
    kube, scheduler, settings, store, launcher = site
    workers = kube.workers()
    with reconciler(settings, store, launcher):
        submit(settings, store, "narrow", 1)
        until(lambda: store.job("narrow").state == "running")
        assert workers.replicas == 1
        submit(settings, store, "wide", 3)
        submit(settings, store, "giant", 5)
        until(lambda: store.job("wide").state == "running")
        assert workers.replicas == 4
        until(lambda: "at most" in store.job("giant").why_pending)
        said = store.job("giant").why_pending
        assert said == "cluster gpu gets 4 workers at most, and job giant needs 5"
        scheduler.end("wide")
        until(lambda: store.job("wide").phase is Phase.FINAL)
        assert workers.replicas == 4  # one still trains
        scheduler.end("narrow")
        until(lambda: workers.replicas == 0)  # nobody waits for the giant one
        until(lambda: scheduler.num_workers == 0)
        submit(settings, store, "late", 2)
        until(lambda: store.job("late").state == "running")
    assert scheduler.started == {("narrow", 1): 1, ("wide", 1): 1, ("late", 1): 1}


def test_why_workers_do_not_come_is_told_to_the_jobs_owner(site):
    kube, _, settings, store, launcher = site
    kube.rules.remove(("patch", "apps", "statefulsets/scale"))
    with reconciler(settings, store, launcher):
        submit(settings, store, "narrow", 2)
        until(lambda: "may not patch" in store.job("narrow").why_pending)
        until(lambda: "may not patch" in store.clusters()[0].state["message"])
        assert store.clusters()[0].state["wanted_workers"] == 2


def test_a_kubernetes_api_that_hangs_up_keeps_no_job_from_being_followed(site):
    kube, scheduler, settings, store, launcher = site
    scheduler.num_workers = 1
    kube.faults.extend(["close"] * 10_000)
    with reconciler(settings, store, launcher):
        submit(settings, store, "first", 1)
        until(lambda: store.job("first").state == "running")
        submit(settings, store, "second", 2)
        until(lambda: "does not answer" in store.job("second").why_pending)
        scheduler.end("first")
        until(lambda: store.job("first").phase is Phase.FINAL)
