import base64

import pytest
from chart_rules import RULES, confinement, disruption, kept, resources, secrets, service_accounts
from helm_chart import NAMES, containers, find, pods, rendered

EXPECTED = {  # as their values ask for
    "everything": ["api: no budget", "reconciler: no budget"],
    "rdma": ["worker: hostNetwork", "worker: worker: capabilities"],
}


@pytest.mark.parametrize("name", NAMES)
def test_all_rules_hold(name):
    found = [fault for rule in RULES for fault in rule(rendered(name))]
    assert found == EXPECTED.get(name, [])


def _root(objects):
    pods(objects)["worker"]["spec"]["securityContext"]["runAsUser"] = 0


def _writable(objects):
    containers(pods(objects)["scheduler"])[0]["securityContext"]["readOnlyRootFilesystem"] = False


def _all_gpus(objects):
    containers(pods(objects)["scheduler"])[0]["env"].pop(1)


def _token(objects):
    pods(objects)["scheduler"]["spec"]["automountServiceAccountToken"] = True


def _wide_role(objects):
    find(objects, "Role")["rules"][1].pop("resourceNames")


def _no_limit(objects):
    containers(pods(objects)["worker"])[0]["resources"]["limits"].pop("memory")


def _no_probe(objects):
    containers(pods(objects)["api"])[-1].pop("livenessProbe")


def _written_out(objects):
    [container] = containers(pods(objects)["scheduler"])
    [variable] = [each for each in container["env"] if each["name"] == "DISTRAIN_DASHBOARD_TOKEN"]
    variable |= {"value": variable.pop("valueFrom")["secretKeyRef"]["name"]}


def _literal(objects):
    find(objects, "ConfigMap", "-service")["data"]["serve.yaml"] += "\ndatabase_url: pg://a:b@c/d"


def _lost(objects):
    find(objects, "PersistentVolumeClaim", "-runs")["metadata"]["annotations"].clear()


def _two(objects):
    find(objects, "Deployment", "-scheduler")["spec"]["replicas"] = 2


@pytest.mark.parametrize(
    ("rule", "plant"),
    [
        (confinement, _root),
        (confinement, _writable),
        (confinement, _all_gpus),
        (service_accounts, _token),
        (service_accounts, _wide_role),
        (resources, _no_limit),
        (resources, _no_probe),
        (secrets, _written_out),
        (secrets, _literal),
        (kept, _lost),
        (disruption, _two),
    ],
)
def test_each_rule_finds_a_planted_fault(rule, plant):
    objects = rendered("postgres")
    assert not list(rule(objects))
    plant(objects)
    assert list(rule(objects))


def test_the_pod_of_helm_test_is_confined_and_let_in():
    for name in ("minimal", "everything"):
        objects = rendered(name)
        pod = find(objects, "Pod", "-test")
        labels = {"app.kubernetes.io/component": "test"}
        job = {"kind": "Job", "spec": {"template": {"metadata": {"labels": labels}}}}
        job["spec"]["template"]["spec"] = pod["spec"]
        # It writes nothing, and so has no /tmp.
        assert list(confinement([job])) == ["test: ready: no /tmp"]
        [rule] = find(objects, "NetworkPolicy", "-api")["spec"]["ingress"]
        peer = {"podSelector": {"matchLabels": pod["metadata"]["labels"]}}
        assert peer in rule["from"]


def test_users_are_the_platforms_where_values_say_so():
    users = {"runAsUser", "runAsGroup", "fsGroup"}
    for pod in pods(rendered("minimal")).values():
        assert users <= set(pod["spec"]["securityContext"])
    for pod in pods(rendered("openshift")).values():
        assert not users & set(pod["spec"]["securityContext"])


def test_secrets_are_made_only_where_no_value_names_one():
    objects = rendered("minimal")
    names = {each["metadata"]["name"] for each in objects if each["kind"] == "Secret"}
    assert names == {
        f"r-distrain-{end}"
        for end in ("token", "tls-ca", "tls-scheduler", "tls-worker", "tls-service")
    }
    assert not [each for each in rendered("external") if each["kind"] == "Secret"
                and "tls" not in each["metadata"]["name"]]  # fmt: skip
    [key] = [each for each in rendered("everything") if each["kind"] == "Secret"]
    assert key["metadata"]["name"] == "clicks-service-key"
    assert len(bytes.fromhex(base64.b64decode(key["data"]["service.key"]).decode())) == 32


def test_gpus_and_shared_memory_of_workers():
    spec = pods(rendered("gpu"))["worker"]["spec"]
    [container] = spec["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert container["resources"]["requests"]["nvidia.com/gpu"] == "8"
    assert spec["runtimeClassName"] == "nvidia"
    assert container["image"] == "distrain:0.2.0-gpu"
    assert containers(pods(rendered("gpu"))["scheduler"])[0]["image"] == "distrain:0.2.0-cpu"
    [shm] = [each for each in spec["volumes"] if each["name"] == "shm"]
    assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": "32Gi"}
    assert {"name": "shm", "mountPath": "/dev/shm"} in container["volumeMounts"]
    [spread] = spec["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == "worker"


def test_the_service_may_scale_this_one_workload():
    for name, group, resource in (
        ("postgres", "apps", "statefulsets"),
        ("operator", "kubernetes.dask.org", "daskworkergroups"),
    ):
        objects = rendered(name)
        workload = "r-distrain-worker" if group == "apps" else "r-distrain-default"
        assert find(objects, "Role")["rules"] == [
            {
                "apiGroups": [group],
                "resources": [resource],
                "resourceNames": [workload],
                "verbs": ["get"],
            },
            {
                "apiGroups": [group],
                "resources": [f"{resource}/scale"],
                "resourceNames": [workload],
                "verbs": ["get", "patch"],
            },
        ]
    assert "replicas" not in find(rendered("postgres"), "StatefulSet")["spec"]
