"""What a column's facts suggest: a feature, a target, or that it is left out, each with why."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distrain.etl.features.inferring.facts import MOST, Facts
from distrain.etl.features.times import microseconds

_FEWEST_ROWS = 50
_UNIQUE_SHARE = 0.95
_RETURNING_SHARE = 0.05
_FEW_VALUES = 30
_MANY_VALUES = 1000
_FREE_TEXT_WORDS = 3.5
_SKEW = 5.0

_ID = re.compile(r"(^|_|[a-z])(ids?|key|code|no|nr|num|number|zip|sku)$|^(user|item)", re.I)
_TARGET = re.compile(
    r"^(is_?)?(label|target|y|click(ed|s)?|bought|purchased?|convert(ed)?|conversion|installed?|"
    r"churn(ed)?|default(ed)?|fraud|spam|outcome|response|survived)$",
    re.I,
)
_RATING = re.compile(r"rating|stars|score", re.I)


@dataclass(frozen=True)
class Feature:
    """A suggested feature.

    Attributes:
        name: The name that it is written under.
        settings: What the document says of it.
        reason: Why.
    """

    name: str
    settings: dict[str, Any]
    reason: str


@dataclass(frozen=True)
class Target:
    """A suggested target: the document's value, and why."""

    column: str
    value: Any
    reason: str


@dataclass(frozen=True)
class Suggestion:
    """What one column becomes.

    Attributes:
        facts: What the sample says of it.
        features: The features made of it.
        left_out: Why there are none.
    """

    facts: Facts
    features: tuple[Feature, ...] = field(default=())
    left_out: str = ""


def suggestion_of(facts: Facts, is_typed: bool) -> Suggestion:
    """What a column becomes; `is_typed` says that it is parquet's, whose texts are no numbers."""
    reason = _why_left_out(facts)
    if reason:
        return Suggestion(facts, left_out=reason)
    match facts.kind:
        case "time":
            return Suggestion(facts, _of_time(facts))
        case "list":
            return Suggestion(facts, (_of_list(facts),))
        case "truth":
            return Suggestion(facts, (_categorical(facts, "two values, and perhaps none"),))
        case "number" if not _is_category(facts):
            return Suggestion(facts, (_continuous(facts, is_typed),))
    return Suggestion(facts, (_categorical(facts, _why_category(facts)),))


def _why_left_out(facts: Facts) -> str:
    values = facts.num_values
    if facts.kind == "empty":
        return "no row of the sample has a value"
    if facts.kind == "other":
        return "its type holds neither numbers, texts nor times"
    if facts.kind == "list":
        if facts.items is None:
            return "all its lists are empty"
        numbers = facts.items.kind == "number" and not facts.items.is_whole
        return "lists of numbers, which models do not take" if numbers else ""
    if facts.kind == "time":
        return ""
    if facts.distinct == 1 and not facts.missing:
        return "constant: each row of the sample has the same value"
    if values < _FEWEST_ROWS or (facts.kind == "number" and not facts.is_whole):
        return ""
    if facts.distinct > _UNIQUE_SHARE * values and (facts.kind == "text" or _looks_like_id(facts)):
        if facts.num_words > _FREE_TEXT_WORDS:
            return f"free text: {facts.num_words:.0f} words on average, nearly all different"
        return f"nearly unique: {facts.distinct:,} values in {values:,} rows"
    if facts.kind == "text" and facts.num_words > _FREE_TEXT_WORDS and facts.distinct > values / 5:
        return f"free text: {facts.num_words:.0f} words on average"
    is_name = facts.kind == "text" or bool(_ID.search(facts.name))
    if is_name and facts.distinct > _FEW_VALUES and facts.returning < _RETURNING_SHARE:
        return (
            "its values do not come again: of those in the sample's second half the first has "
            f"{facts.returning:.0%}, so ids that are learnt are of no use later"
        )
    return ""


def _looks_like_id(facts: Facts) -> bool:
    """Whether unique whole numbers are names, or count the rows."""
    steps = np.diff(facts.numbers[:1000]) if facts.kind == "number" else np.zeros(0)
    return bool(_ID.search(facts.name)) or (len(steps) > 0 and bool((steps == steps[0]).all()))


def _is_category(facts: Facts) -> bool:
    if not facts.is_whole:
        return False
    return facts.distinct <= _FEW_VALUES or bool(_ID.search(facts.name))


def _why_category(facts: Facts) -> str:
    if facts.kind == "text":
        return "texts that come again"
    if _ID.search(facts.name):
        return "whole numbers, and ids by their name"
    return "few whole numbers"


def _categorical(facts: Facts, reason: str) -> Feature:
    settings: dict[str, Any] = {"kind": "categorical"}
    items = facts.items or facts
    if items.stored == "uint64" or (items.is_whole and np.abs(items.numbers).max() >= 2.0**63):
        settings["as"] = "text"
        reason += "; as: whole numbers here have 63 bits"
    if items.distinct > 100:
        settings["freq_threshold"] = 5 if items.distinct > _MANY_VALUES else 2
        reason += "; rare values teach little, so they share an id"
    return Feature(facts.name, settings, reason)


def _of_list(facts: Facts) -> Feature:
    feature = _categorical(facts, "lists of ids")
    separator = {"separator": facts.separator} if facts.separator else {}
    return Feature(facts.name, {**feature.settings, **separator}, feature.reason)


def _continuous(facts: Facts, is_typed: bool) -> Feature:
    numbers = facts.numbers
    settings: dict[str, Any] = {"kind": "continuous"}
    why = ["normalize: models want numbers of one size"]
    if is_typed and facts.stored.endswith("text"):
        settings["as"] = "number"
        why.insert(0, "as: the texts spell numbers")
    low, middle = float(numbers.min()), float(np.median(numbers))
    if max(-low, float(numbers.max())) >= MOST:
        settings["clip"] = {"min": -MOST, "max": MOST}
        why.insert(0, "clip: float32 ends there")
    if facts.missing:
        settings["fill"] = middle
        why.insert(0, "fill: the median")
    spread = float(np.percentile(numbers, 75)) - middle
    if low >= 0 and float(np.percentile(numbers, 99)) > middle + _SKEW * max(spread, 1e-9):
        settings |= {"clip": {**settings.get("clip", {}), "min": 0}, "log": True}
        why.insert(0, "log: few values are far larger than the others")
    return Feature(facts.name, {**settings, "normalize": True}, "; ".join(why))


def _of_time(facts: Facts) -> tuple[Feature, ...]:
    day = 86_400_000_000
    parts = ["weekday"]
    times = microseconds(facts.times).to_numpy(zero_copy_only=False)
    if (times % day != 0).any():
        parts.insert(0, "hour")
    elif times.max() - times.min() > 60 * day:
        parts.append("month")
    why = "times themselves do not come again, but their parts do"
    return tuple(
        Feature(
            f"{facts.name}_{part}", {"from": facts.name, "kind": "categorical", "as": part}, why
        )
        for part in parts
    )


def target_of(columns: Sequence[Facts]) -> Target:
    """A guess at what is to be predicted."""
    pairs = [facts for facts in columns if _is_pair(facts)]
    for facts in pairs:
        if _TARGET.search(facts.name):
            return Target(facts.name, facts.name, "two values, and the name of an answer")
    for facts in columns:
        if _RATING.search(facts.name) and facts.kind == "number" and facts.distinct <= 101:
            cut = float(np.median(facts.numbers))
            value = {"column": facts.name, "at_least": cut}
            return Target(facts.name, value, "a rating by its name, cut at the sample's median")
    if pairs:
        last = pairs[-1]
        return Target(last.name, last.name, "the last column of two values; is it the answer?")
    unsure = "no column has two values, so this is a placeholder: say what is to be predicted"
    for facts in columns:
        if facts.kind == "number" and facts.distinct > 1:
            cut = float(np.percentile(facts.numbers, 75))
            return Target(facts.name, {"column": facts.name, "at_least": cut}, unsure)
    held = [f for f in columns if f.kind in ("text", "truth", "time")]
    facts = held[0] if held else columns[0]
    top = facts.top if isinstance(facts.top, bool | int | float | str) else str(facts.top)
    return Target(facts.name, {"column": facts.name, "equals": top}, unsure)


def _is_pair(facts: Facts) -> bool:
    if facts.missing or facts.distinct != 2:
        return False
    return facts.kind == "truth" or (
        facts.kind == "number" and set(np.unique(facts.numbers)) == {0.0, 1.0}
    )


def split_of(columns: Sequence[Facts]) -> tuple[dict[str, Any], str]:
    """A guess at which rows are for validation."""
    for facts in columns:
        if facts.kind == "time" and not facts.missing and facts.distinct > 10:
            times = microseconds(facts.times)
            if bool((np.diff(times.to_numpy(zero_copy_only=False)) >= 0).all()):
                told = f"rows are in the order of {facts.name}, so the last ones are the latest"
                return {"by": "fraction", "last": 0.1}, told
            cut = pc.quantile(times, 0.9, interpolation="lower").cast(pa.int64())
            moment = cut[0].cast(pa.timestamp("us")).as_py().isoformat()
            split = {"by": "time", "column": facts.name, "from": moment}
            return split, "the latest tenth of the sample, for models are used on later rows"
    return {"by": "fraction", "last": 0.1}, "the last tenth; no column of times was found"
