"""What must hold of the chart's objects, as functions from objects to faults."""

import re
from collections.abc import Iterator

from helm_chart import Object, containers, pods

SECRET_NAME = re.compile(r"TOKEN|PASSWORD|SECRET|DATABASE_URL|ACCESS_KEY", re.I)
LITERAL = re.compile(r"BEGIN [A-Z ]*PRIVATE KEY|://[^/\s:@]+:[^/\s@]+@|password\s*[:=]\s*\S", re.I)
WITHOUT_PROBES = {"migrate", "reconciler"}
"""One ends by itself; the other answers on no port, and the API's /readyz tells of it."""


def confinement(objects: list[Object]) -> Iterator[str]:
    """No root, no writable image, no rights beyond the least."""
    for name, pod in pods(objects).items():
        own = pod["spec"]["securityContext"]
        if not own.get("runAsNonRoot") or own.get("runAsUser") == 0:
            yield f"{name}: runs as root"
        if own.get("seccompProfile", {}).get("type") != "RuntimeDefault":
            yield f"{name}: seccomp"
        shared = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace")
        yield from (f"{name}: {key}" for key in shared if pod["spec"].get(key))
        if any("hostPath" in volume for volume in pod["spec"]["volumes"]):
            yield f"{name}: hostPath"
        for each in containers(pod):
            context = each.get("securityContext", {})
            asks = any("gpu" in key for key in each["resources"].get("limits", ()))
            if not asks and {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} not in each["env"]:
                yield f"{name}: {each['name']}: GPUs that it did not request"
            wanted = {
                "allowPrivilegeEscalation": False,
                "privileged": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            for key, value in wanted.items():
                if context.get(key) != value:
                    yield f"{name}: {each['name']}: {key}"
            if not any(mount["mountPath"] == "/tmp" for mount in each["volumeMounts"]):
                yield f"{name}: {each['name']}: no /tmp"
        safe = {"net.ipv4.ip_local_port_range"}
        if {sysctl["name"] for sysctl in own.get("sysctls", ())} - safe:
            yield f"{name}: a sysctl that is not safe"


def service_accounts(objects: list[Object]) -> Iterator[str]:
    """A token of the Kubernetes API only where pods are scaled, and only for that."""
    roles = [each for each in objects if each["kind"] == "Role"]
    for name, pod in pods(objects).items():
        if pod["spec"].get("serviceAccountName", "default") == "default":
            yield f"{name}: the default service account"
        may_scale = bool(roles) and name in ("service", "reconciler")
        if pod["spec"].get("automountServiceAccountToken") is not may_scale:
            yield f"{name}: automountServiceAccountToken"
    for role in roles:
        for rule in role["rules"]:
            [resource] = rule["resources"]
            verbs = {"get", "patch"} if resource.endswith("/scale") else {"get"}
            if len(rule.get("resourceNames", ())) != 1 or set(rule["verbs"]) != verbs:
                yield f"role {role['metadata']['name']}: {rule}"
    if any(each["kind"].startswith("ClusterRole") for each in objects):
        yield "a ClusterRole"


def resources(objects: list[Object]) -> Iterator[str]:
    """Requests, a limit of memory, probes, and a bounded size of what is on a node's disk."""
    for name, pod in pods(objects).items():
        for each in containers(pod):
            asked = each.get("resources", {})
            if not {"cpu", "memory"} <= set(asked.get("requests", ())):
                yield f"{name}: {each['name']}: requests"
            if "memory" not in asked.get("limits", ()):
                yield f"{name}: {each['name']}: limits"
            if "readyz" in str(each.get("readinessProbe")):
                yield f"{name}: what all pods share takes them all from their Service"
            if each["name"] not in WITHOUT_PROBES and "livenessProbe" not in each:
                yield f"{name}: {each['name']}: no livenessProbe"
        for volume in pod["spec"]["volumes"]:
            if "emptyDir" in volume and "sizeLimit" not in volume["emptyDir"]:
                yield f"{name}: {volume['name']}: sizeLimit"


def secrets(objects: list[Object]) -> Iterator[str]:
    """Each secret is a Secret, by reference."""
    for name, pod in pods(objects).items():
        for each in containers(pod):
            for variable in each["env"]:
                if SECRET_NAME.search(variable["name"]) and "secretKeyRef" not in str(variable):
                    yield f"{name}: {variable['name']} is written out"
            if SECRET_NAME.search(" ".join(each["args"])) and "--no-token" not in each["args"]:
                yield f"{name}: a secret in the arguments"
        for volume in pod["spec"]["volumes"]:
            source = volume.get("secret") or volume.get("projected")
            if source and source.get("defaultMode") != 0o440:
                yield f"{name}: others may read {volume['name']}"
    for each in objects:
        if each["kind"] != "Secret" and LITERAL.search(str(each)):
            yield f"{each['kind']} {each['metadata']['name']}: a literal secret"


def kept(objects: list[Object]) -> Iterator[str]:
    """What cannot be made again stays when the release goes."""
    for each in objects:
        if each["kind"] in ("PersistentVolumeClaim", "Secret"):
            notes = each["metadata"].get("annotations", {})
            if notes.get("helm.sh/resource-policy") != "keep":
                yield f"{each['kind']} {each['metadata']['name']} goes with the release"


def disruption(objects: list[Object]) -> Iterator[str]:
    """Time to save a checkpoint, a budget for each workload, one scheduler at a time."""
    found = pods(objects)
    budgets = [
        each["spec"]["selector"]["matchLabels"]
        for each in objects
        if each["kind"] == "PodDisruptionBudget"
    ]
    for name, pod in found.items():
        labels = pod["metadata"]["labels"].items()
        if not any(budget.items() <= labels for budget in budgets):
            yield f"{name}: no budget"
    if "worker" in found and found["worker"]["spec"]["terminationGracePeriodSeconds"] < 60:
        yield "worker: no time for a checkpoint"
    for each in objects:
        name, spec = each["metadata"]["name"], each.get("spec", {})
        alone = each["kind"] == "Deployment" and name.endswith(("-scheduler", "-service"))
        if alone and (spec["strategy"]["type"] != "Recreate" or spec["replicas"] != 1):
            yield f"{name}: two at a time"
    if any(each["kind"] == "HorizontalPodAutoscaler" for each in objects):
        yield "somebody else than the service sets the number of workers"


RULES = (confinement, service_accounts, resources, secrets, kept, disruption)
