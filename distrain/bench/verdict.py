"""What a bench comes to. Pure.

Its figures are compared with what a type of machine must reach, from a YAML file, with each other,
and with those of an earlier bench, where a change is judged by the measured spread; what is wrong
with GPUs and nodes stands beside them.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter

from distrain.bench.document import Bench, Measure, text_of
from distrain.bench.limits import StepLimits, find_limits, own_seconds
from distrain.errors import InputError, problem_in

Judgement = Literal["better", "worse", "same", "unknown"]

_STANDARD_ERRORS = 4.0
_LEAST_SHARE = 0.01
"""A change below this share is none, however little a figure spreads."""


@dataclass(frozen=True)
class FigureChange:
    """A figure before and now; `share`: its gain (or loss, negative) of the earlier one."""

    name: str
    place: str
    size_bytes: int
    share: float
    judgement: Judgement


def find_changes(earlier: Bench, now: Bench) -> list[FigureChange]:
    """Figures of both benches, the greatest loss first.

    `unknown` is a figure with fewer than three repetitions in one of them. Benches of other modes
    or devices have none in common: their sizes, or their measures, differ.
    """
    if (earlier.mode, earlier.device) != (now.mode, now.device):
        return []
    before = {_key(measure): measure for measure in _figures(earlier)}
    after = _figures(now)
    usual = _usual_errors([*before.values(), *after])
    pairs = [(before[_key(m)], m) for m in after if _key(m) in before]
    changes = [_change(old, new, usual.get(_group(new), 0.0)) for old, new in pairs]
    return sorted(changes, key=lambda change: change.share)


def _figures(bench: Bench) -> list[Measure]:
    steps = [
        Measure(f"step.{s.scaling}", f"{s.ranks} ranks", "rows/s", s.rows_per_s)
        for s in bench.steps
    ]
    return [*bench.measures, *steps]


def _key(measure: Measure) -> tuple[str, str, str, int]:
    return measure.name, measure.place, measure.unit, measure.size_bytes


def _group(measure: Measure) -> tuple[str, int]:
    return measure.name, measure.size_bytes


def _usual_errors(measures: Sequence[Measure]) -> Mapping[tuple[str, int], float]:
    """The median of the places' relative standard errors, by measure.

    Few repetitions agree by chance now and then: of hundreds of links some would seem to change.
    """
    errors: dict[tuple[str, int], list[float]] = defaultdict(list)
    for measure in measures:
        if measure.standard_error is not None:
            errors[_group(measure)].append(measure.standard_error / measure.median)
    return {group: median(values) for group, values in errors.items()}


def _change(old: Measure, new: Measure, usual: float) -> FigureChange:
    share = new.median / old.median - 1
    gained = -share if new.less_is_better else share
    return FigureChange(
        new.name, new.place, new.size_bytes, gained, _judge(old, new, gained, usual)
    )


def _judge(old: Measure, new: Measure, gained: float, usual: float) -> Judgement:
    errors = old.standard_error, new.standard_error
    if errors[0] is None or errors[1] is None:
        return "unknown"
    shares = max(errors[0] / old.median, usual), max(errors[1] / new.median, usual)
    noise = _STANDARD_ERRORS * math.hypot(*shares)
    if abs(gained) <= max(noise, _LEAST_SHARE):
        return "same"
    return "better" if gained > 0 else "worse"


OUTLIER_SHARE = 0.05
_NOISE = 3.0
"""Standard errors that a figure must be off, so that noise makes no outlier."""


@dataclass(frozen=True)
class Outlier:
    """A place whose figure is off the median of its group."""

    place: str  # the rank, node or link
    name: str  # the measure
    off: float  # the share of the median by which it is better (positive) or worse (negative)
    is_of_two: bool = False  # whether it is the worse of two, and `off` a share of the better


def find_outliers(bench: Bench, share: float = OUTLIER_SHARE) -> list[Outlier]:
    """All of a bench, the worst first."""
    outliers = [*_of_measures(bench.measures, share), *_of_ranks(bench, share)]
    return sorted(outliers, key=lambda outlier: outlier.off)


def _of_measures(measures: Iterable[Measure], share: float) -> Iterable[Outlier]:
    groups: dict[tuple[str, str, int], list[Measure]] = defaultdict(list)
    for measure in measures:
        kind = measure.place.partition(" ")[0]
        if kind in ("node", "rank", "link"):
            groups[measure.name, kind, measure.size_bytes].append(measure)
    for (name, _, _), group in groups.items():
        if len(group) == 2:
            yield from _worse_of_two(name, group, share)
            continue
        middle = median(m.median for m in group)
        for measure in group:
            off = measure.median / middle - 1
            noise = _NOISE * (measure.standard_error or 0.0) / middle
            if abs(off) > max(share, noise):
                yield Outlier(measure.place, name, -off if measure.less_is_better else off)


def _worse_of_two(name: str, pair: list[Measure], share: float) -> Iterable[Outlier]:
    """The worse of two places, if both have repetitions enough to tell."""
    low, high = sorted(pair, key=lambda measure: measure.median)
    worse, better = (high, low) if low.less_is_better else (low, high)
    if worse.standard_error is None or better.standard_error is None:
        return
    off = abs(worse.median - better.median) / better.median
    noise = _NOISE * math.hypot(worse.standard_error, better.standard_error) / better.median
    if off > max(share, noise):
        yield Outlier(worse.place, name, -off, is_of_two=True)


def _of_ranks(bench: Bench, share: float) -> Iterable[Outlier]:
    step = bench.largest_step
    if step is None or step.ranks < 3:
        return
    own = [own_seconds(of_rank) for of_rank in step.seconds]
    middle = median(own)
    for rank, seconds in enumerate(own):
        if middle > 0 and abs(seconds / middle - 1) > share:
            yield Outlier(step.place(rank), f"step on {step.ranks} ranks", 1 - seconds / middle)


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Limits = Annotated[Mapping[str, Positive], BeforeValidator(lambda limits: limits or {})]


@dataclass(frozen=True)
class Miss:
    """A figure that misses a threshold; `measured` is `None` if it was never measured."""

    name: str
    place: str
    measured: float | None
    wanted: float
    unit: str = ""


@dataclass(frozen=True)
class Thresholds:
    __pydantic_config__ = ConfigDict(extra="forbid", coerce_numbers_to_str=True)

    machine: str
    # by measure, the least that every place must reach at its best size
    least: Limits = field(default_factory=dict)
    # by measure, the most that any place may have at its best size, for times
    most: Limits = field(default_factory=dict)
    outlier_share: Positive = OUTLIER_SHARE


_THRESHOLDS = TypeAdapter(Thresholds)


def load_thresholds(path: Path) -> Thresholds:
    """Read a machine type's file; errors as of `parse_thresholds`."""
    return parse_thresholds(text_of(path), str(path))


def parse_thresholds(text: str, where: str = "") -> Thresholds:
    """Read a machine type's file; `InputError` for another file or an unknown field."""
    try:
        thresholds = _THRESHOLDS.validate_python(yaml.safe_load(text))
        if not thresholds.least and not thresholds.most:
            raise ValueError("neither `least` nor `most` names a measure")
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(
            f"the thresholds cannot be used: {problem_in(error)}",
            where={"file": where} if where else {},
            hint="It wants `machine: NAME`, and `least:` or `most:` with `MEASURE: NUMBER`.",
        ) from error
    return thresholds


def find_misses(measures: Sequence[Measure], thresholds: Thresholds) -> list[Miss]:
    """The figures that miss a threshold, and those that were not measured."""
    sides = ((thresholds.least, False), (thresholds.most, True))
    return [
        miss
        for limits, is_most in sides
        for name, wanted in limits.items()
        for miss in _misses(name, wanted, is_most, measures)
    ]


def _misses(name: str, wanted: float, is_most: bool, measures: Sequence[Measure]) -> list[Miss]:
    best: dict[str, Measure] = {}
    for measure in (m for m in measures if m.name == name):
        other = best.setdefault(measure.place, measure)
        if (measure.median < other.median) if is_most else (measure.median > other.median):
            best[measure.place] = measure
    if not best:
        return [Miss(name, "", None, wanted)]
    return [
        Miss(name, place, m.median, wanted, m.unit)
        for place, m in best.items()
        if (m.median > wanted if is_most else m.median < wanted)
    ]


_SLOWER = 0.95
"""A rate below this share of another is slower."""


def find_troubles(bench: Bench) -> list[str]:
    """Sentences on GPUs that fail an acceptance, and on how nodes differ in them."""
    return [*_of_gpus(bench), *_of_products(bench), *_differences(bench)]


def find_remarks(bench: Bench) -> list[str]:
    """Sentences on what is odd and fails nothing: two threads that load less than one."""
    rates = {(m.name, m.place): m.median for m in bench.measures}
    return [
        f"{place}: two threads of a loader are slower than one, {rate:,.0f} of "
        f"{rates['loader.threads_1', place]:,.0f} rows/s"
        for (name, place), rate in rates.items()
        if name == "loader.threads_2"
        and rate < _SLOWER * rates.get(("loader.threads_1", place), 0.0)
    ]


def _of_gpus(bench: Bench) -> Iterator[str]:
    for node in bench.inventory:
        for index, gpu in enumerate(node.get("gpu_facts", ())):
            for words in _of_gpu(gpu):
                yield f"node {node['node']} gpu {index}: {words}"


def _of_gpu(gpu: Mapping[str, Any]) -> Iterator[str]:
    if gpu.get("uncorrected_errors"):
        yield f"{gpu['uncorrected_errors']} uncorrected memory errors since its driver was loaded"
    if gpu.get("remap_failed"):
        yield "a row of its memory could not be replaced by a spare one"
    elif gpu.get("remap_pending"):
        yield "a row of its memory is replaced at its next reset"
    if gpu.get("throttled_by"):
        yield f"its clocks are held down under load: {', '.join(gpu['throttled_by'])}"
    for now, most, words in zip(
        gpu.get("pcie", ()), gpu.get("pcie_most", ()), ("generation", "lanes"), strict=False
    ):
        if now and most and now < most:
            yield f"PCIe {words}: {now} of {most}, under load"


def _of_products(bench: Bench) -> Iterator[str]:
    """GPUs that get slower while they multiply."""
    for one in bench.measures:
        if one.name == "gpu.product" and len(one.values) > 3:
            begun, end = (median(half) for half in _halves(one))
            if end < _SLOWER * begun:
                yield f"{one.place}: products get {100 * (1 - end / begun):.0f} % slower under load"


def _halves(one: Measure) -> tuple[tuple[float, ...], tuple[float, ...]]:
    middle = len(one.values) // 2
    return one.values[:middle], one.values[middle:]


def _differences(bench: Bench) -> Iterator[str]:
    for words, key in (("driver", "driver"), ("ECC mode", "ecc"), ("type", "name")):
        found = {
            str(gpu[key]): str(node["node"])
            for node in bench.inventory
            for gpu in node.get("gpu_facts", ())
            if gpu.get(key) is not None
        }
        if len(found) > 1:
            yield f"GPUs differ in {words}: " + ", ".join(f"{v} on {n}" for v, n in found.items())
    counts = {len(node.get("gpus", ())): str(node.get("node")) for node in bench.inventory}
    if len(counts) > 1:
        yield "nodes differ in GPUs: " + ", ".join(f"{c} on {n}" for c, n in counts.items())


@dataclass(frozen=True)
class BenchVerdict:
    limits: StepLimits | None  # `None` without steps
    outliers: tuple[Outlier, ...]
    misses: tuple[Miss, ...]
    changes: tuple[FigureChange, ...]
    troubles: tuple[str, ...] = ()  # of GPUs, beside their figures
    remarks: tuple[str, ...] = ()  # which fail nothing
    accepting: bool = False  # whether a machine type's thresholds were given
    comparing: bool = False  # whether an earlier bench was given

    @property
    def slow(self) -> tuple[Outlier, ...]:
        """Outliers that are worse than the others."""
        return tuple(outlier for outlier in self.outliers if outlier.off < 0)

    @property
    def worse(self) -> tuple[FigureChange, ...]:
        """Figures that are worse than in the earlier bench, beyond their spread."""
        return tuple(change for change in self.changes if change.judgement == "worse")

    @property
    def passed(self) -> bool:
        """No threshold missed, nothing worse; of an acceptance, no slow outlier and no trouble."""
        is_bad = self.accepting and bool(self.slow or self.troubles)
        return not (self.misses or self.worse or is_bad or self.has_nothing_common)

    @property
    def has_nothing_common(self) -> bool:
        """Whether an earlier bench was given and none of its figures is in this one."""
        return self.comparing and not self.changes


def judge(
    bench: Bench, thresholds: Thresholds | None = None, earlier: Bench | None = None
) -> BenchVerdict:
    """Judge a bench, by a machine type's thresholds and against an earlier one if given."""
    share = thresholds.outlier_share if thresholds else OUTLIER_SHARE
    return BenchVerdict(
        find_limits(bench),
        tuple(find_outliers(bench, share)),
        tuple(find_misses(bench.measures, thresholds)) if thresholds else (),
        tuple(find_changes(earlier, bench)) if earlier else (),
        tuple(find_troubles(bench)),
        tuple(find_remarks(bench)),
        thresholds is not None,
        earlier is not None,
    )
