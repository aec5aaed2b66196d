"""A cluster whose workers are pods of one Kubernetes workload, scaled by the service."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from distrain.errors import ClusterError
from distrain.service.clusters.kube_api import ACCOUNT, KubeApi, KubeRefused
from distrain.service.clusters.launcher import AddressLauncher, LauncherState, SchedulerAddress
from distrain.service.profiles import ClusterProfile

_PODS = 50  # that are read at most


class KubernetesLauncher:
    """A cluster whose workers are the pods of a Kubernetes workload; it sets their number.

    The service does not start the scheduler. See `Scalable` for the methods.
    """

    def __init__(self, name: str, profile: ClusterProfile, account: Path = ACCOUNT):
        assert profile.kubernetes is not None  # the settings ensure it
        self._name, self._section, self._account = name, profile.kubernetes, account
        self._scheduler = AddressLauncher(name, profile)
        self.min_workers, self.max_workers = self._section.min_workers, self._section.max_workers
        self._group, self._version, self._plural, self._workload = self._section.resource

    def find(self) -> SchedulerAddress | None:
        return self._scheduler.find()

    def start(self) -> None:
        """Do nothing: the scheduler always runs."""

    def stop(self) -> None:
        self.shrink()

    def grow(self, num_workers: int) -> None:
        wanted = max(self.min_workers, min(self.max_workers, num_workers))
        self._scale(lambda now: max(now, wanted))

    def shrink(self) -> None:
        """Reduce the number of pods to `min_workers`."""
        self._scale(lambda now: min(now, self.min_workers))

    def state(self) -> LauncherState:
        """Return the phase; its detail has the requested and the ready workers.

        It also says why workers are not ready, if the service may read pods.
        """
        with KubeApi(self._section, self._account) as api:
            scale = self._read(api)
            wanted = _whole(scale, "spec")
            if not wanted:
                return LauncherState("absent", f"{self._section.workload} is scaled to 0")
            ready = self._ready(api)
            there = _whole(scale, "status") if ready is None else ready
            if there >= wanted:
                return LauncherState("running", self._counts(wanted, there, ready))
            why = self._why_not_ready(api, scale)
        return LauncherState("starting", self._counts(wanted, there, ready) + why)

    def check(self) -> None:
        with KubeApi(self._section, self._account) as api:
            now = self._read(api)
            self._patch(api, {"spec": {"replicas": _whole(now, "spec")}}, dryRun="All")

    def _scale(self, new: Callable[[int], int]) -> None:
        """Set the number of pods to `new(present number)`.

        Raises KubeRefused with the status 409 if another process changes the scale meanwhile.
        """
        with KubeApi(self._section, self._account) as api:
            before = self._read(api)
            now = _whole(before, "spec")
            if new(now) != now:
                as_seen = {"resourceVersion": before["metadata"].get("resourceVersion")}
                self._patch(api, {"metadata": as_seen, "spec": {"replicas": new(now)}})

    def _read(self, api: KubeApi) -> dict[str, Any]:
        try:
            scale = api.get(f"{self._path(api)}/scale")
        except KubeRefused as refused:
            raise self._explained(refused, api, "get") from refused
        if scale.get("kind") != "Scale" or not isinstance(scale.get("metadata"), dict):
            raise ClusterError(
                f"the Kubernetes API reports no scale of {self._section.workload}",
                where={"api": api.url},
                hint="Set kubernetes.workload to a resource with a scale subresource.",
            )
        return scale

    def _patch(self, api: KubeApi, patch: Mapping[str, Any], **query: str) -> None:
        try:
            api.merge(f"{self._path(api)}/scale", patch, **query)
        except KubeRefused as refused:
            raise self._explained(refused, api, "patch") from refused

    def _path(self, api: KubeApi) -> str:
        return (
            f"/apis/{self._group}/{self._version}/namespaces/{api.namespace}/{self._plural}/"
            f"{self._workload}"
        )

    def _explained(self, refused: KubeRefused, api: KubeApi, verb: str) -> KubeRefused:
        message, hint = refused.message, refused.hint
        if refused.status == 403:
            message = f"the service may not {verb} the scale of {self._section.workload}: {message}"
            hint = (
                f"Its Role needs the verbs get and patch on {self._plural}/scale of the API group "
                f"{self._group}, with the resource name {self._workload}."
            )
        elif refused.status == 404 and refused.of_api:
            message = (
                f"there is no {self._section.workload} that can be scaled in the namespace "
                f"{api.namespace}: {message}"
            )
            hint = (
                f"Check with `kubectl -n {api.namespace} get {self._plural}`; kubernetes.workload "
                "names it."
            )
        where = {"cluster": self._name, "api": api.url, "namespace": api.namespace}
        explained = KubeRefused(message, where=where, hint=hint)
        explained.status, explained.of_api = refused.status, refused.of_api
        return explained

    def _ready(self, api: KubeApi) -> int | None:
        try:
            status = api.get(self._path(api)).get("status") or {}
        except ClusterError:
            return None
        if self._group != "apps":
            ready = status.get("readyReplicas")
            return ready if isinstance(ready, int) else None
        return int(status.get("readyReplicas") or 0)

    def _counts(self, wanted: int, there: int, ready: int | None) -> str:
        words = "there" if ready is None else "ready"
        verb = "is" if there == 1 else "are"
        return f"{there} of {wanted} workers of {self._section.workload} {verb} {words}"

    def _why_not_ready(self, api: KubeApi, scale: Mapping[str, Any]) -> str:
        selector = (scale.get("status") or {}).get("selector")
        if not isinstance(selector, str) or not selector:
            return ""  # an empty selector would select all pods
        path = f"/api/v1/namespaces/{api.namespace}/pods"
        query = {"labelSelector": selector, "limit": str(_PODS)}
        try:
            pods = api.get(path, fieldSelector="status.phase=Pending", **query).get("items") or []
            pods = pods or api.get(path, **query).get("items") or []
        except ClusterError:
            return ""
        return why_pods_wait(pods)


def why_pods_wait(pods: Sequence[Mapping[str, Any]]) -> str:
    """Return why pods wait, as a text to append: the first pod's reason, and how many more wait.

    Returns "" if none of the pods gives a reason. Without pods, the text names the events of the
    workload as the place to look.

    >>> why_pods_wait([])
    '; no pod has a reason: see the events of the workload'
    """
    told = [(pod["metadata"]["name"], why) for pod in pods if (why := _why(pod))]
    if not told:
        return "" if pods else "; no pod has a reason: see the events of the workload"
    name, why = told[0]
    more = f" (and {len(told) - 1} more pods wait)" if len(told) > 1 else ""
    return f"; pod {name}: {why}{more}"


def _why(pod: Mapping[str, Any]) -> str:
    status = pod.get("status") or {}
    containers = (status.get(f"{kind}Statuses") or () for kind in ("initContainer", "container"))
    for container in chain.from_iterable(containers):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            return _words(waiting)
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _words(condition)
    return ""


def _words(told: Mapping[str, Any]) -> str:
    words = ": ".join(str(told[key]) for key in ("reason", "message") if told.get(key))
    return " ".join(words.split())[:300]


def _whole(scale: Mapping[str, Any], part: str) -> int:
    return int((scale.get(part) or {}).get("replicas") or 0)
