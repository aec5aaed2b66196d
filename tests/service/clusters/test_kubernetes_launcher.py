"""Workers scaled in Kubernetes, against an API over HTTPS as strict as the real one."""

import pickle
import threading

import pytest
from fake_kube import FakeKube, Workload, make_certificate

from distrain.errors import ClusterError
from distrain.service.clusters import KubeRefused, Scalable, kube_api
from distrain.service.clusters.kubernetes import KubernetesLauncher
from distrain.service.process.checks import check_service
from distrain.service.settings import ClusterProfile, Settings


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def kube(tmp_path, certificate, monkeypatch):
    monkeypatch.setattr(kube_api, "_FIRST_PAUSE_S", 0.01)
    with FakeKube(tmp_path, certificate) as server:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
        server.workers()
        yield server


def launcher_of(kube, tmp_path, *, of_profile=(), **section):
    section = {"workload": "statefulset/workers", "max_workers": 8, **section}
    profile = ClusterProfile(
        kind="kubernetes",
        url="http://127.0.0.1:1",
        run_root=tmp_path,
        kubernetes=section,
        **dict(of_profile),
    )
    return KubernetesLauncher("gpu", profile, kube.account)


def test_the_workload_grows_to_what_is_wanted_within_the_bounds_and_never_shrinks(kube, tmp_path):
    launcher, workers = launcher_of(kube, tmp_path, min_workers=1), kube.workers()
    assert isinstance(launcher, Scalable)
    seen = []
    for wanted in (3, 2, 3, 100, None):
        launcher.start(wanted)
        seen.append(workers.replicas)
    assert seen == [3, 3, 3, 8, 8]
    assert [method for method, _, _ in kube.asked].count("PATCH") == 2
    assert launcher.shrink()
    assert workers.replicas == 1
    assert not launcher.shrink()
    workers.replicas = 20  # by hand, beyond the bounds: ranks may be there
    launcher.start(2)
    assert workers.replicas == 20


def test_the_scheduler_is_found_where_the_profile_says_without_the_kubernetes_api(kube, tmp_path):
    (tmp_path / "scheduler.token").write_text("secret\n")
    token_file = {"token_file": tmp_path / "scheduler.token"}
    found = launcher_of(kube, tmp_path, of_profile=token_file).find()
    assert (found.url, found.token) == ("http://127.0.0.1:1", "secret")
    assert kube.asked == []


@pytest.mark.parametrize(
    ("named", "group", "plural"),
    [
        ("deployment/workers", "apps", "deployments"),
        ("daskcluster/workers", "kubernetes.dask.org", "daskclusters"),
        ("daskworkergroup/workers", "kubernetes.dask.org", "daskworkergroups"),
        ("rayclusters.v1.ray.io/workers", "ray.io", "rayclusters"),
    ],
)
def test_any_workload_with_a_scale(kube, tmp_path, named, group, plural):
    workload = kube.workers(group, plural)
    kube.rules = [(verb, group, f"{plural}/scale") for verb in ("get", "patch")]
    launcher = launcher_of(kube, tmp_path, workload=named)
    launcher.start(4)
    assert workload.replicas == 4
    assert launcher.state().detail == f"4 of 4 workers of {named} are there"
    launcher.stop()
    assert workload.replicas == 0


def test_what_another_wrote_in_between_is_looked_at_again(kube, tmp_path):
    launcher, workers = launcher_of(kube, tmp_path), kube.workers()

    def by_another():
        workers.replicas, workers.version = 6, workers.version + 1

    kube.faults.extend([None, by_another])
    launcher.start(4)
    assert workers.replicas == 6
    assert [status for *_, status in kube.asked] == [200, 409, 200]


def test_a_workload_that_always_changes_is_given_up(kube, tmp_path):
    launcher, workers = launcher_of(kube, tmp_path), kube.workers()

    def touch():
        workers.version += 1

    kube.faults.extend([None, touch] * 5)
    with pytest.raises(KubeRefused, match="has been modified"):
        launcher.start(4)
    assert workers.replicas == 0


def test_two_that_grow_and_one_that_shrinks_lose_nothing(kube, tmp_path):
    launcher, workers = launcher_of(kube, tmp_path), kube.workers()
    threads = [threading.Thread(target=launcher.start, args=(n,)) for n in (3, 5, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert workers.replicas == 7


def test_a_shrink_whose_answer_was_lost_is_told_as_made(kube, tmp_path):
    launcher, workers = launcher_of(kube, tmp_path), kube.workers()
    workers.replicas = 4
    kube.faults.extend([None, "lose"])
    assert launcher.shrink()
    assert workers.replicas == 0
    assert [status for method, _, status in kube.asked if method == "PATCH"] == [200, 409]


@pytest.mark.parametrize("fault", ["close", "lose", 503])
def test_a_shrink_that_may_have_been_made_is_told_as_made(kube, tmp_path, monkeypatch, fault):
    monkeypatch.setattr(kube_api, "WHOLE_S", 0.3)
    launcher = launcher_of(kube, tmp_path)
    kube.workers().replicas = 4
    kube.faults.extend([None, *[fault] * 1000])
    assert launcher.shrink()
    kube.faults.clear()
    kube.workers().replicas = 4
    kube.faults.extend([403])
    with pytest.raises(KubeRefused):
        launcher.shrink()


@pytest.mark.parametrize("fault", ["close", "lose", 503, 500, 429])
def test_a_call_that_fails_for_now_is_made_again(kube, tmp_path, fault):
    kube.faults.extend([fault, None, fault])
    kube.retry_after_s = 0
    launcher_of(kube, tmp_path).start(4)
    assert kube.workers().replicas == 4


def test_a_server_that_stays_away_is_given_up_within_seconds(kube, tmp_path, monkeypatch):
    monkeypatch.setattr(kube_api, "WHOLE_S", 0.3)
    kube.faults.extend([503] * 1000)
    with pytest.raises(KubeRefused, match="cannot answer now") as refused:
        launcher_of(kube, tmp_path).start(4)
    assert refused.value.status == 503
    kube.faults.clear()
    kube.retry_after_s = 3600
    kube.faults.append(429)
    with pytest.raises(KubeRefused, match="cannot answer now"):
        launcher_of(kube, tmp_path).start(4)
    kube.faults.extend(["close"] * 1000)
    with pytest.raises(ClusterError, match="does not answer"):
        launcher_of(kube, tmp_path).start(4)


def test_a_slow_server_is_given_up(kube, tmp_path, monkeypatch):
    monkeypatch.setattr(kube_api, "WHOLE_S", 0.3)
    kube.faults.append(2.0)
    with pytest.raises(ClusterError, match="does not answer"):
        launcher_of(kube, tmp_path).start(4)


def test_the_token_is_read_again_when_it_has_changed(kube, tmp_path):
    launcher = launcher_of(kube, tmp_path)
    launcher.start(1)
    kube.rotate()
    launcher.start(2)
    kube.faults.append(kube.rotate)  # between the reading and the answer
    launcher.start(3)
    assert kube.workers().replicas == 3
    assert [status for *_, status in kube.asked].count(401) == 1


def test_a_token_that_is_not_taken(kube, tmp_path):
    (kube.account / "token").write_text("old")
    with pytest.raises(KubeRefused, match="does not accept the token") as refused:
        launcher_of(kube, tmp_path).state()
    assert refused.value.status == 401
    assert "old" not in str(refused.value)


@pytest.mark.parametrize("verb", ["get", "patch"])
def test_what_the_role_lacks_is_named(kube, tmp_path, verb):
    kube.rules = [rule for rule in kube.rules if rule[0] != verb]
    with pytest.raises(KubeRefused) as refused:
        launcher_of(kube, tmp_path).start(4)
    text = str(refused.value)
    assert f"may not {verb} the scale of statefulset/workers" in text
    assert "verbs get and patch on statefulsets/scale of the API group apps" in text
    assert "resource name workers" in text
    assert refused.value.exit_code == 69
    assert str(pickle.loads(pickle.dumps(refused.value))) == text


def test_a_workload_that_is_not_there(kube, tmp_path):
    with pytest.raises(KubeRefused) as refused:
        launcher_of(kube, tmp_path, workload="statefulset/none").start(1)
    assert "no statefulset/none that can be scaled in the namespace ctr" in str(refused.value)
    assert "kubectl -n ctr get statefulsets" in str(refused.value)


def test_a_place_that_is_no_kubernetes(kube, tmp_path, monkeypatch):
    monkeypatch.setattr(kube, "answer", lambda *_: (404, {"detail": "Not Found"}))
    with pytest.raises(ClusterError, match="no Kubernetes API: it answers 404"):
        launcher_of(kube, tmp_path).state()


def outside(kube, tmp_path, certificate, **changes):
    section = {
        "api_url": f"https://127.0.0.1:{kube.port}",
        "token_file": kube.account / "token",
        "ca_file": certificate[0],
        "namespace": "ctr",
        **changes,
    }
    return launcher_of(kube, tmp_path, **section)


def test_an_api_that_is_named(kube, tmp_path, certificate, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    outside(kube, tmp_path, certificate).start(2)
    assert kube.workers().replicas == 2
    with pytest.raises(ClusterError, match="no pod of Kubernetes"):
        launcher_of(kube, tmp_path).state()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"ca_file": None}, "TLS with the Kubernetes API failed"),
        ({"ca_file": "/no/ca.crt"}, "authority cannot be used"),
        ({"token_file": "/no/token"}, "cannot read the token"),
        ({"api_url": "https://kube.invalid"}, "cannot be looked up"),
    ],
)
def test_what_is_wrong_with_the_way_there(kube, tmp_path, certificate, monkeypatch, changes, told):
    monkeypatch.setattr(kube_api, "WHOLE_S", 0.3)
    with pytest.raises(ClusterError, match=told) as failed:
        outside(kube, tmp_path, certificate, **changes).state()
    assert failed.value.hint


def test_readiness_is_told_where_it_may_be_seen(kube, tmp_path):
    launcher, workers = launcher_of(kube, tmp_path), kube.workers()
    state = launcher.state()
    assert (state.phase, state.detail) == ("absent", "statefulset/workers is scaled to 0")
    workers.replicas, workers.ready = 4, 3
    assert launcher.state().phase == "running"  # all are there; whether they are ready is hidden
    kube.rules.append(("get", "apps", "statefulsets"))
    state = launcher.state()
    assert state.phase == "starting"
    assert state.detail == "3 of 4 workers of statefulset/workers are ready"
    workers.ready = 4
    assert launcher.state().phase == "running"


def pod(name, phase="Pending", *, app="workers", **status):
    metadata = {"name": name, "labels": {"app": app}}
    return {"metadata": metadata, "status": {"phase": phase, **status}}


UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
}
NO_IMAGE = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}


def test_why_pods_wait_is_told_where_it_may_be_seen(kube, tmp_path):
    workload = Workload(replicas=4, ready=1)
    kube.workloads[("apps", "statefulsets", "workers")] = workload
    kube.rules += [("get", "apps", "statefulsets"), ("list", "", "pods")]
    launcher = launcher_of(kube, tmp_path)
    few = "1 of 4 workers of statefulset/workers is ready"
    assert launcher.state().detail == f"{few}; no pod says why: look at the events of the workload"
    kube.pods = [
        pod("a", app="other", conditions=[UNSCHEDULABLE]),
        pod("w-0", "Running"),
        pod("w-1", conditions=[UNSCHEDULABLE]),
        pod("w-2", containerStatuses=[NO_IMAGE]),
    ]
    why = "pod w-1: Unschedulable: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    assert launcher.state().detail == f"{few}; {why} (and 1 more pods wait)"
    crashing = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    kube.pods = [pod("w-0", "Running"), pod("w-1", "Running", containerStatuses=[crashing])]
    assert launcher.state().detail == f"{few}; pod w-1: CrashLoopBackOff"
    workload.selector = ""
    assert launcher.state().detail == few


def test_a_check_changes_nothing(kube, tmp_path):
    kube.workers().replicas = 3
    launcher_of(kube, tmp_path).check()
    assert (kube.workers().replicas, kube.workers().version) == (3, 1)
    kube.rules.remove(("patch", "apps", "statefulsets/scale"))
    with pytest.raises(KubeRefused, match="may not patch"):
        launcher_of(kube, tmp_path).check()


def test_the_services_check_tries_the_role(kube, tmp_path, certificate):
    section = {
        "workload": "statefulset/workers",
        "max_workers": 4,
        "api_url": f"https://127.0.0.1:{kube.port}",
        "token_file": kube.account / "token",
        "ca_file": certificate[0],
        "namespace": "ctr",
    }
    profile = {"kind": "kubernetes", "url": "http://127.0.0.1:1", "run_root": tmp_path}
    clusters = {"gpu": {**profile, "kubernetes": section}}
    settings = Settings(data_dir=tmp_path / "data", clusters=clusters)

    def checked():
        return next(c for c in check_service(settings) if c.name == "clusters.gpu.kubernetes")

    assert (checked().verdict, checked().detail) == ("ok", "statefulset/workers is scaled to 0")
    kube.rules.remove(("patch", "apps", "statefulsets/scale"))
    assert checked().verdict == "fail"
    assert "get and patch on statefulsets/scale" in checked().mend
