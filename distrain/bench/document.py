"""A bench's document: what was measured where, as values and as versioned JSON. Pure."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from statistics import median, stdev
from typing import Any, Literal

from distrain.errors import InputError

SCHEMA_VERSION = 1

Scaling = Literal["weak", "strong"]


@dataclass(frozen=True)
class Measure:
    """One figure of one place, measured some times.

    Attributes:
        name: Such as `host.triad`, `all_to_all.off_node`, `link`.
        place: Such as `node a`, `rank 3`, `link a > b`; "" for the whole cluster.
        unit: `s`, of which less is better, or a rate such as `bytes/s`, of which more is better.
        values: Every repetition, in `unit`.
        size_bytes: Bytes of a message or a file; 0 where that has no meaning.
    """

    name: str
    place: str
    unit: str
    values: tuple[float, ...]
    size_bytes: int = 0

    def __post_init__(self) -> None:
        if not self.values or not all(0 < value < math.inf for value in self.values):
            raise ValueError(f"{self.name} of {self.place!r} has a value that is not positive")

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def less_is_better(self) -> bool:
        return self.unit == "s"

    @property
    def standard_error(self) -> float | None:
        """The median's; `None` for fewer than three repetitions."""
        if len(self.values) < 3:
            return None
        return 1.2533 * stdev(self.values) / math.sqrt(len(self.values))


@dataclass(frozen=True)
class Step:
    """Training steps on some ranks.

    Attributes:
        scaling: `weak` keeps the rows of a rank, `strong` those of all ranks together.
        rows: Rows of a step, all ranks together.
        rows_per_s: All ranks together, every repetition.
        seconds: Each rank's seconds in a step by phase.
        hosts: Each rank's host; empty where unknown.
    """

    ranks: int
    scaling: Scaling
    rows: int
    rows_per_s: tuple[float, ...]
    seconds: tuple[Mapping[str, float], ...]
    hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.ranks < 1 or self.rows < 1 or len(self.seconds) != self.ranks:
            raise ValueError(f"a step on {self.ranks} ranks has seconds of {len(self.seconds)}")
        if len(self.hosts) not in (0, self.ranks):
            raise ValueError(f"a step on {self.ranks} ranks has hosts of {len(self.hosts)}")
        if not self.rows_per_s or not all(0 < rate < math.inf for rate in self.rows_per_s):
            raise ValueError(f"a step on {self.ranks} ranks has a rate that is not positive")
        if self.scaling not in ("weak", "strong"):
            raise ValueError(f"scaling is weak or strong, not {self.scaling!r}")
        if not all(0 <= s < math.inf for of_rank in self.seconds for s in of_rank.values()):
            raise ValueError(f"a step on {self.ranks} ranks has a phase of no finite time")

    @property
    def rate(self) -> float:
        return median(self.rows_per_s)

    def place(self, rank: int) -> str:
        """A rank's name, with its host where that is known.

        >>> Step(1, "weak", 8, (10.0,), ({},), ("node-a",)).place(0)
        'rank 0 on node-a'
        """
        return f"rank {rank} on {self.hosts[rank]}" if self.hosts else f"rank {rank}"


@dataclass(frozen=True)
class Bench:
    mode: str
    device: str
    inventory: tuple[Mapping[str, Any], ...] = ()
    measures: tuple[Measure, ...] = ()
    steps: tuple[Step, ...] = ()
    left_out: tuple[str, ...] = ()
    made: Mapping[str, Any] = field(default_factory=dict)

    @property
    def largest_step(self) -> Step | None:
        """The step on the most ranks, weak scaling first."""
        return max(self.steps, key=lambda s: (s.ranks, s.scaling == "weak"), default=None)


def bench_json(bench: Bench) -> dict[str, Any]:
    return {"schema_version": SCHEMA_VERSION, **asdict(bench)}


def parse_bench(text: str | bytes, where: str = "") -> Bench:
    """Read a document, without fields that this version does not have; `InputError` for others."""
    try:
        values = json.loads(text)
        version = int(values["schema_version"])
        if version <= SCHEMA_VERSION:
            return _bench(values)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"this is no document of `distrain bench`: {type(error).__name__}: {error}",
            where={"file": where} if where else {},
            hint="A bench of this version has it in its JSON file.",
        ) from error
    raise InputError(
        f"the bench has schema {version}, and this version reads up to {SCHEMA_VERSION}",
        where={"file": where} if where else {},
        hint="Read it with the version of distrain that wrote it, or a later one.",
    )


def _bench(values: Mapping[str, Any]) -> Bench:
    return Bench(
        mode=str(values["mode"]),
        device=str(values["device"]),
        inventory=tuple(dict(node) for node in values.get("inventory", ())),
        measures=tuple(_measure(m) for m in values.get("measures", ())),
        steps=tuple(_step(s) for s in values.get("steps", ())),
        left_out=tuple(str(words) for words in values.get("left_out", ())),
        made=dict(values.get("made", {})),
    )


def _measure(values: Mapping[str, Any]) -> Measure:
    return Measure(
        name=str(values["name"]),
        place=str(values.get("place", "")),
        unit=str(values["unit"]),
        values=tuple(float(value) for value in values["values"]),
        size_bytes=int(values.get("size_bytes", 0)),
    )


def _step(values: Mapping[str, Any]) -> Step:
    return Step(
        ranks=int(values["ranks"]),
        scaling=values["scaling"],
        rows=int(values["rows"]),
        rows_per_s=tuple(float(rate) for rate in values["rows_per_s"]),
        seconds=tuple({str(p): float(s) for p, s in of.items()} for of in values["seconds"]),
        hosts=tuple(str(host) for host in values.get("hosts", ())),
    )
