import json
import re

import pytest
import yaml
from helm_chart import NAMES, ROOT, faults, find, pods, rendered, run_helm, template

OTHERS = {  # kinds of operators whose schemas no package index has
    "cert-manager.io/v1": {"Certificate", "Issuer"},
    "monitoring.coreos.com/v1": {"PrometheusRule", "ServiceMonitor"},
}


@pytest.mark.parametrize("name", NAMES)
def test_objects_are_as_kubernetes_wants_them(name):
    found = []
    for each in rendered(name):
        if each["kind"] not in OTHERS.get(each["apiVersion"], ()):
            found += faults(each)
    assert not found


def test_the_schemas_refuse_what_is_no_field():
    deployment = find(rendered("minimal"), "Deployment", "-scheduler")
    deployment["spec"]["template"]["spec"]["containers"][0]["imagePullPolice"] = "Always"
    assert "imagePullPolice" in str(faults(deployment))
    cluster = find(rendered("operator"), "DaskCluster")
    [container] = cluster["spec"]["worker"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    container["resources"]["limits"]["nvidia.com/gpu"] = 1.5
    assert "nvidia.com/gpu" in str(faults(cluster))


def test_wrong_values_are_refused_with_their_places():
    wrong = {
        "workers.replicas=many": "/workers/replicas",
        "workers.replica=3": "'replica'",
        "workers.gpu.perPod=0": "/workers/gpu/perPod",
        "workers.terminationGracePeriodSeconds=5": "/workers/terminationGracePeriodSeconds",
        "workers.pools.a.terminationGracePeriodSeconds=59": "/a/terminationGracePeriodSeconds",
        "service.projects.ads.max_rank=3": "'max_rank'",
        "mode=cluster": "/mode",
        "tls.source=none": "/tls/source",
        "image.digest=latest": "/image/digest",
        "fullnameOverride=My_Clicks": "/fullnameOverride",
        "scheduler.resources.limits.memory=much": "/scheduler/resources/limits/memory",
        "network.localPorts.first=80": "/network/localPorts/first",
        "podSecurity.runAsUser=0": "/podSecurity/runAsUser",
        "clusters.other.token=secret": "'token'",
    }
    words = [word for value in wrong for word in ("--set", value)]
    done = run_helm("template", "r", ".", *words)
    assert done.returncode != 0
    assert [place for place in wrong.values() if place not in done.stderr] == []


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("service.replicas=2", "service.replicas: several pods need PostgreSQL"),
        ("mode=external", "clusters: mode external"),
        ("tls.source=existing", "tls.existing.service: name the Secret"),
        ("network.localPorts.first=60000", "network.localPorts: first is larger"),
        ("ingress.enabled=true", "ingress.hosts: name one"),
        ("clusters.main.url=http://a", "clusters.main: the chart's own"),
        ("network.rendezvousPorts.last=40000", "network.rendezvousPorts: they overlap"),
        ("workers.shmSize=64Gi", "workers.shmSize: 64Gi of /dev/shm count as memory"),
        ("workers.resources.limits.memory=2000M", "workers.shmSize: 2Gi of /dev/shm"),
        ("workers.pools.a.shmSize=64Gi", "workers.pools.a.shmSize: 64Gi of /dev/shm"),
        (
            r"workers.gpu.enabled=true,workers.gpu.perPod=7,workers.gpu.resourceName=nvidia.com/mig-1g\.10gb",
            "workers.gpu.perPod: CUDA shows a process one MIG slice",
        ),
        (
            r"workers.gpu.enabled=true,workers.resources.limits.nvidia\.com/gpu=2",
            "workers.resources: nvidia.com/gpu is set by workers.gpu.perPod",
        ),
        ("workers.hostNetwork=true", "workers.hostNetwork: NetworkPolicies know no pods"),
        (
            "workers.pools.a.hostNetwork=true,networkPolicy.commFrom[0].podSelector.matchLabels.b=c",
            "workers.pools.a.hostNetwork: NetworkPolicies know no pods",
        ),
        (
            "workers.pools.twelve-long.replicas=1,fullnameOverride=a-name-of-some-thirty-four-letters",
            "workers.pools.twelve-long: its StatefulSet would be a-name-of-some-thirty",
        ),
        ("mode=operator,workers.pools.a.replicas=1", "workers.pools: they need mode standalone"),
        ("runs.url=s3://a/b,runs.existingClaim=c", "runs.url: run directories lie there or in"),
    ],
)
def test_values_that_exclude_each_other_are_refused(wrong, told):
    done = run_helm("template", "r", ".", "--set", wrong)
    assert done.returncode != 0
    assert told in done.stderr


def test_pools_differ_from_workers_in_what_they_name():
    found = pods(rendered("kueue"))
    for part, gpus, memory in (("worker", "8", "512Gi"), ("worker-small", "4", "256Gi")):
        [container] = found[part]["spec"]["containers"]
        assert container["resources"]["limits"] == {"memory": memory, "nvidia.com/gpu": gpus}
        assert found[part]["spec"]["nodeSelector"] == {"node.example.com/gpus": gpus}
        taint = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
        assert found[part]["spec"]["tolerations"] == [taint]
        queue = find(rendered("kueue"), "StatefulSet", part)["metadata"]["labels"]
        assert queue["kueue.x-k8s.io/queue-name"] == "training"
    of_all = "workers.gpu.enabled=true,workers.nodeSelector.disk=nvme,workers.tolerations[0].key=a"
    own = (
        '{"gpu": {"enabled": false}, "nodeSelector": {}, "tolerations": [], "podLabels": {"b": ""}}'
    )
    other = pods(template("--set", of_all, "--set-json", f"workers.pools.cpu={own}"))["worker-cpu"]
    assert other["spec"]["containers"][0]["args"][:2] == ["dask", "worker"]
    assert "nodeSelector" not in other["spec"]  # what a pool names as empty is empty
    assert "tolerations" not in other["spec"]
    assert other["metadata"]["labels"]["b"] == ""


def test_what_only_renders_finds_the_same_each_time_and_no_secret():
    objects = template("--values", "ci/argocd-values.yaml")
    assert objects == rendered("argocd")
    kinds = {each["kind"] for each in objects}
    assert "Secret" not in kinds
    assert "PersistentVolumeClaim" not in kinds  # run directories are in a bucket
    [container] = pods(objects)["worker"]["spec"]["containers"]
    assert container["envFrom"] == [{"secretRef": {"name": "bucket"}}]
    assert {"name": "models", "mountPath": "/models", "readOnly": True} in container["volumeMounts"]
    [proxy] = [each for each in container["env"] if each["name"] == "HTTPS_PROXY"]
    assert proxy["valueFrom"] == {"configMapKeyRef": {"name": "egress", "key": "proxy"}}
    assert find(objects, "Service", "-api")["spec"]["type"] == "LoadBalancer"


def test_labels_of_a_company_are_on_all_objects_and_pods():
    objects = rendered("mesh")
    label = {"example.com/cost-centre": "ads"}.items()
    assert all(label <= each["metadata"]["labels"].items() for each in objects)
    assert all(label <= pod["metadata"]["labels"].items() for pod in pods(objects).values())


def test_what_prometheus_operator_knows_comes_by_itself_where_it_is():
    groups = ("--api-versions", "monitoring.coreos.com/v1/ServiceMonitor")
    kinds = {each["kind"] for each in template(*groups)}
    assert "ServiceMonitor" in kinds
    assert "PrometheusRule" not in kinds
    assert "ServiceMonitor" not in {each["kind"] for each in rendered("minimal")}


def test_alerts_know_the_jobs_of_the_monitors():
    monitors = [each for each in rendered("everything") if each["kind"] == "ServiceMonitor"]
    jobs = {
        rule["replacement"]
        for each in monitors
        for rule in each["spec"]["endpoints"][0]["relabelings"]
        if rule["targetLabel"] == "job"
    }
    alerts = "".join(file.read_text() for file in (ROOT / "deploy/prometheus").glob("*.rules.yml"))
    named = set(re.findall(r'job="([^"]+)"', alerts))
    assert named
    assert named <= jobs
    assert len(monitors) == len(jobs)


def test_an_ingress_speaks_to_the_api_as_the_api_does():
    for tls, protocol in (("true", "HTTPS"), ("false", "HTTP")):
        words = ("--set", f"ingress.enabled=true,ingress.hosts={{a.example}},tls.enabled={tls}")
        notes = find(template(*words), "Ingress")["metadata"]["annotations"]
        assert notes["nginx.ingress.kubernetes.io/backend-protocol"] == protocol


def test_alerts_and_dashboards_are_those_of_deploy():
    objects = rendered("everything")
    groups = [
        group
        for name in ("distrain.rules.yml", "distrain-service.rules.yml")
        for group in yaml.safe_load((ROOT / "deploy/prometheus" / name).read_text())["groups"]
    ]
    assert find(objects, "PrometheusRule")["spec"] == {"groups": groups}
    dashboards = find(objects, "ConfigMap", "-dashboard")["data"]
    shipped = {file.name: file for file in (ROOT / "deploy/grafana").glob("*.json")}
    assert dashboards.keys() == shipped.keys()
    for name, file in shipped.items():
        assert json.loads(dashboards[name]) == json.loads(file.read_text())
