"""A machine file: what a node has and how fast it is, each number with where it comes from.

YAML: a mapping of the fields of `MachineFile`. A number is written as `{value, source}`, so that
nobody has to guess whether it was measured, published or estimated. Bytes and seconds are plain.
"""

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any

from distrain.errors import SpecError
from distrain.jobs.spec.load import parse_yaml

GIVEN = Path(__file__).with_name("machines")  # the files that come with this package

_WORDS = ("name", "device")
_WHOLE = ("ranks_per_node", "nodes_per_host")


@dataclass(frozen=True)
class MachineFile:
    """A node of a cluster, all nodes of which are alike."""

    name: str
    device: str  # `cuda` or `cpu`: where ranks train
    ranks_per_node: int
    cores: int  # of a node, which its ranks share; a fraction of a quota counts
    host_memory_bytes: float  # of a node, as is `host_bytes_per_s`, the speed of its memory
    host_bytes_per_s: float
    device_memory_bytes: float  # of one GPU; on the CPU, a rank's share of the node's memory
    device_bytes_per_s: float  # how fast a GPU's memory is; on the CPU, the memory of the node
    flops_per_s: float  # what a rank's dense layers reach: of a GPU, or of one core
    pcie_bytes_per_s: float  # from the host to one GPU, with all GPUs of the node at work
    link_bytes_per_s: float  # of a rank's large all-to-all among the ranks of its node
    link_latency_s: float
    network_bytes_per_s: float  # the same of one among nodes
    network_latency_s: float
    decode_values_per_s: float  # values of parquet columns that a core decodes
    step_overhead_s: float  # what a step takes whatever its rows are: launches, Python
    # measured: a rank's step per row on one core or GPU, without decoding and exchange. It replaces
    # what `flops_per_s` and `device_bytes_per_s` would give; 0: none
    train_s_per_row: float = 0.0
    # as `link_bytes_per_s`, of all-gathers, as which the three fields below are of all-reduces and
    # of the network; 0: as in an all-to-all
    link_all_gather_bytes_per_s: float = 0.0
    link_all_reduce_bytes_per_s: float = 0.0
    network_all_gather_bytes_per_s: float = 0.0
    network_all_reduce_bytes_per_s: float = 0.0
    # what a core of the host works for a byte that a rank sends: for routes, copies, the kernel's
    # network, and adding up; 0: next to nothing
    exchange_cpu_s_per_byte: float = 0.0
    # nodes that are one machine, as virtual machines or network namespaces are: `cores`,
    # `host_memory_bytes` and `host_bytes_per_s` are then of all of them
    nodes_per_host: int = 1
    sources: Mapping[str, str] = field(default_factory=dict)  # where each number comes from

    def on_host(self, num_ranks: int) -> int:
        return min(num_ranks, self.ranks_per_node * self.nodes_per_host)

    def link_rate(self, collective: str) -> float:
        return float(getattr(self, f"link_{collective}_bytes_per_s", 0.0)) or self.link_bytes_per_s

    def network_rate(self, collective: str) -> float:
        found = float(getattr(self, f"network_{collective}_bytes_per_s", 0.0))
        return found or self.network_bytes_per_s


def load_machine(name: str) -> MachineFile:
    """Read a machine file, by its path or as the name of one that comes with this package."""
    path = GIVEN / f"{name}.yaml" if name in given_machines() else Path(name)
    try:
        text = path.read_text()
    except OSError as error:
        raise SpecError(
            f"cannot read the machine file {name}: {error.strerror or error}",
            hint=f"Name a file, or one of: {', '.join(given_machines())}.",
        ) from None
    return machine_of(parse_yaml(text), name)


def given_machines() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in GIVEN.glob("*.yaml")))


def machine_of(document: Any, name: str = "machine") -> MachineFile:
    """The machine of a parsed document; `SpecError` for any mistake in it."""
    if not isinstance(document, Mapping):
        raise _refused(name, "is no mapping of fields")
    known = {f.name: f.default is MISSING for f in fields(MachineFile) if f.name != "sources"}
    unknown = sorted(set(map(str, document)) - set(known))
    if unknown:
        raise _refused(name, f"has unknown fields: {', '.join(unknown)}")
    missing = [field_ for field_, needed in known.items() if needed and field_ not in document]
    if missing:
        raise _refused(name, f"does not say: {', '.join(missing)}")
    values: dict[str, Any] = {word: str(document[word]) for word in _WORDS}
    if values["device"] not in ("cuda", "cpu"):
        raise _refused(name, f"device is {values['device']!r}, not cuda or cpu")
    sources = {}
    for field_ in known:
        if field_ in document and field_ not in _WORDS:
            values[field_], sources[field_] = _number(name, field_, document[field_])
    return MachineFile(**values, sources=sources)


def may_be_zero() -> frozenset[str]:
    """The fields that may be 0: latencies, and those that may be left out."""
    latencies = ("link_latency_s", "network_latency_s", "step_overhead_s")
    return frozenset(latencies) | {f.name for f in fields(MachineFile) if f.default == 0}


def _number(name: str, field_: str, said: Any) -> tuple[float, str]:
    if not isinstance(said, Mapping) or set(said) != {"value", "source"}:
        raise _refused(name, f"{field_} is not written as {{value: ..., source: ...}}")
    value, source = said["value"], said["source"]
    least = 0 if field_ in may_be_zero() else math.ulp(0.0)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not least <= value < math.inf:
        raise _refused(name, f"{field_} cannot be {value!r}")
    if field_ in _WHOLE and value != int(value):
        raise _refused(name, f"{field_} is a whole number, not {value!r}")
    if not isinstance(source, str) or not source.strip():
        raise _refused(name, f"{field_} names no source")
    return (int(value) if field_ in _WHOLE else float(value)), source


def _refused(name: str, what: str) -> SpecError:
    return SpecError(
        f"the machine file {name} {what}",
        hint=f"docs/scaling.md has the fields; {GIVEN}/ has files to begin with.",
    )
