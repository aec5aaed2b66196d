"""The rules for a single process of a cluster, as a table; no I/O."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from distrain.diagnostics.doctor.facts import (
    ClusterFacts,
    Finding,
    ProcessFacts,
    ProcessRole,
    Severity,
)
from distrain.formatting import byte_size
from distrain.jobs.addresses import is_loopback
from distrain.version import how_to_install

LEAST_SHARED_BYTES = 2**30
LEAST_MEMORY_BYTES = 4 * 2**30
LEAST_OPEN_FILES = 4096
LEAST_PORTS = 1000

_WORKERS = (ProcessRole.WORKER,)
_SCHEDULER = (ProcessRole.SCHEDULER,)
_BOTH = (*_WORKERS, *_SCHEDULER)


@dataclass(frozen=True)
class Rule:
    """A possible fault of one process, and how to correct it."""

    check: str
    roles: tuple[ProcessRole, ...]  # the roles of the processes to which it applies
    problem: Callable[[ClusterFacts, ProcessFacts], str]  # returns the fault; "" if there is none
    mend: str  # how to correct it, with `{f}` for the process's facts
    severity: Callable[[ClusterFacts, ProcessFacts], Severity] = lambda *_: Severity.MISTAKE


def judge_processes(seen: ClusterFacts) -> Iterator[Finding]:
    """Yield a finding for each rule and process that breaks it."""
    for rule in RULES:
        for place, facts in sorted(seen.of(*rule.roles).items()):
            if problem := rule.problem(seen, facts):
                mend, severity = rule.mend.format(f=facts), rule.severity(seen, facts)
                yield Finding(severity, rule.check, (place,), problem, mend)


def gpu_severity(seen: ClusterFacts, _: ProcessFacts | None = None) -> Severity:
    return Severity.MISTAKE if seen.device == "cuda" else Severity.WARNING


def _uses_gpu(seen: ClusterFacts, facts: ProcessFacts) -> bool:
    return seen.device != "cpu" and bool(facts.first_gpu)


def _has_several_hosts(seen: ClusterFacts) -> bool:
    """Return True if the processes are on several machines: the loopback is then not enough."""
    return len({facts.network for facts in seen.of(*_BOTH).values()}) > 1


def _listed(facts: ProcessFacts) -> str:
    interfaces = facts.interfaces.items()
    return ", ".join(f"{n} ({', '.join(found) or 'no address'})" for n, found in interfaces)


def _needs_newer_driver(facts: ProcessFacts) -> bool:
    return bool(facts.torch_cuda and facts.cuda_driver) and (
        int(facts.torch_cuda.partition(".")[0]) > int(facts.cuda_driver.partition(".")[0])
    )


def _little_memory(facts: ProcessFacts) -> str:
    """Return a text on the first GPU's free memory; "" if at least half is free, or unknown."""
    for gpu in facts.gpus:
        if gpu.uuid == facts.first_gpu and gpu.free_bytes < gpu.total_bytes / 2:
            free, total = byte_size(gpu.free_bytes), byte_size(gpu.total_bytes)
            return f"{free} of {total} of its {gpu.name} are free"
    return ""


def _num_ports(facts: ProcessFacts) -> int | None:
    """Return the number of the kernel's ephemeral ports; `None` if it is unknown."""
    ports = facts.port_range
    return ports[1] - ports[0] + 1 if len(ports) == 2 else None


def _overlaps(facts: ProcessFacts) -> bool:
    """Return True if rendezvous ports are ephemeral ports, which any program may get."""
    ends = facts.rendezvous_ports.split("-")
    if len(facts.port_range) != 2 or len(ends) != 2 or not all(map(str.isdigit, ends)):
        return False
    return facts.port_range[0] <= int(ends[1]) and int(ends[0]) <= facts.port_range[1]


def _warning(*_: object) -> Severity:
    return Severity.WARNING


RULES = (
    Rule(
        "interface",
        _WORKERS,
        lambda _, f: (
            f.interface_trouble and f"{f.interface_trouble}; {f.hostname} has {_listed(f)}"
        ),
        "Set DISTRAIN_INTERFACE to one of them for that worker, or unset it.",
    ),
    Rule(
        "address",
        _BOTH,
        lambda seen, f: (
            f"its address is {f.host}, which other hosts cannot reach"
            if is_loopback(f.host) and _has_several_hosts(seen)
            else ""
        ),
        "Start it with `--host` and the address of its network.",
    ),
    Rule(
        "interface",
        _BOTH,
        lambda seen, f: (
            f"its ranks would listen at {f.rank_address} ({f.interface})"
            if is_loopback(f.rank_address) and not is_loopback(f.host) and _has_several_hosts(seen)
            else ""
        ),
        "Set DISTRAIN_INTERFACE there to the interface of its network.",
    ),
    Rule(
        "host name",
        _BOTH,
        lambda seen, f: (
            f"its host name {f.hostname} resolves to {', '.join(f.name_addresses)}"
            if f.name_addresses
            and all(map(is_loopback, f.name_addresses))
            and _has_several_hosts(seen)
            else ""
        ),
        "Give {f.hostname} its real address in /etc/hosts, instead of {f.name_addresses[0]}: "
        "programs that look it up would tell others to connect to themselves.",
        _warning,
    ),
    Rule(
        "gpu",
        _WORKERS,
        lambda seen, f: (
            f"torch {f.versions.get('torch', '')} was built without CUDA"
            if _uses_gpu(seen, f) and not f.torch_cuda
            else ""
        ),
        f"{how_to_install('gpu')} there.",
        gpu_severity,
    ),
    Rule(
        "gpu",
        _WORKERS,
        lambda seen, f: (
            f"torch needs CUDA {f.torch_cuda}; its driver {f.driver} supports CUDA "
            f"{f.cuda_driver} at most"
            if _uses_gpu(seen, f) and _needs_newer_driver(f)
            else ""
        ),
        "Install a newer driver, or a torch that was built for that CUDA.",
    ),
    Rule(
        "gpu memory",
        _WORKERS,
        lambda seen, f: _little_memory(f) if _uses_gpu(seen, f) else "",
        "Run nvidia-smi there to see which processes use it.",
        _warning,
    ),
    Rule(
        "/dev/shm",
        _WORKERS,
        lambda _, f: f.shm_trouble,
        "Mount it with mode=1777, or let {f.user} write there.",
    ),
    Rule(
        "/dev/shm",
        _WORKERS,
        lambda _, f: (
            f"/dev/shm has {byte_size(f.shm_bytes)}, NCCL and loaders need 1 GiB"
            if f.shm_bytes < LEAST_SHARED_BYTES and not f.shm_trouble
            else ""
        ),
        "`docker run --shm-size=1g`; in Kubernetes an emptyDir with medium: Memory at /dev/shm; on "
        "a host `mount -o remount,size=50% /dev/shm`.",
        lambda seen, f: Severity.MISTAKE if _uses_gpu(seen, f) else gpu_severity(seen),
    ),
    Rule(
        "memory",
        _WORKERS,
        lambda _, f: (
            f"{byte_size(f.available_bytes)} of {byte_size(f.memory_bytes)} are free"
            if f.available_bytes < LEAST_MEMORY_BYTES
            else ""
        ),
        "Run `ps aux --sort=-rss` there to see what uses it; `distrain plan` shows a job's needs.",
        _warning,
    ),
    Rule(
        "open files",
        _BOTH,
        lambda _, f: (
            f"it may open {f.open_files} files" if 0 <= f.open_files < LEAST_OPEN_FILES else ""
        ),
        f"`ulimit -n {16 * LEAST_OPEN_FILES}` before it starts; LimitNOFILE= in systemd.",
        _warning,
    ),
    Rule(
        "locked memory",
        _BOTH,
        lambda _, f: (
            f"it may lock {byte_size(f.locked_bytes)}, but InfiniBand needs more"
            if f.infiniband and f.locked_bytes >= 0
            else ""
        ),
        "`ulimit -l unlimited` before it starts; LimitMEMLOCK=infinity in systemd.",
        _warning,
    ),
    Rule(
        "ports",
        _BOTH,
        lambda _, f: (
            f"net.ipv4.ip_local_port_range has {_num_ports(f)} ports, "
            f"{'-'.join(map(str, f.port_range))}"
            if (_num_ports(f) or LEAST_PORTS) < LEAST_PORTS
            else ""
        ),
        f"Each rank uses several per peer; set at least {LEAST_PORTS}.",
        _warning,
    ),
    Rule(
        "ports",
        _SCHEDULER,
        lambda _, f: (
            f"DISTRAIN_RENDEZVOUS_PORTS={f.rendezvous_ports} is within "
            f"{'-'.join(map(str, f.port_range))}"
            if _overlaps(f)
            else ""
        ),
        "The kernel gives those to any program: choose a range outside "
        "net.ipv4.ip_local_port_range.",
        _warning,
    ),
)
"""All rules, in the order in which their findings are reported."""
