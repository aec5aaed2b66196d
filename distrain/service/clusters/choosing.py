"""The launchers by kind of cluster."""

from collections.abc import Callable, Mapping
from typing import Final

from distrain.service.clusters.kubernetes import KubernetesLauncher
from distrain.service.clusters.launcher import AddressLauncher, Launcher
from distrain.service.clusters.local import LocalLauncher
from distrain.service.clusters.slurm import SlurmLauncher
from distrain.service.settings import ClusterKind, Settings

LAUNCHERS: Final[Mapping[ClusterKind, Callable[[str, Settings, str], Launcher]]] = {
    "address": lambda name, settings, _: AddressLauncher(name, settings.clusters[name]),
    "local": lambda name, settings, _: LocalLauncher(
        name, settings.clusters[name], settings.data_dir / "clusters" / name
    ),
    "slurm": SlurmLauncher.of_service,
    "kubernetes": lambda name, settings, _: KubernetesLauncher(name, settings.clusters[name]),
}
"""The launchers by kind of cluster: functions of the cluster's name, the settings, and the
service's id.
"""


def make_launcher(name: str, settings: Settings, service_id: str) -> Launcher:
    return LAUNCHERS[settings.clusters[name].kind](name, settings, service_id)
