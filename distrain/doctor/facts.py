"""What is known of a cluster's processes, as values that travel as JSON. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any


class ProcessRole(StrEnum):
    SCHEDULER = "scheduler"
    WORKER = "worker"
    CLIENT = "this machine"


@dataclass(frozen=True, order=True)
class ProcessPlace:
    """A process of the cluster, or the one that asks.

    Attributes:
        address: As Dask writes it; "" for the one that asks.
        name: A worker's name, where it has one.
    """

    role: ProcessRole
    address: str = ""
    name: str = ""

    def __str__(self) -> str:
        if self.role is not ProcessRole.WORKER:
            return str(self.role)
        return f"worker {self.name} ({self.address})" if self.name else f"worker {self.address}"


@dataclass(frozen=True)
class GpuFacts:
    """A GPU as the driver names it, in the driver's order."""

    uuid: str
    name: str
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True)
class ProcessFacts:
    """A process and its machine.

    Attributes:
        network: Equal for processes that share a machine's network: its boot and namespace.
        versions: By package; "" for one that is not installed.
        torch_cuda: The version of CUDA that torch was built for; "" for a CPU build.
        host: The host of the process's Dask address.
        interface: The network interface of its ranks.
        rank_address: That interface's address, at which gloo listens.
        interface_trouble: The reason why there is none.
        interfaces: The IP addresses of all interfaces.
        name_addresses: The addresses of the machine's own name.
        shm_bytes: The size of /dev/shm; 0 where it cannot be written.
        shm_trouble: The reason why it cannot be written.
        open_files: The limit of open files; -1: none.
        locked_bytes: The limit of locked memory; -1: none.
        port_range: The kernel's ephemeral ports.
        visible_devices: `CUDA_VISIBLE_DEVICES`; `None` if it is not set.
        cuda_driver: The newest version of CUDA that the driver can serve.
        infiniband: Names of InfiniBand devices.
        rendezvous_ports: `DISTRAIN_RENDEZVOUS_PORTS`.
        asked_interface: `DISTRAIN_INTERFACE`.
    """

    hostname: str = ""
    network: str = ""
    user: str = ""
    python: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    torch_cuda: str = ""
    host: str = ""
    interface: str = ""
    rank_address: str = ""
    interface_trouble: str = ""
    interfaces: dict[str, list[str]] = field(default_factory=dict)
    name_addresses: list[str] = field(default_factory=list)
    shm_bytes: int = 0
    shm_trouble: str = ""
    memory_bytes: int = 0
    available_bytes: int = 0
    open_files: int = -1
    locked_bytes: int = -1
    port_range: list[int] = field(default_factory=list)
    gpus: list[GpuFacts] = field(default_factory=list)
    visible_devices: str | None = None
    driver: str = ""
    cuda_driver: str = ""
    infiniband: list[str] = field(default_factory=list)
    rendezvous_ports: str = ""
    asked_interface: str = ""

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "ProcessFacts":
        """Read a process's answer; one of another version may have more fields, or fewer."""
        known = {name.name for name in fields(cls)}
        kept = {name: value for name, value in values.items() if name in known}
        return cls(**kept | {"gpus": [GpuFacts(**gpu) for gpu in kept.get("gpus", [])]})

    @property
    def first_gpu(self) -> str:
        """The UUID of the GPU that CUDA shows as device 0; "" if it shows none.

        >>> gpus = [GpuFacts("GPU-a", "H100", 80, 80), GpuFacts("GPU-b", "H100", 80, 80)]
        >>> [ProcessFacts(gpus=gpus, visible_devices=v).first_gpu for v in (None, "1,0")]
        ['GPU-a', 'GPU-b']
        >>> ProcessFacts(gpus=gpus, visible_devices="").first_gpu
        ''
        """
        if self.visible_devices is None:
            return self.gpus[0].uuid if self.gpus else ""
        first = self.visible_devices.partition(",")[0].strip()
        if first.isdigit():
            return self.gpus[int(first)].uuid if int(first) < len(self.gpus) else ""
        if first.startswith("MIG-"):
            return first
        whole = [gpu.uuid for gpu in self.gpus if first and gpu.uuid.startswith(first)]
        return whole[0] if whole else ""


@dataclass(frozen=True)
class Clock:
    """A process's clock, against that of the machine that asks: it lies between these bounds."""

    earliest_s: float
    latest_s: float


@dataclass(frozen=True)
class FolderSeen:
    """A process's view of the folder that all are to share.

    Attributes:
        trouble: The error of writing there; "" for none.
        filesystem: Type and source, such as `nfs4 nas:/runs`.
        missing: The places whose files are not there.
    """

    trouble: str = ""
    free_bytes: int = 0
    filesystem: str = ""
    missing: tuple[ProcessPlace, ...] = ()


@dataclass(frozen=True)
class DataSeen:
    """A process's view of the data: files, their size, and a digest of names and sizes."""

    trouble: str = ""
    num_files: int = 0
    size_bytes: int = 0
    digest: str = ""


@dataclass(frozen=True)
class Link:
    """One connection; `trouble`: its error, "" for none."""

    source: ProcessPlace
    target: ProcessPlace
    address: str
    trouble: str = ""
    rendezvous: bool = False


@dataclass(frozen=True)
class ClusterSeen:
    """Everything that `distrain doctor` has seen of a cluster.

    Attributes:
        silent: The places that gave no answer, with the reason.
        deaf: The places that could not listen, with the reason.
        device: The device of the ranks: `auto`, `cpu` or `cuda`.
        run_root: The folder of runs; "" for none.
    """

    scheduler: str
    facts: Mapping[ProcessPlace, ProcessFacts]
    silent: Mapping[ProcessPlace, str] = field(default_factory=dict)
    clocks: Mapping[ProcessPlace, Clock] = field(default_factory=dict)
    folders: Mapping[ProcessPlace, FolderSeen] = field(default_factory=dict)
    data: Mapping[ProcessPlace, DataSeen] = field(default_factory=dict)
    links: tuple[Link, ...] = ()
    deaf: Mapping[ProcessPlace, str] = field(default_factory=dict)
    device: str = "auto"
    run_root: str = ""
    data_path: str = ""

    def of(self, *roles: ProcessRole) -> dict[ProcessPlace, ProcessFacts]:
        return {place: facts for place, facts in self.facts.items() if place.role in roles}
