"""Facts about a cluster's processes, and findings about the processes, as values; no I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter


class ProcessRole(StrEnum):
    SCHEDULER = "scheduler"
    WORKER = "worker"
    CLIENT = "this machine"


@dataclass(frozen=True, order=True)
class ProcessPlace:
    """A process: the cluster's scheduler, a worker, or this process (the client)."""

    role: ProcessRole
    address: str = ""  # as Dask writes it; "" for this machine
    name: str = ""  # a worker's name, if it has one

    def __str__(self) -> str:
        if self.role is not ProcessRole.WORKER:
            return str(self.role)
        return f"worker {self.name} ({self.address})" if self.name else f"worker {self.address}"


@dataclass(frozen=True)
class GpuFacts:
    """A GPU and its memory, as the driver describes them."""

    uuid: str
    name: str
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True)
class ProcessFacts:
    """A process's facts about itself and its machine."""

    hostname: str = ""
    # boot id and network namespace: equal for processes that share the network of a machine
    network: str = ""
    user: str = ""
    python: str = ""
    # by package; "" if it is not installed
    versions: dict[str, str] = field(default_factory=dict)
    torch_cuda: str = ""  # the version of CUDA that torch was built for; "" for a CPU build
    host: str = ""  # the host of the process's Dask address
    interface: str = ""  # the network interface of its ranks
    rank_address: str = ""  # that interface's address, at which gloo listens
    interface_trouble: str = ""  # the reason why there is no usable interface
    # the IP addresses of all interfaces
    interfaces: dict[str, list[str]] = field(default_factory=dict)
    # the addresses to which the machine's own name resolves
    name_addresses: list[str] = field(default_factory=list)
    shm_bytes: int = 0  # the size of /dev/shm; 0 if it cannot be written
    shm_trouble: str = ""  # the reason why it cannot be written
    memory_bytes: int = 0
    available_bytes: int = 0
    open_files: int = -1  # the limit of open files; -1: unlimited
    locked_bytes: int = -1  # the limit of locked memory; -1: unlimited
    port_range: list[int] = field(default_factory=list)  # the kernel's ephemeral ports
    gpus: list[GpuFacts] = field(default_factory=list)
    visible_devices: str | None = None  # `CUDA_VISIBLE_DEVICES`; `None` if it is not set
    driver: str = ""
    cuda_driver: str = ""  # the newest CUDA version that the driver supports
    infiniband: list[str] = field(default_factory=list)  # names of InfiniBand devices
    rendezvous_ports: str = ""  # `DISTRAIN_RENDEZVOUS_PORTS`
    asked_interface: str = ""  # `DISTRAIN_INTERFACE`

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "ProcessFacts":
        """Return the facts in a process's answer.

        The process may have another version of distrain: unknown fields are ignored, and missing
        fields get their defaults.
        """
        return TypeAdapter(cls).validate_python(values)

    @property
    def first_gpu(self) -> str:
        """The UUID of the GPU that is device 0 in CUDA; "" if there is none.

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
class FolderSeen:
    """The folder of runs as one process sees it; all processes should see the same folder."""

    trouble: str = ""  # the error when writing there; "" for none
    free_bytes: int = 0
    filesystem: str = ""  # type and source, such as `nfs4 nas:/runs`
    missing: tuple[ProcessPlace, ...] = ()  # the processes whose files are not visible here


@dataclass(frozen=True)
class Link:
    """A tested connection; `trouble` is its error, or "" if it worked.

    With `rendezvous`, the target is one of the scheduler's ports for the stores through which ranks
    find each other.
    """

    source: ProcessPlace
    target: ProcessPlace
    address: str
    trouble: str = ""
    rendezvous: bool = False


@dataclass(frozen=True)
class ClusterFacts:
    """Everything that `distrain doctor` collected about a cluster."""

    scheduler: str
    facts: Mapping[ProcessPlace, ProcessFacts]
    # the processes that did not answer, with the reason
    silent: Mapping[ProcessPlace, str] = field(default_factory=dict)
    folders: Mapping[ProcessPlace, FolderSeen] = field(default_factory=dict)
    links: tuple[Link, ...] = ()
    # the processes that could not listen, with the reason
    not_listening: Mapping[ProcessPlace, str] = field(default_factory=dict)
    device: str = "auto"  # the device of the ranks: `auto`, `cpu` or `cuda`
    run_root: str = ""  # the folder of runs; "" for none

    def of(self, *roles: ProcessRole) -> dict[ProcessPlace, ProcessFacts]:
        return {place: facts for place, facts in self.facts.items() if place.role in roles}


class Severity(StrEnum):
    MISTAKE = "mistake"  # jobs fail, or do not run as requested
    WARNING = "warning"  # jobs run, but with a risk


@dataclass(frozen=True)
class Finding:
    """A fault of one or several processes that a check found."""

    severity: Severity
    check: str  # the name of the check, such as `run root`
    places: tuple[ProcessPlace, ...]  # the processes with the fault
    fault: str  # in words
    mend: str  # how to correct it


def mistake(check: str, places: tuple[ProcessPlace, ...], fault: str, mend: str) -> Finding:
    return Finding(Severity.MISTAKE, check, places, fault, mend)


def warning(check: str, places: tuple[ProcessPlace, ...], fault: str, mend: str) -> Finding:
    return Finding(Severity.WARNING, check, places, fault, mend)


def by_value(values: Mapping[ProcessPlace, str]) -> dict[str, tuple[ProcessPlace, ...]]:
    """Return the processes with each value, by value.

    The value of the most processes comes first.
    """
    grouped: dict[str, list[ProcessPlace]] = {}
    for place, value in sorted(values.items()):
        grouped.setdefault(value, []).append(place)
    most_first = sorted(grouped.items(), key=lambda item: -len(item[1]))
    return {value: tuple(places) for value, places in most_first}
