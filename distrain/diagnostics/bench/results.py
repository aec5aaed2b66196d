"""The results of a bench, as values and as versioned JSON."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median, stdev
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, TypeAdapter

from distrain.errors import InputError, problems_in

SCHEMA_VERSION = 1

Scaling = Literal["weak", "strong"]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Measure:
    """Repeated measurements of one quantity at one place.

    A place is a node, a GPU, a link, or several ranks.
    """

    name: str  # such as `host.triad`, `all_to_all.off_node`, `link`
    place: str  # such as `node a`, `rank 3`, `link a > b`; "" for the whole cluster
    unit: str  # `s` (lower is better), or a rate such as `bytes/s` (higher is better)
    values: Annotated[tuple[Positive, ...], Field(min_length=1)]  # every repetition, in `unit`
    size_bytes: int = 0  # the size of a message, an array or a file; 0 if not applicable

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
    """Measurements of training steps on a number of ranks."""

    ranks: PositiveInt
    scaling: Scaling  # `weak`: fixed rows per rank; `strong`: fixed total rows
    rows: PositiveInt  # of a step, all ranks together
    # all ranks together, every repetition
    rows_per_s: Annotated[tuple[Positive, ...], Field(min_length=1)]
    seconds: tuple[Mapping[str, Seconds], ...]  # each rank's seconds in a step by phase
    hosts: tuple[str, ...] = ()  # each rank's host; empty if unknown

    def __post_init__(self) -> None:
        if len(self.seconds) != self.ranks or len(self.hosts) not in (0, self.ranks):
            raise ValueError(f"a step on {self.ranks} ranks has times of {len(self.seconds)}")

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
    """The results of a bench of a cluster."""

    mode: str  # the name of the sizes
    device: str  # `cpu` or `cuda`
    inventory: tuple[Mapping[str, Any], ...] = ()  # each host, as `take_inventory` describes it
    measures: tuple[Measure, ...] = ()
    steps: tuple[Step, ...] = ()
    left_out: tuple[str, ...] = ()  # texts on measures that were not made, with the reasons
    made: Mapping[str, Any] = field(default_factory=dict)  # the version of distrain

    @property
    def largest_step(self) -> Step | None:
        """The step on the most ranks; `None` without steps.

        If there is one with weak and one with strong scaling, it is the one with weak scaling.
        """
        return max(self.steps, key=lambda s: (s.ranks, s.scaling == "weak"), default=None)


@dataclass(frozen=True)
class BenchFinding:
    """A difference or a fault that the results of a bench show."""

    name: str  # the measure, or what is wrong
    place: str  # the node, rank, GPU or link; "" for the whole cluster
    text: str  # for people
    fails: bool = False  # whether the verdict is FAIL
    # relative difference from other places or the earlier bench; positive: better
    gain: float = 0.0


def quantity(value: float, unit: str) -> str:
    """Format a value with its unit.

    >>> quantity(21e9, "bytes/s"), quantity(0.002, "s"), quantity(1234567, "rows/s")
    ('21 GB/s', '2 ms', '1,234,567 rows/s')
    >>> quantity(11.8e6, "bytes/s")
    '11.8 MB/s'
    """
    if unit == "flop/s":
        return f"{value / 1e12:.3g} TFLOP/s"
    if unit == "bytes/s":
        return f"{value / 1e9:.3g} GB/s" if value >= 1e8 else f"{value / 1e6:.3g} MB/s"
    return f"{1e3 * value:.3g} ms" if unit == "s" else f"{value:,.0f} {unit}"


def bench_json(bench: Bench) -> dict[str, Any]:
    return {"schema_version": SCHEMA_VERSION, **asdict(bench)}


_BENCH = TypeAdapter(Bench)


def text_of(path: Path) -> str:
    """Return the text of a file that a bench is evaluated with; raises `InputError`."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"the file cannot be read: {error}",
            where={"file": str(path)},
            hint="`distrain bench --out FOLDER` writes FOLDER/bench.json; see `distrain bench "
            "--help` for its other inputs.",
        ) from error


def parse_bench(text: str | bytes, where: str = "") -> Bench:
    """Parse the text of a `bench.json`, ignoring unknown fields.

    Raises `InputError` if the text is not a `bench.json`, or has a later schema version. `where`
    names the file in errors.
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
            f"not a document of `distrain bench`: {problems_in(error)[0]}",
            where={"file": where} if where else {},
            hint="`distrain bench --out FOLDER` writes one to FOLDER/bench.json.",
        ) from error
    raise InputError(
        f"the bench has schema {version}, but this version reads up to {SCHEMA_VERSION}",
        where={"file": where} if where else {},
        hint="Read it with the version of distrain that wrote it, or a later one.",
    )
