"""The launcher of a cluster, by its profile."""

from distrain.service.clusters.address import AddressLauncher
from distrain.service.clusters.kubernetes import KubernetesLauncher
from distrain.service.clusters.launcher import Launcher
from distrain.service.clusters.local import LocalLauncher
from distrain.service.clusters.slurm import SlurmLauncher
from distrain.service.settings import Settings


def make_launcher(name: str, settings: Settings, service_id: str) -> Launcher:
    """The launcher of a cluster that the settings name.

    Args:
        service_id: The store's; it tells the Slurm jobs of several services of one user apart.
    """
    profile = settings.clusters[name]
    if profile.kind == "address":
        return AddressLauncher(name, profile)
    if profile.kind == "local":
        return LocalLauncher(name, profile, settings.data_dir / "clusters" / name)
    if profile.kind == "kubernetes":
        return KubernetesLauncher(name, profile)
    job_name = f"distrain-{service_id[:12]}-{name}"
    return SlurmLauncher(name, profile, job_name, settings.run_root(name) / ".clusters" / job_name)
