"""The objects of the chart: as Kubernetes wants them, and as they were reviewed.

`golden/minimal.txt` has all objects of the smallest values, other files what differs from it. The
option `--update` writes them.
"""

import json
import re
from difflib import unified_diff
from pathlib import Path

import pytest
import yaml
from helm_chart import CHART, NAMES, ROOT, faults, find, pods, rendered, run_helm, template

GOLDEN = Path(__file__).parent / "golden"
NUMBER = re.escape(yaml.safe_load((CHART / "Chart.yaml").read_text())["version"])
VERSION = re.compile(rf"(?<![\d.]){NUMBER}(?![\d.])")
OTHERS = {  # kinds of operators whose schemas no package index has
    "cert-manager.io/v1": {"Certificate", "Issuer"},
    "monitoring.coreos.com/v1": {"PrometheusRule", "ServiceMonitor"},
}


def test_objects_are_as_kubernetes_wants_them():
    found = {
        name: faults(each)
        for name in NAMES
        for each in rendered(name)
        if each["kind"] not in OTHERS.get(each["apiVersion"], ())
    }
    assert not {name: said for name, said in found.items() if said}
    deployment = find(rendered("minimal"), "Deployment", "-scheduler")
    deployment["spec"]["template"]["spec"]["containers"][0]["imagePullPolice"] = "Always"
    assert "imagePullPolice" in str(faults(deployment))  # the schemas would have told
    cluster = find(rendered("operator"), "DaskCluster")
    [container] = cluster["spec"]["worker"]["spec"]["containers"]
    container["resources"]["limits"]["nvidia.com/gpu"] = 1.5
    assert "nvidia.com/gpu" in str(faults(cluster))


class Written(yaml.SafeDumper):
    """Writes texts of several lines as such, and no anchors."""

    def ignore_aliases(self, data):
        return True


Written.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    ),
)


def texts(name):
    """The text of each object, without what is new at each rendering or lies in `deploy`."""
    found = {}
    for each in rendered(name):
        key = f"{each['kind']}/{each['metadata']['name']}"
        if each["kind"] == "Secret" or key.endswith("-dashboard"):
            each["data"] = sorted(each["data"])
        if each["kind"] == "PrometheusRule":
            each["spec"] = sorted(each["spec"])
        text = VERSION.sub("VERSION", yaml.dump(each, Dumper=Written, width=100))
        found[key] = re.sub(r"(checksum/\S+: )\w+", r"\1(changes)", text)
    return found


def differing(name):
    """What a rendering has that the smallest has not, by object."""
    smallest, found = {} if name == "minimal" else texts("minimal"), texts(name)
    for key in sorted({*smallest, *found}):
        lines = [side.get(key, "").splitlines() for side in (smallest, found)]
        if lines[0] and lines[1]:
            told = list(unified_diff(*lines, n=2, lineterm=""))[2:]
            lines[1] = ["@@" if line.startswith("@@") else line for line in told]
        if lines[0] != lines[1] and (lines[1] or key not in found):
            yield "\n".join([f"## {key}", *(lines[1] or ["(none)"]), ""])


@pytest.mark.parametrize("name", NAMES)
def test_the_objects_are_those_that_were_reviewed(name, request):
    text, file = "\n".join(differing(name)), GOLDEN / f"{name}.txt"
    if request.config.getoption("--update"):
        file.write_text(text)
    assert text == file.read_text(), "run tests/helm with --update, and review the difference"


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


EXCLUSIVE = [
    ("service.replicas=2", "service.replicas"),
    ("mode=external", "clusters"),
    ("tls.source=existing", "tls.existing.service"),
    ("network.localPorts.first=60000", "network.localPorts"),
    ("ingress.enabled=true", "ingress.hosts"),
    ("clusters.main.url=http://a", "clusters.main"),
    ("network.rendezvousPorts.last=40000", "network.rendezvousPorts"),
    ("workers.shmSize=64Gi", "workers.shmSize"),
    ("workers.resources.limits.memory=2000M", "workers.shmSize"),
    ("workers.pools.a.shmSize=64Gi", "workers.pools.a.shmSize"),
    (
        r"workers.gpu.enabled=true,workers.gpu.perPod=7,workers.gpu.resourceName=nvidia.com/mig-1g\.10gb",
        "workers.gpu.perPod",
    ),
    (
        r"workers.gpu.enabled=true,workers.resources.limits.nvidia\.com/gpu=2",
        "workers.resources",
    ),
    ("workers.hostNetwork=true", "workers.hostNetwork"),
    (
        "workers.pools.a.hostNetwork=true,networkPolicy.commFrom[0].podSelector.matchLabels.b=c",
        "workers.pools.a.hostNetwork",
    ),
    (
        "workers.pools.twelve-long.replicas=1,fullnameOverride=a-name-of-some-thirty-four-letters",
        "workers.pools.twelve-long",
    ),
    ("mode=operator,workers.pools.a.replicas=1", "workers.pools"),
    ("workers.autoscale.enabled=true,workers.pools.a.replicas=1", "workers.autoscale"),
    (
        "workers.autoscale.enabled=true,workers.gpu.enabled=true,workers.gpu.perPod=2",
        "workers.autoscale",
    ),
    ("runs.url=s3://a/b,runs.existingClaim=c", "runs.url"),
]
"""Values that exclude each other, and the one that is named."""


def test_values_that_exclude_each_other_are_refused(wording):
    for wrong, named in EXCLUSIVE:
        done = run_helm("template", "r", ".", "--set", wrong)
        assert done.returncode != 0, wrong
        [told] = re.findall(rf"{re.escape(named)}: .*", done.stderr)
        wording(told)


def test_what_a_pool_names_as_empty_is_empty():
    of_all = "workers.gpu.enabled=true,workers.nodeSelector.disk=nvme,workers.tolerations[0].key=a"
    own = (
        '{"gpu": {"enabled": false}, "nodeSelector": {}, "tolerations": [], "podLabels": {"b": ""}}'
    )
    other = pods(template("--set", of_all, "--set-json", f"workers.pools.cpu={own}"))["worker-cpu"]
    assert other["spec"]["containers"][0]["args"][:2] == ["dask", "worker"]
    assert not {"nodeSelector", "tolerations"} & other["spec"].keys()
    assert other["metadata"]["labels"]["b"] == ""


def test_monitors_come_by_themselves_where_prometheus_operator_is():
    groups = ("--api-versions", "monitoring.coreos.com/v1/ServiceMonitor")
    kinds = {each["kind"] for each in template(*groups)}
    assert "ServiceMonitor" in kinds
    assert "PrometheusRule" not in kinds


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
