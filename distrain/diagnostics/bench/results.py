"""The results of a bench, as values and as versioned JSON."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median, stdev
from typing import Any, Literal

from pydantic import TypeAdapter

from distrain.errors import InputError, problem_in

SCHEMA_VERSION = 1

Scaling = Literal["weak", "strong"]


@dataclass(frozen=True)
class Measure:
    """Repeated measurements of one quantity at one place."""

    name: str  # such as `host.triad`, `all_to_all.off_node`, `link`
    place: str  # such as `node a`, `rank 3`, `link a > b`; "" for the whole cluster
    unit: str  # `s` (lower is better), or a rate such as `bytes/s` (higher is better)
    values: tuple[float, ...]  # every repetition, in `unit`
    size_bytes: int = 0  # the size of a message, an array or a file; 0 if not applicable

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
        """The standard error of the median; `None` for fewer than three repetitions."""
        if len(self.values) < 3:
            return None
        return 1.2533 * stdev(self.values) / math.sqrt(len(self.values))


@dataclass(frozen=True)
class Step:
    ranks: int
    scaling: Scaling  # `weak`: fixed rows per rank; `strong`: fixed total rows
    rows: int  # of a step, all ranks together
    rows_per_s: tuple[float, ...]  # all ranks together, every repetition
    seconds: tuple[Mapping[str, float], ...]  # each rank's seconds in a step by phase
    hosts: tuple[str, ...] = ()  # each rank's host; empty if unknown

    def __post_init__(self) -> None:
        if self.ranks < 1 or self.rows < 1 or len(self.seconds) != self.ranks:
            raise ValueError(f"a step on {self.ranks} ranks has times of {len(self.seconds)}")
        if len(self.hosts) not in (0, self.ranks):
            raise ValueError(f"a step on {self.ranks} ranks has hosts of {len(self.hosts)}")
        if not self.rows_per_s or not all(0 < rate < math.inf for rate in self.rows_per_s):
            raise ValueError(f"a step on {self.ranks} ranks has a rate that is not positive")
        if not all(0 <= s < math.inf for of_rank in self.seconds for s in of_rank.values()):
            raise ValueError(f"a step on {self.ranks} ranks has a phase whose time is not finite")

    @property
    def rate(self) -> float:
        return median(self.rows_per_s)

    def place(self, rank: int) -> str:
        """Return a rank's name, with its host if known.

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
        """The step on the most ranks, with weak scaling if there are two; `None` if none."""
        return max(self.steps, key=lambda s: (s.ranks, s.scaling == "weak"), default=None)


def bench_json(bench: Bench) -> dict[str, Any]:
    return {"schema_version": SCHEMA_VERSION, **asdict(bench)}


_BENCH = TypeAdapter(Bench)


def text_of(path: Path) -> str:
    """Read a text file for the evaluation of a bench; `InputError` if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"the file cannot be read: {error}",
            where={"file": str(path)},
            hint="`distrain bench --out FOLDER` writes FOLDER/bench.json; see `distrain bench "
            "--help` for its other inputs.",
        ) from error


def load_bench(path: Path) -> Bench:
    """Read a `bench.json`; raises `InputError` like `text_of` and `parse_bench`."""
    return parse_bench(text_of(path), str(path))


def parse_bench(text: str | bytes, where: str = "") -> Bench:
    """Parse the text of a `bench.json`, ignoring unknown fields.

    Raises `InputError` if it is something else, or has a later schema version. `where` names the
    file in errors.
    """
    try:
        values = json.loads(text)
        if not isinstance(values, dict):
            raise ValueError("it is not a JSON object")
        version = int(values["schema_version"])
        if version <= SCHEMA_VERSION:
            return _BENCH.validate_python(values)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"not a document of `distrain bench`: {problem_in(error)}",
            where={"file": where} if where else {},
            hint="`distrain bench --out FOLDER` writes one to FOLDER/bench.json.",
        ) from error
    raise InputError(
        f"the bench has schema {version}, but this version reads up to {SCHEMA_VERSION}",
        where={"file": where} if where else {},
        hint="Read it with the version of distrain that wrote it, or a later one.",
    )
