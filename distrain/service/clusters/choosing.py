"""The launchers by kind of cluster."""

from collections.abc import Callable, Mapping
from typing import Final

from distrain.service.clusters.kubernetes import KubernetesLauncher
from distrain.service.clusters.launcher import AddressLauncher, Launcher
from distrain.service.clusters.local import LocalLauncher
from distrain.service.settings import ClusterKind, Settings

LAUNCHERS: Final[Mapping[ClusterKind, Callable[[str, Settings], Launcher]]] = {
    "address": lambda name, settings: AddressLauncher(name, settings.clusters[name]),
    "local": lambda name, settings: LocalLauncher(
        name, settings.clusters[name], settings.data_dir / "clusters" / name
    ),
    "kubernetes": lambda name, settings: KubernetesLauncher(name, settings.clusters[name]),
}
"""The launchers by kind of cluster: functions of the cluster's name and the settings."""


def make_launcher(name: str, settings: Settings) -> Launcher:
    return LAUNCHERS[settings.clusters[name].kind](name, settings)
