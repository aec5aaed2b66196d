"""Suggestions from a column's facts: a feature, a target, or no use, each with its reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distrain.prep.features.inference.column_facts import (
    FEW_NUMBERS,
    FEW_VALUES,
    ID,
    MOST,
    SOMEBODY,
    Facts,
)
from distrain.prep.features.inference.later_rows import (
    Rows,
    has_new_values,
    measures_time,
    times_to_split_by,
)
from distrain.prep.features.rows import FEWEST_HASHED
from distrain.prep.features.times import calendar, microseconds

_FEWEST_ROWS = 50
_UNIQUE_SHARE = 0.95
_RETURNING_SHARE = 0.05
_MOST_RATINGS = 101  # 0 to 100
_SOME_VALUES = 100  # if a column has fewer distinct values, each has enough rows
_MANY_VALUES = 1000
_LARGE_ROWS = 5_000  # in a sample of fewer rows, statistics of a number's values are mostly noise
_ROWS_PER_VALUE = 20  # with fewer, statistics of measured numbers are mostly noise
_FEWEST_OF_ID = 5
_PAIR_BUCKETS = 1 << 16
"""The number of hash buckets of a pair's combined values. It is limited because each process of
`prep` holds up to 300 bytes for each bucket, within --memory-mib.
"""
_FREE_TEXT_WORDS = 3.5
_SKEW = 5.0
_TENTH = 0.1  # the default share of validation rows

_TARGET = re.compile(
    r"^(is_?)?(label|target|y|click(ed|s)?|bought|purchased?|convert(ed)?|conversion|installed?|"
    r"churn(ed)?|default(ed)?|fraud|spam|outcome|response|survived)"
    r"(_(again|next|later|label|flag|target|(with)?in_\w+|\d+_?[a-z]*))?$",
    re.I,
)
_YES = ("yes", "y", "true", "t", "1", "on", "positive", "pos", "clicked", "bought", "survived")
_NO = ("no", "n", "false", "f", "0", "off", "negative", "neg")
SAYS_PART = "it selects the validation rows"
IS_HASHED = "its hash selects the validation rows, in which all its values would be new"
NAMES_PART = "it names the parts of an earlier split"
NEW_PARTS = "too many of its latest values have a weekday that no earlier value has"
MEASURES_TIME = "most of its latest values are outside the range of the earlier ones"
_PERIOD = re.compile(r"year|month|week|day|date|time", re.I)
_WEIGHT = re.compile(r"^(sample|row|example|importance|instance)_?weights?$|^importance$", re.I)
_DAY_US = 86_400_000_000
_RATING = re.compile(r"rating|stars|score", re.I)


@dataclass(frozen=True)
class Feature:
    """A suggested feature, and the reason for its settings, as text."""

    name: str  # the feature's name in the output
    settings: dict[str, Any]  # the feature's entry in the document
    reason: str


@dataclass(frozen=True)
class Target:
    """A suggested target, and the reason for its settings, as text."""

    column: str
    value: Any  # the entry of the document: the column's name, or a mapping
    reason: str


class MissingTargets(NamedTuple):
    """The treatment of rows without a target, as a setting and as text for people."""

    missing: str
    text: str


DROP = MissingTargets("drop", "are left out")
UNKNOWN = MissingTargets("unknown", "are only used for the other targets")


@dataclass(frozen=True)
class Suggestion:
    """The features suggested for a column."""

    facts: Facts  # the facts about the column, from the sample
    features: tuple[Feature, ...] = ()  # the features made of the column
    # features that probably predict nothing; the document has them in comments
    doubtful: tuple[Feature, ...] = ()
    left_out: str = ""  # why the column has no features


def suggestion_of(facts: Facts, is_typed: bool, order: Rows | None) -> Suggestion:
    """Return the suggested features of a column, with reasons; or that it has no use.

    Args:
        facts: The facts about the column in the sample.
        is_typed: Whether the column is typed, so that texts become numbers only with `as: number`.
        order: The rows in the order of their times, if the latest ones are for validation.
    """
    reason = _why_left_out(facts)
    if not reason and order is not None and measures_time(facts, order):
        reason = MEASURES_TIME
    if reason:
        return Suggestion(facts, left_out=reason)
    match facts.kind:
        case "time":
            parts = _of_time(facts, order)
            return Suggestion(facts, parts, left_out="" if parts else NEW_PARTS)
        case "list":
            return Suggestion(facts, (_of_list(facts),))
        case "truth":
            return Suggestion(facts, (_categorical(facts, "two values, and perhaps none"),))
        case "number" if not _is_category(facts):
            return Suggestion(facts, (_continuous(facts, is_typed),))
    return Suggestion(facts, (_categorical(facts, _why_category(facts)),))


def without_hashed(
    suggestions: Sequence[Suggestion], split: Mapping[str, Any] | None
) -> list[Suggestion]:
    """Return the suggestions without the categories by whose hash `split` selects validation rows.

    They stay if no other column has features.
    """
    hashed = (split or {}).get("column") if (split or {}).get("by") == "hash" else None
    if not any(one.features for one in suggestions if one.facts.name != hashed):
        return [*suggestions]
    return [
        Suggestion(one.facts, left_out=IS_HASHED)
        if one.facts.name == hashed
        and any(feature.settings["kind"] == "categorical" for feature in one.features)
        else one
        for one in suggestions
    ]


def _why_left_out(facts: Facts) -> str:
    values = facts.num_values
    if not facts.name:
        return "it has no name"
    if facts.kind == "empty":
        return "no row of the sample has a value"
    if facts.kind == "other" and facts.stored.startswith("times"):
        return f"it has {facts.stored}"
    if facts.kind == "other":
        return "its type holds neither numbers, texts nor times"
    if facts.kind == "list":
        if facts.items is None:
            return "all its lists are empty"
        if facts.items.kind in ("other", "list") or facts.items.stored.startswith(
            ("timestamp", "date")
        ):
            return "its lists hold neither numbers nor texts"
        numbers = facts.items.kind == "number" and not (facts.items.is_whole or facts.items.odd)
        return "lists of numbers, which models do not take" if numbers else ""
    if facts.kind == "time":
        return ""
    if facts.distinct == 1 and not facts.missing and facts.is_of_all_rows:
        return "constant: each row has the same value"
    if values < _FEWEST_ROWS or (facts.kind == "number" and not facts.is_whole):
        return ""
    if facts.distinct > _UNIQUE_SHARE * values and (facts.kind == "text" or _looks_like_id(facts)):
        if facts.num_words > _FREE_TEXT_WORDS:
            return f"free text: {facts.num_words:.0f} words on average, nearly all different"
        return f"nearly unique: {facts.distinct:,} values in {values:,} rows"
    if facts.kind == "text" and facts.num_words > _FREE_TEXT_WORDS and facts.distinct > values / 5:
        return f"free text: {facts.num_words:.0f} words on average"
    is_name = facts.kind == "text" or bool(ID.search(facts.plain_name))
    if SOMEBODY.search(facts.plain_name) and facts.is_sorted_by:
        return ""  # the file is sorted by the column, so no value occurs again later
    if is_name and facts.distinct > FEW_VALUES and facts.returning < _RETURNING_SHARE:
        return (
            f"its values do not recur: only {facts.returning:.0%} of the values in the sample's "
            "second half are in the first, so learnt ids would be useless later"
        )
    return ""


def _looks_like_id(facts: Facts) -> bool:
    steps = np.diff(facts.numbers[:1000]) if facts.kind == "number" else np.zeros(0)
    return bool(ID.search(facts.plain_name)) or (len(steps) > 0 and bool((steps == steps[0]).all()))


def _is_category(facts: Facts) -> bool:
    if not facts.is_whole:
        return False
    is_id = facts.names_an_id or facts.has_category_type or facts.is_rounded
    return facts.distinct <= FEW_NUMBERS or is_id


def _why_category(facts: Facts) -> str:
    if facts.kind == "text":
        return "texts that occur repeatedly"
    if facts.names_an_id:
        return "integers with the name of an id"
    if facts.is_rounded:
        return "integers of more than 53 bits, some of which are equal as floats"
    if facts.has_category_type:
        return "integers of a categorical type"
    return "few integers"


def _categorical(facts: Facts, reason: str) -> Feature:
    settings: dict[str, Any] = {"kind": "categorical"}
    items = facts.items or facts
    if items.stored == "uint64" or (items.is_whole and np.abs(items.numbers).max() >= 2.0**63):
        settings["as"] = "text"
        reason += "; as: integers here have 63 bits"
    if items.distinct > _SOME_VALUES:
        settings["freq_threshold"] = 5 if items.distinct > _MANY_VALUES else 2
        reason += "; freq_threshold: rare values share one id"
    return Feature(facts.name, settings, reason)


def _of_list(facts: Facts) -> Feature:
    feature = _categorical(facts, "lists of ids")
    separator = {"separator": facts.separator} if facts.separator else {}
    return Feature(facts.name, {**feature.settings, **separator}, feature.reason)


def _continuous(facts: Facts, is_typed: bool) -> Feature:
    numbers = facts.numbers
    settings: dict[str, Any] = {"kind": "continuous"}
    why = ["normalize: models need numbers of similar size"]
    if is_typed and facts.stored.endswith("text"):
        settings["as"] = "number"
        why.insert(0, "as: the texts spell numbers")
    usual = numbers[np.abs(numbers) < MOST]
    if usual.size < numbers.size:
        # A few of them would dominate the mean and the deviation of `normalize`.
        numbers = usual
        settings["clip"] = {"min": float(numbers.min()), "max": float(numbers.max())}
        why.insert(0, "clip: the other values end there; some are infinite or beyond float32")
    low, middle = float(numbers.min()), float(np.median(numbers))
    if facts.has_gaps or not facts.is_of_all_rows:
        settings["fill"] = middle
        why.insert(0, "fill: the median")
    spread = max(float(np.percentile(numbers, 75)) - middle, 1e-9)
    # Negative values that are small beside the others are codes, such as -1 for "unknown".
    if low > -spread and float(np.percentile(numbers, 99)) > middle + _SKEW * spread:
        settings |= {"clip": {**settings.get("clip", {}), "min": 0}, "log": True}
        why.insert(0, "log: few values are far larger than the others")
    return Feature(facts.name, {**settings, "normalize": True}, "; ".join(why))


def with_further(
    suggestion: Suggestion, is_learnable: Callable[[], bool], target_kind: str | None
) -> Suggestion:
    """Return the suggestion with additional features of its column: buckets, counts, target means.

    Counts and target means of a categorical column whose values do not predict the target are
    `doubtful`. Columns of times, lists, or few categories get no additional features.

    Args:
        is_learnable: Returns whether the column's values predict the target.
        target_kind: The kind of the target; `None` for a placeholder.
    """
    facts, features = suggestion.facts, suggestion.features
    if not features or facts.kind in ("list", "time"):
        return suggestion
    if features[0].settings["kind"] == "continuous":
        more = _of_number(facts, features[0].settings, is_learnable, target_kind)
        return replace(suggestion, features=(*features, *more))
    if facts.distinct <= _SOME_VALUES:
        return suggestion
    own_type = {key: value for key, value in features[0].settings.items() if key == "as"}
    reads = {"from": facts.name, **own_type}
    why = "counts and target means help with values that are too rare to learn an embedding"
    has_means = target_kind in ("binary", "regression")
    learnable = has_means and is_learnable()
    if not has_means:
        why = "target means were not tried, because the target is not a number"
    elif not learnable:
        why = "target means did not predict the target in rows that they were not computed from"
    more = _statistics(facts.name, reads, why, has_means=has_means)
    if learnable:
        return replace(suggestion, features=(*features, *more))
    return replace(suggestion, doubtful=more)


def _of_number(
    facts: Facts,
    settings: dict[str, Any],
    is_learnable: Callable[[], bool],
    target_kind: str | None,
) -> tuple[Feature, ...]:
    """Return further features of a numeric column: buckets, its values as ids, counts and means.

    - Buckets are for skewed numbers; in a large table with a binary target, also for other whole
      numbers.
    - Counts and target means are for a large table with a binary target, if values are whole or
      repeat, and predict the target. In a regression of 19,178 rows they increased the error.
    - Ids are for a large table with a multiclass target, if values are whole, repeat, and predict
      the class.

    Args:
        settings: The settings of the feature that uses the number itself.
        is_learnable: As in `with_further`.
        target_kind: As in `with_further`.
    """
    more: tuple[Feature, ...] = ()
    has_more = facts.num_rows >= _LARGE_ROWS and target_kind == "binary"
    if settings.get("log") or (has_more and facts.is_whole):
        own_type = {key: value for key, value in settings.items() if key == "as"}
        bucket = {"from": facts.name, **own_type, "kind": "categorical", "buckets": "log_square"}
        why = "buckets: the effect of a number need not be linear; a missing value gets an id"
        more = (_feature(facts.name, bucket, why),)
    are_repeated = facts.distinct * _ROWS_PER_VALUE <= facts.num_values
    has_ids = facts.num_rows >= _LARGE_ROWS and target_kind == "multiclass"
    if has_ids and facts.is_whole and are_repeated and is_learnable():
        own = _categorical(facts, "").settings
        ids = {"from": facts.name, **own, "freq_threshold": _FEWEST_OF_ID}
        why = "values: equal numbers predict the class as categories do"
        more += (_feature(facts.name, ids, why),)
    repeats = facts.is_whole or are_repeated
    if has_more and repeats and is_learnable():
        why = "counts and target means: equal numbers predict the target as categories do"
        more += _statistics(facts.name, {"from": facts.name}, why, has_means=True)
    return more


def may_be_crossed(suggestion: Suggestion, target_kind: str | None) -> bool:
    """Return True if the column's values may be combined with those of other columns.

    The sample must have at least 5,000 rows, the target must be binary or multiclass, and the
    column must have features, and hold texts, booleans or integers.
    """
    facts = suggestion.facts
    has_values = facts.kind in ("text", "truth") or facts.is_whole
    is_large = facts.num_rows >= _LARGE_ROWS and target_kind in ("binary", "multiclass")
    return bool(suggestion.features) and has_values and is_large


def of_pair(columns: tuple[str, str], *, of_classes: bool) -> tuple[Feature, ...]:
    """Return features of the combined values of two columns, given by name.

    These are ids if the target is multiclass (`of_classes`), otherwise the target mean.

    Not the counts, of which `strongest_pairs` tests nothing. Rows of other times than the training
    rows have other counts: in tests on a block of flights' times, they lowered the AUC from 0.68 to
    0.60, and on random rows they did not change it.
    """
    why = "pairs: combined values predict more than the values of both columns do"
    if of_classes:
        ids = {"cross": [*columns], "kind": "categorical", "freq_threshold": _FEWEST_OF_ID}
        return (_feature("_".join(columns), ids, why),)
    mean = {"cross": [*columns], "hash_buckets": _PAIR_BUCKETS, "kind": "continuous"}
    mean |= {"target_mean": {"smoothing": 20}, "normalize": True}
    return (_feature("_".join(columns), mean, why),)


def _statistics(
    name: str, reads: dict[str, Any], reason: str, *, has_means: bool
) -> tuple[Feature, ...]:
    """Return features with the count of a value's rows and, if `has_means`, its target mean.

    `reads` are the settings that determine the value, such as the source columns. `reason` is why
    the features are suggested.
    """
    begin = {**reads, "kind": "continuous"}
    made: list[dict[str, Any]] = [{"count": True, "log": True}]
    made += [{"target_mean": {"smoothing": 20}}] if has_means else []
    return tuple(_feature(name, {**begin, **one, "normalize": True}, reason) for one in made)


def _feature(name: str, settings: dict[str, Any], reason: str) -> Feature:
    ending = next(end for key, end in _ENDINGS.items() if key in settings)
    return Feature(f"{name}_{ending}", settings, reason)


_ENDINGS = {"buckets": "bucket", "freq_threshold": "value", "count": "rows", "target_mean": "mean"}


def _of_time(facts: Facts, order: Rows | None) -> tuple[Feature, ...]:
    """Return features of parts of the times, such as the weekday.

    If the latest rows are for validation (`order`), a part is left out if these rows have many
    values of it that no earlier row has.
    """
    day = _DAY_US
    parts = ["weekday"]
    times = microseconds(facts.times).to_numpy(zero_copy_only=False)
    if (times % day != 0).any():
        parts.insert(0, "hour")
    elif times.max() - times.min() > 60 * day:
        parts.append("month")
    if order is not None and not facts.has_gaps:
        ids = {part: calendar(facts.times, part).to_numpy() for part in parts}
        parts = [part for part in parts if not has_new_values(ids[part], order)]
    why = "a time occurs once, but its parts occur repeatedly"
    return tuple(
        Feature(
            f"{facts.name}_{part}",
            {"from": facts.name, "kind": "categorical", "as": part}
            | ({"epoch": facts.epoch} if facts.epoch else {}),
            why,
        )
        for part in parts
    )


def target_of(columns: Sequence[Facts]) -> Target:
    """Return a guess of the target.

    It is a column with the name of a target, preferably of two values; else a rating; else the last
    column of two values, none missing. If there is none, it is a placeholder, which the user must
    replace. A rating, or a named target of more values, becomes a binary, multiclass or regression
    target, by its values.
    """
    columns = [facts for facts in columns if part_for_validation(facts) is None] or columns
    pairs = [facts for facts in columns if _is_pair(facts)]
    answers = _named_answers(columns)
    named = [facts for facts in pairs if facts.name in answers]
    if named:  # numbers and booleans are preferred to texts
        first = min(named, key=lambda facts: facts.kind == "text")
        return pair_target(first, "two values, and a typical name of a target")
    for facts in columns:
        if facts.name in answers and _has_many(facts):
            return _guess_of_many(facts)
    for facts in columns:
        is_rating = _RATING.search(facts.plain_name) and facts.kind == "number"
        if is_rating and _is_pair(facts):
            return pair_target(facts, "a typical name of a rating, with two values")
        if is_rating and 2 < facts.distinct <= _MOST_RATINGS:
            return _guess_of_many(facts, name="a typical name of a rating, with")
    whole = [facts for facts in pairs if not facts.missing]
    telling = [facts for facts in whole if facts.kind != "text" or _answers(facts)]
    if whole:
        last = (telling or whole)[-1]
        return pair_target(last, "the last column with two values; is it the target?")
    unsure = "no column has two values, so this is a placeholder: set the column to predict"
    for facts in columns:
        if facts.kind == "number" and facts.distinct > 1:
            cut = float(np.percentile(facts.numbers, 75))
            value = {"column": facts.name, "at_least": cut, "placeholder": True}
            return Target(facts.name, value, unsure)
    held = [f for f in columns if f.kind in ("text", "truth", "time")]
    facts = held[0] if held else columns[0]
    value = {"column": facts.name, "equals": _plain(facts.top), "placeholder": True}
    return Target(facts.name, value, unsure)


def _named_answers(columns: Sequence[Facts]) -> set[str]:
    """Return the columns' names that are usual for a target.

    `y` is not one if there is a column `x`.
    """
    names = {facts.name for facts in columns}
    places = {"y", "Y"} if names & {"x", "X"} else set()
    return {facts.name for facts in columns if _TARGET.search(facts.plain_name)} - places


def _plain(value: Any) -> bool | int | float | str:
    return value if isinstance(value, bool | int | float | str) else str(value)


def _by_case(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def percentage(part: int, whole: int) -> str:
    """Return a share in percent with up to three significant digits, 100 % only if all are meant.

    >>> percentage(1, 3), percentage(1, 20_000), percentage(5, 5)
    ('33.3 %', '0.005 %', '100 %')
    >>> percentage(1999, 2000), percentage(1, 50_000_000)
    ('over 99.9 %', 'under 0.001 %')
    """
    value = 100 * part / whole
    if 99.9 < value < 100:
        return "over 99.9 %"
    return "under 0.001 %" if 0 < value < 0.001 else f"{value:.3g} %"


def _is_pair(facts: Facts) -> bool:
    return bool(facts.pair) and facts.kind in ("truth", "number", "text")


def _has_many(facts: Facts) -> bool:
    is_usable = facts.kind == "text" or facts.kind == "number"
    return is_usable and (facts.distinct > 2 or (facts.distinct > 1 and facts.is_clipped))


def _answers(facts: Facts) -> list[str]:
    """Return those of a column's two texts that are the positive class, such as "yes".

    These are texts that mean yes, or whose counterpart means no.
    """
    yes = [text for text in facts.pair if text.lower() in _YES]
    return yes + [other for text, other in permutations(facts.pair) if text.lower() in _NO]


def pair_target(facts: Facts, reason: str, gaps: MissingTargets = DROP) -> Target:
    """Return the binary target of a column with two values.

    The class 1 is the value that means yes. Without such a value it is the larger number, or the
    less frequent text.

    Args:
        reason: Why the column is a target.
        gaps: The treatment of rows in which the column is missing.
    """
    value: dict[str, Any] = {"column": facts.name}
    if facts.kind == "text":
        value["equals"] = (_answers(facts) or facts.pair[-1:])[0]
    elif facts.kind == "number" and set(facts.pair) != {0, 1}:
        value["equals"] = max(facts.pair)
    positive = value.get("equals", max(facts.pair, key=_by_case))
    share = percentage(facts.counts[facts.pair.index(positive)], facts.num_values)
    other = next(one for one in facts.pair if one != positive)
    if "equals" in value:
        value["otherwise"] = other
    reason = f"{other}/{positive}, positive class {positive} ({share} of the rows): {reason}"
    if facts.missing:
        value["missing"] = gaps.missing
        reason += f"; rows without one {gaps.text}"
    return Target(facts.name, value if len(value) > 1 else facts.name, reason)


def _guess_of_many(
    facts: Facts, gaps: MissingTargets = DROP, name: str = "a typical name of a target, with"
) -> Target:
    name = f"{name} {facts.distinct:,} "
    if facts.is_whole and facts.distinct <= FEW_NUMBERS and not facts.is_clipped:
        return target_of_many(facts, sorted(map(int, facts.few)), name, gaps)
    if facts.kind == "number" or facts.few:
        return target_of_many(
            facts, None if facts.kind == "number" else sorted(facts.few), name, gaps
        )
    reason = (
        f"{name}classes, which are too many, so it is one class against the others: choose the "
        "class"
    )
    return Target(facts.name, {"column": facts.name, "equals": facts.top}, reason)


def target_of_many(
    facts: Facts, classes: Sequence[Any] | None, reason: str, gaps: MissingTargets = DROP
) -> Target:
    """Return a multiclass target with these classes in order; if `None`, a regression target.

    `reason` is the beginning of the target's reason; the range or the classes are appended. `gaps`
    is the treatment of rows without the target, if there are any.
    """
    value: dict[str, Any] = {"column": facts.name, "kind": "multiclass"}
    if classes is None:
        value["kind"], reason = "regression", reason + "numbers"
        reason += f" from {facts.numbers.min():g} to {facts.numbers.max():g}"
    elif facts.kind == "number":
        numbers = [int(number) for number in classes]
        value["classes"] = len(numbers) if numbers == [*range(len(numbers))] else numbers
        reason += "integers, which are few, so they may be classes"
    else:
        value["classes"], reason = list(classes), reason + "classes"
    if classes is not None and facts.few:
        shares = zip(facts.few, facts.counts, strict=True)
        told = ", ".join(f"{one} {percentage(rows, facts.num_values)}" for one, rows in shares)
        reason += f": {told}"
    if facts.has_gaps:
        value["missing"] = gaps.missing
        reason += f"; rows without one {gaps.text}"
    return Target(facts.name, value, reason)


def more_targets_of(columns: Sequence[Facts], first: Target) -> list[Target]:
    """Return further columns with names of targets, if the first target was chosen by its name.

    Rows without such a target are kept, since they have the first target.
    """
    answers = _named_answers(columns)
    if first.column not in answers:
        return []
    more = []
    for facts in columns:
        if facts.name == first.column or facts.name not in answers:
            continue
        if _is_pair(facts):
            more.append(pair_target(facts, "two values, and a typical name of a target", UNKNOWN))
        elif _has_many(facts):
            more.append(_guess_of_many(facts, UNKNOWN))
    return more


def weight_of(columns: Sequence[Facts]) -> tuple[str, str] | None:
    """Return the name of the column of row weights, and the reason; `None` if there is none.

    Its name must be typical; its values must be 0 or more, not all equal, and none missing.
    """
    for facts in columns:
        if _WEIGHT.search(facts.plain_name) and facts.kind == "number" and facts.distinct > 1:
            low = float(facts.numbers.min())
            if low >= 0 and not facts.missing:
                return facts.name, f"numbers from {low:g} on, and a typical name of a row weight"
    return None


def windows_of(columns: Sequence[Facts]) -> tuple[dict[str, Any], str] | None:
    """Return the section `windows`, of days or hours, and the reason.

    Uses the first column of times without missing values that has several days or hours; `None` if
    there is none.
    """
    for facts in columns:
        if facts.kind != "time" or facts.has_gaps:
            continue
        times = microseconds(facts.times).to_numpy(zero_copy_only=False)
        for size, length_us, word in (("1d", _DAY_US, "days"), ("1h", _DAY_US // 24, "hours")):
            held = len(np.unique(times // length_us))
            if held > 1:
                epoch = {"epoch": facts.epoch} if facts.epoch else {}
                why = f"the sample's rows are of {held:,} {word} by {facts.name}"
                return {"by": facts.name, "size": size, **epoch}, why
    return None


def part_for_validation(facts: Facts) -> str | None:
    """Return the value that marks validation rows in a text column such as `split`.

    `None` unless all values are usual names of parts, such as "train", "test" and "valid", one of
    them marks training rows, and another one does not. A test part is preferred to a validation
    part.

    >>> part_for_validation(Facts("split", "text", "text", 9, 0, few=("train", "test")))
    'test'
    """
    parts = {str(value).lower(): str(value) for value in facts.few}
    known = _TRAIN | _TEST | _VALID
    if facts.kind != "text" or not (parts.keys() & _TRAIN and parts.keys() <= known):
        return None
    others = [parts[name] for names in (_TEST, _VALID) for name in sorted(parts.keys() & names)]
    return others[0] if others else None


_TRAIN = {"train", "training"}
_TEST = {"test", "testing", "holdout"}
_VALID = {"valid", "validation", "val", "dev", "eval"}


def split_of(columns: Sequence[Facts], taken: Collection[str]) -> tuple[dict[str, Any], str]:
    """Return the section `split`, and the reason for it.

    It is for about a tenth of the rows, or for those that a column such as `split` says are for
    validation. `taken` are the targets and the weight: rows are not divided by their values.
    """
    free = [facts for facts in columns if facts.name not in taken]
    hashable = [facts for facts in free if facts.distinct >= FEWEST_HASHED]
    for facts in free:
        if (part := part_for_validation(facts)) is not None:
            of_part: dict[str, Any] = {"by": "column", "column": facts.name, "equals": part}
            return of_part, f"{facts.name} says which rows are for it; all other rows train"
    if (times := times_to_split_by(columns)) is not None:
        return split_by(times, _TENTH)
    key = next((f for f in columns if f.is_sorted_by and not f.missing), None)
    last: dict[str, Any] = {"by": "fraction", "last": _TENTH}
    if key is None:
        return last, f"the last tenth; {_why_no_time(columns)}"
    if _PERIOD.search(key.name):
        return last, f"rows are in the order of {key.name}, so the last ones are the latest"
    told = f"rows are sorted by {key.name}, so the last rows differ from the others"
    rows = next((f for f in hashable if f.distinct == f.num_rows and f.kind != "list"), None)
    others = [f for f in hashable if f.kind in ("text", "number")]
    most = max(others, key=lambda f: f.distinct, default=None)
    by = key if key in hashable else rows or most
    if by is None:
        return last, told
    which = "each row" if by is rows else f"all rows of one {by.name}"
    by_hash: dict[str, Any] = {"by": "hash", "column": by.name, "share": _TENTH}
    return by_hash, f"{told}; about a tenth by chance, {which} on one side"


def split_by(facts: Facts, share: float, later: float = 0.0) -> tuple[dict[str, Any], str]:
    """Return the section `split` that validates on the latest `share` of the rows, and the reason.

    `facts` is a column of times. If rows are in its order, the split takes the last rows, otherwise
    those from a time on. `later` is the share of rows, later than these, that are for testing.
    """
    times = microseconds(facts.times)
    if bool((np.diff(times.to_numpy(zero_copy_only=False)) >= 0).all()):
        told = f"rows are in the order of {facts.name}, so the last ones are the latest"
        return {"by": "fraction", "last": share / (1 - later)}, told
    cut = pc.quantile(times, max(0, 1 - later - share), interpolation="lower").cast(pa.int64())[0]
    split = {"by": "time", "column": facts.name, "from": _moment(cut, facts.epoch)}
    part = "tenth" if share == _TENTH else f"{share:.4g} of the rows"
    told = f"the latest {part} of the sample, because models are used on later rows"
    return split, told


def _why_no_time(columns: Sequence[Facts]) -> str:
    times = [facts for facts in columns if facts.kind == "time"]
    if not times:
        return "no column of times was found"
    first = next((facts for facts in times if facts.has_gaps), times[0])
    if first.has_gaps:
        share = percentage(first.missing + len(first.odd), first.num_rows)
        return f"{first.name} has no time in {share} of the rows, so rows cannot be split by it"
    return f"{first.name} has {first.distinct} different times, too few to split rows by"


def _moment(microsecond: pa.Scalar, epoch: str | None) -> str | int:
    time = microsecond.cast(pa.timestamp("us"))
    if epoch is None:
        return str(time.as_py().isoformat())
    return int(time.cast(pa.timestamp(epoch), safe=False).value)
