"""The launchers of the service's clusters, and the client of their schedulers."""

from distrain.service.clusters.answers import (
    FIGURES as FIGURES,
    Changes as Changes,
    Ended as Ended,
    SeenJob as SeenJob,
    SeenPreflight as SeenPreflight,
    SeenWorker as SeenWorker,
    WorkerCounts as WorkerCounts,
    changes_from_json as changes_from_json,
    is_figure as is_figure,
    job_from_json as job_from_json,
)
from distrain.service.clusters.choosing import make_launcher as make_launcher
from distrain.service.clusters.kube_api import KubeRefused as KubeRefused
from distrain.service.clusters.launcher import (
    Found as Found,
    Launcher as Launcher,
    LauncherState as LauncherState,
    Scalable as Scalable,
)
from distrain.service.clusters.scheduler_client import (
    Refused as Refused,
    SchedulerClient as SchedulerClient,
    Unreachable as Unreachable,
)
