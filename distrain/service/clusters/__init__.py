"""Where the service's clusters come from, and how their schedulers are asked over HTTP."""

from distrain.service.clusters.answers import (
    FIGURES,
    Changes,
    Ended,
    SeenJob,
    SeenPreflight,
    SeenWorker,
    WorkerCounts,
    changes_from_json,
    is_figure,
    job_from_json,
)
from distrain.service.clusters.choosing import make_launcher
from distrain.service.clusters.kube_api import KubeRefused
from distrain.service.clusters.launcher import Found, Launcher, LauncherState, Scalable
from distrain.service.clusters.scheduler_client import Refused, SchedulerClient, Unreachable

__all__ = [
    "Changes",
    "Ended",
    "FIGURES",
    "Found",
    "KubeRefused",
    "Launcher",
    "LauncherState",
    "Refused",
    "Scalable",
    "SchedulerClient",
    "SeenJob",
    "SeenPreflight",
    "SeenWorker",
    "Unreachable",
    "WorkerCounts",
    "changes_from_json",
    "is_figure",
    "job_from_json",
    "make_launcher",
]
