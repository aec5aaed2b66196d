"""What a user relies on: no rights, no secret in plain text, and claims that stay."""

import re

from helm_chart import NAMES, containers, pods, rendered

SECRET_NAME = re.compile(r"TOKEN|PASSWORD|SECRET|DATABASE_URL|ACCESS_KEY", re.I)
LITERAL = re.compile(r"BEGIN [A-Z ]*PRIVATE KEY|://[^/\s:@]+:[^/\s@]+@|password\s*[:=]\s*\S", re.I)


def confinement(objects):
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


def service_accounts(objects):
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
            if (resource, rule["verbs"]) == ("pods", ["list"]):
                continue  # says why workers do not start
            verbs = {"get", "patch"} if resource.endswith("/scale") else {"get"}
            if len(rule.get("resourceNames", ())) != 1 or set(rule["verbs"]) != verbs:
                yield f"role {role['metadata']['name']}: {rule}"
    if any(each["kind"].startswith("ClusterRole") for each in objects):
        yield "a ClusterRole"


def secrets(objects):
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


def kept(objects):
    """What cannot be made again stays when the release goes."""
    for each in objects:
        if each["kind"] in ("PersistentVolumeClaim", "Secret"):
            notes = each["metadata"].get("annotations", {})
            if notes.get("helm.sh/resource-policy") != "keep":
                yield f"{each['kind']} {each['metadata']['name']} goes with the release"


def test_every_promise_holds_in_every_profile():
    hosts_network = ["worker: hostNetwork", "worker: worker: capabilities"]  # as its values ask for
    for name in NAMES:
        objects = rendered(name)
        promises = (confinement, service_accounts, secrets, kept)
        found = [fault for promise in promises for fault in promise(objects)]
        assert found == (hosts_network if name == "rdma" else []), name
