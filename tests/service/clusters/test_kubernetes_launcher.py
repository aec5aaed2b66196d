"""Workers scaled in Kubernetes, against an API over HTTPS as strict as the real one."""

import pickle

import pytest
from fake_kube import FakeKube, Workload
from made_certificates import write_certificate

from distrain.errors import ClusterError
from distrain.service.clusters.kube_api import KubeRefused
from distrain.service.clusters.kubernetes import KubernetesLauncher
from distrain.service.clusters.launcher import Scalable
from distrain.service.process.checks import check_service
from distrain.service.settings import ClusterProfile, Settings


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return write_certificate(tmp_path_factory.mktemp("certificate"), "kube", 2)[:2]


@pytest.fixture
def kube(tmp_path, certificate, monkeypatch):
    with FakeKube(tmp_path, certificate) as server:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
        server.workers()
        yield server


def launcher_of(kube, tmp_path, **section):
    section = {"workload": "statefulset/workers", "max_workers": 8, **section}
    profile = ClusterProfile(
        kind="kubernetes",
        url="http://127.0.0.1:1",
        run_root=tmp_path,
        kubernetes=section,
    )
    return KubernetesLauncher("gpu", profile, kube.account)


def test_the_workload_grows_to_what_is_wanted_within_the_bounds_and_never_shrinks(kube, tmp_path):
    launcher, workers = launcher_of(kube, tmp_path, min_workers=1), kube.workers()
    assert isinstance(launcher, Scalable)
    seen = []
    for wanted in (3, 2, 3, 100, 0):
        launcher.grow(wanted)
        seen.append(workers.replicas)
    assert seen == [3, 3, 3, 8, 8]
    assert [method for method, _, _ in kube.asked].count("PATCH") == 2
    launcher.shrink()
    assert workers.replicas == 1
    workers.replicas = 20  # by hand, beyond the bounds: ranks may be there
    launcher.grow(2)
    assert workers.replicas == 20


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
    launcher.grow(4)
    assert workload.replicas == 4
    assert launcher.state().detail == f"4 of 4 workers of {named} are there"
    launcher.stop()
    assert workload.replicas == 0


def test_a_change_of_others_is_not_undone(kube, tmp_path):
    launcher, workers = launcher_of(kube, tmp_path), kube.workers()

    def by_another():
        workers.replicas, workers.version = 6, workers.version + 1

    kube.faults.extend([None, by_another])
    with pytest.raises(KubeRefused) as refused:
        launcher.grow(4)
    assert (refused.value.status, workers.replicas) == (409, 6)


def test_a_server_that_does_not_answer_is_told(kube, tmp_path):
    for fault, kind in ((503, KubeRefused), ("close", ClusterError)):
        kube.faults.append(fault)
        with pytest.raises(ClusterError) as failed:
            launcher_of(kube, tmp_path).grow(4)
        assert type(failed.value) is kind
        assert failed.value.hint
    launcher_of(kube, tmp_path).grow(4)
    assert kube.workers().replicas == 4


def test_the_token_is_read_again_when_it_has_changed(kube, tmp_path):
    launcher = launcher_of(kube, tmp_path)
    launcher.grow(1)
    kube.rotate()
    launcher.grow(2)
    assert kube.workers().replicas == 2


def test_what_a_person_must_mend_is_named(kube, tmp_path, wording):
    def refused(**section):
        with pytest.raises(KubeRefused) as caught:
            launcher_of(kube, tmp_path, **section).grow(4)
        wording(caught.value, port=str(kube.port))
        assert caught.value.exit_code == 69
        again = pickle.loads(pickle.dumps(caught.value))
        assert str(again) == str(caught.value)
        return caught.value.status

    assert refused(workload="statefulset/none") == 404
    allowed = list(kube.rules)
    for verb in ("get", "patch"):
        kube.rules = [rule for rule in allowed if rule[0] != verb]
        assert refused() == 403
    (kube.account / "token").write_text("secret")
    assert refused() == 401


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
    outside(kube, tmp_path, certificate).grow(2)
    assert kube.workers().replicas == 2
    with pytest.raises(ClusterError) as failed:
        launcher_of(kube, tmp_path).state()
    assert failed.value.hint


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"ca_file": None}, {"api": "https://127.0.0.1:PORT"}),
        ({"ca_file": "/no/ca.crt"}, {"ca_file": "/no/ca.crt"}),
        ({"token_file": "/no/token"}, {"file": "/no/token"}),
        ({"api_url": "https://kube.invalid"}, {"api": "https://kube.invalid"}),
    ],
)
def test_what_is_wrong_with_the_way_there(kube, tmp_path, certificate, changes, where):
    with pytest.raises(ClusterError) as failed:
        outside(kube, tmp_path, certificate, **changes).state()
    shown = {name: str(value).replace(str(kube.port), "PORT")
             for name, value in failed.value.where.items()}  # fmt: skip
    assert (shown, bool(failed.value.hint)) == (where, True)
    kube.answer = lambda *_: (404, {"detail": "Not Found"})  # no Kubernetes, say
    with pytest.raises(ClusterError) as failed:
        launcher_of(kube, tmp_path).state()
    assert not isinstance(failed.value, KubeRefused)


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
    assert launcher.state().detail == f"{few}; no pod has a reason: see the events of the workload"
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


def test_a_check_tries_the_role_and_changes_nothing(kube, tmp_path, certificate):
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
    assert (kube.workers().replicas, kube.workers().version) == (0, 1)
    kube.rules.remove(("patch", "apps", "statefulsets/scale"))
    assert (checked().verdict, bool(checked().mend)) == ("fail", True)
