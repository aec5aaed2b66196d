"""The launchers of the service's clusters, and the client of their schedulers."""

from distrain.service.clusters.choosing import make_launcher as make_launcher
from distrain.service.clusters.kube_api import KubeRefused as KubeRefused
from distrain.service.clusters.launcher import (
    Launcher as Launcher,
    Scalable as Scalable,
    SchedulerAddress as SchedulerAddress,
)
from distrain.service.clusters.scheduler_client import (
    Refused as Refused,
    SchedulerClient as SchedulerClient,
    Unreachable as Unreachable,
)
