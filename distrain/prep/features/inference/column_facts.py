"""Facts about a column, from a sample."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distrain.prep.features.bad_values import BadValues, Places, true_positions
from distrain.prep.features.document import FormatSpec
from distrain.prep.features.numerals import EXACT_DOUBLES, integers_of, numbers_of
from distrain.prep.features.times import is_time as holds_times, times_of
from distrain.prep.lists import Lists, holds_lists
from distrain.prep.operators.spelling import category_texts
from distrain.prep.vocabulary import is_text

Kind = Literal["empty", "number", "text", "truth", "time", "list", "other"]

NULL_TEXTS = ("NULL", "null", "NA", "N/A", "NaN", "nan", "None", "none", "\\N", "?", "-")
TIME_PATTERNS = tuple(
    f"{day}{year}{clock}"
    for day in ("%d.%m.", "%m/%d/", "%d/%m/")
    for clock in (" %H:%M:%S", " %H:%M", "")
    for year in ("%Y", "%y")
)
MOST = 3e38
"""The largest number that is used, near the limit of float32; larger numbers are clipped to it."""
FEW_VALUES = 30
FEW_NUMBERS = 10
"""More distinct integers are probably amounts, not categories or classes."""
NEARLY_ALL = 0.99
"""If at least this share of a column's texts are numbers (or times), the others are mistakes."""
_MOST = 0.9  # if fewer texts are numbers, the column has texts
_NUM_TRIED = 20
_NAME_OF_TIME = re.compile(r"time|date|epoch|unix|(^|_)(ts|at|when)$|[a-z]At$")
# In seconds: 1990 to 2100; identifiers with such a name are unlikely in this range.
_FIRST_SECOND, _LAST_SECOND = 631_152_000, 4_102_444_800
_EPOCHS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_SEPARATORS = ("|", ";", ",")
ID = re.compile(r"(^|_|[a-z])(ids?|key|code|no|nr|num|number|zip|sku)$|^(user|item)", re.I)
SOMEBODY = re.compile(
    r"(user|customer|client|visitor|member|account|person|household|subscriber|patient|player|"
    r"driver|device|session|item|product|movie|film|song|track|article|book|shop|store)_?(id|key|no|nr)?$",
    re.I,
)


@dataclass(frozen=True, eq=False)
class Facts:
    """The facts about a column of a sample from which its features are inferred."""

    name: str
    kind: Kind
    stored: str  # the type, in words
    num_rows: int
    missing: int
    distinct: int = 0  # number of distinct values; for lists, of items
    top: Any = None  # the most frequent value
    pair: tuple[Any, ...] = ()  # both values, the more frequent first, if there are two
    few: tuple[Any, ...] = ()  # the values, the most frequent first, if they are few
    # whether the rows of each value are consecutive, and values have 2 rows or more on average
    is_sorted_by: bool = False
    returning: float = 1.0  # the share of the second half's values that occur in the first half
    numbers: Any = None  # the values as a float64 array, without missing and odd values
    times: pa.Array | None = None  # the values as times, without missing and odd values
    epoch: str | None = None  # the unit of integers since 1970, if they are times
    num_words: float = 0.0  # the mean number of words in a text
    items: Facts | None = None  # the facts of a list's items
    separator: str | None = None  # the separator of a text's items, if it is a list
    pattern: str | None = None  # the format of a text's times, if not ISO 8601
    null_texts: tuple[str, ...] = ()  # texts that mean a missing value
    is_of_all_rows: bool = False  # whether no row of the inputs is outside the sample
    counts: tuple[int, ...] = ()  # the number of rows of each value in `few`
    # the rows with texts that are not numbers (or times), although most texts are
    odd: tuple[int, ...] = ()
    # whether the file's type is a dictionary of numbers, such as pandas' `category`
    has_category_type: bool = False
    is_named_time: bool = False  # whether the name is usual for times, or the user says so

    @property
    def plain_name(self) -> str:
        """The name as a word: `Store_ID` for `Store ID`, `store_id` for `store.id`."""
        return re.sub(r"\W+", "_", self.name).strip("_")

    @property
    def names_an_id(self) -> bool:
        """Whether the name is usual for ids, of things or persons."""
        return bool(ID.search(self.plain_name) or SOMEBODY.fullmatch(self.plain_name))

    @property
    def has_odd(self) -> bool:
        """Whether the column is read as numbers or times, but some of its texts are neither."""
        return bool(self.odd) and self.kind in ("number", "time")

    @property
    def has_gaps(self) -> bool:
        """Whether a row has no number or time, because its value is missing or an odd text."""
        return self.missing > 0 or self.has_odd

    @property
    def num_values(self) -> int:
        """The number of rows in which the column is not missing."""
        return self.num_rows - self.missing

    @property
    def is_clipped(self) -> bool:
        """Whether `numbers` has values that were clipped to `MOST`, so that classes are unknown."""
        return self.kind == "number" and bool((np.abs(self.numbers) >= MOST).any())

    @property
    def is_rounded(self) -> bool:
        """Whether different integers are equal as floats, which have 53 bits."""
        return self.is_whole and len(np.unique(self.numbers)) < self.distinct

    @property
    def is_whole(self) -> bool:
        """Whether the column holds numbers, all of them whole."""
        return self.kind == "number" and bool((self.numbers == np.floor(self.numbers)).all())


def facts_of(
    name: str,
    values: pa.Array,
    text: FormatSpec | None = None,
    may_be_null: Sequence[str] = NULL_TEXTS,
    *,
    is_time: bool = False,
) -> Facts:
    """Return the facts about a column of the sample.

    `text` is the format by which texts are parsed as numbers and times; `None` for the default
    format. `may_be_null` are texts that mean a missing value if nearly all others are numbers.
    `is_time` is whether the user says that the column has times, so that its name need not.
    """
    stored = str(values.type)
    null_texts: tuple[str, ...] = ()
    if is_text(values.type):
        stored = "text"
        values, null_texts = _without_null_texts(values, text, may_be_null)
    missing = values.null_count
    if pa.types.is_floating(values.type):
        missing = int(pc.sum(values.is_null(nan_is_null=True)).as_py() or 0)
    common: dict[str, Any] = {
        "name": name,
        "stored": stored,
        "num_rows": len(values),
        "missing": missing,
        "null_texts": null_texts,
        "is_named_time": is_time or bool(_NAME_OF_TIME.search(name)),
    }
    if missing == len(values):
        return Facts(kind="empty", **common)
    if holds_lists(values.type):
        return _list_facts(values, common)
    if is_text(values.type):
        known = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        facts = _text_facts(values.drop_null(), common, text)
        return replace(facts, odd=tuple(known[[*facts.odd]].tolist()))
    if pa.types.is_boolean(values.type):
        return Facts(kind="truth", **common, **_counted(values))
    if holds_times(values.type):
        if getattr(values.type, "tz", None):  # times with a zone are read in UTC
            values = values.cast(pa.timestamp(values.type.unit, "UTC"))
        return _time_facts(values, None, common)
    dtype = values.type
    if pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype):
        return _number_facts(values, common, values)
    return Facts(kind="other", **common)


def _without_null_texts(
    values: pa.Array, text: FormatSpec | None, may_be_null: Sequence[str]
) -> tuple[pa.Array, tuple[str, ...]]:
    """Return texts with nulls in place of those in `may_be_null`, and the replaced texts, sorted.

    Nothing is replaced unless nearly all other texts are numbers.
    """
    found = pc.is_in(values, value_set=pa.array(may_be_null, values.type))
    if not pc.any(found).as_py():
        return values, ()
    kept = pc.if_else(found, pa.scalar(None, values.type), values)
    if kept.null_count == len(kept) or not _spell_numbers(kept.drop_null(), text):
        return values, ()
    return kept, tuple(sorted(pc.unique(values.filter(found)).to_pylist()))


def decimal_point_of(columns: Sequence[pa.Array], delimiter: str) -> Literal[".", ","]:
    """Return the decimal mark of the columns' numbers; `columns` are texts.

    1,234 has a decimal comma only if the delimiter is a semicolon, which is usual in such files, or
    if another number, such as 12,5, proves it.
    """

    def have(point: Literal[".", ","]) -> bool:
        text = FormatSpec(decimal_point=point)
        return any(
            pc.any(pc.match_substring_regex(one, marks[point])).as_py()
            and _spell_numbers(one.drop_null(), text)
            for one in columns
        )

    marks = {".": r"\.", ",": "," if delimiter == ";" else r",(\d{1,2}|\d{4,})\D*$|^\D*0,"}

    return "," if not have(".") and have(",") else "."


def _spell_numbers(values: pa.Array, text: FormatSpec | None) -> bool:
    odd = _odd_among(values, partial(numbers_of, text=text))
    return len(odd) <= (1 - NEARLY_ALL) * len(values)


def _odd_among(values: pa.Array, convert: Callable[[pa.Array], pa.Array]) -> Places:
    """Return the indices of the texts that `convert` rejects, or converts to infinity.

    If it rejects more than half of 20 evenly spaced texts, all indices are returned, since finding
    many bad values takes long.
    """
    if len(values) > _NUM_TRIED:
        tried = values.take(pa.array(np.linspace(0, len(values) - 1, _NUM_TRIED, dtype=np.int64)))
        if len(_odd_among(tried, convert)) > _NUM_TRIED // 2:
            return np.arange(len(values))
    try:
        found = convert(values)
    except BadValues as bad:
        return bad.places
    is_number = pa.types.is_floating(found.type)
    return true_positions(pc.invert(pc.is_finite(found))) if is_number else np.zeros(0, np.int64)


def _without(values: pa.Array, places: Places) -> pa.Array:
    return (
        values.take(pa.array(np.delete(np.arange(len(values)), places))) if len(places) else values
    )


def _text_facts(values: pa.Array, common: dict[str, Any], text: FormatSpec | None) -> Facts:
    lower = pc.unique(pc.utf8_lower(values)).to_pylist()
    if set(lower) <= {"true", "false"}:
        return Facts(kind="truth", **common, **_counted(pc.utf8_lower(values)))
    odd = _odd_among(values, partial(numbers_of, text=text))
    share = 1 - len(odd) / len(values)
    common["odd"] = tuple(odd.tolist())
    names_an_id = Facts(kind="text", **common).names_an_id
    plain = _without(values, odd)
    has_few = len(odd) > 0 and pc.count_distinct(plain).as_py() <= FEW_NUMBERS
    if share >= NEARLY_ALL and not (len(odd) and names_an_id) and not has_few:
        values = plain
        numbers = numbers_of(values, text)
        whole = numbers.cast(pa.int64(), safe=False)
        are_whole = pc.all(pc.equal(whole.cast(pa.float64(), safe=False), numbers)).as_py()
        found = whole if are_whole else numbers
        if are_whole and pc.max(pc.abs(numbers)).as_py() > EXACT_DOUBLES:
            with suppress(BadValues):
                found = integers_of(values)
        return _number_facts(found, {**common, "stored": "numbers as text"}, values)
    if share < (NEARLY_ALL if names_an_id else _MOST):
        del common["odd"]
    for pattern in (None, *TIME_PATTERNS):
        bad = _odd_among(values, partial(times_of, epoch=None, pattern=pattern))
        if len(bad) > (1 - NEARLY_ALL) * len(values):
            continue
        times = times_of(_without(values, bad), None, pattern)
        read = {"stored": "times as text", "odd": tuple(bad.tolist())}
        return _time_facts(times, pattern, {**common, **read})
    words = float(pc.mean(pc.count_substring(values, " ")).as_py()) + 1
    counted = _counted(values)
    for separator in _SEPARATORS:
        if _is_separator(values, separator, counted["distinct"]):
            lists = pc.split_pattern(values, separator)
            stored = {**common, "stored": f"lists as text, parted by {separator!r}"}
            return _list_facts(lists, {**stored, "separator": separator})
    return Facts(kind="text", **common, **counted, num_words=words)


def _is_separator(values: pa.Array, separator: str, distinct: int) -> bool:
    """Return True if texts are lists of few different items with this separator, not prose.

    A text must have 0.3 separators on average, no item may begin with a blank, and the different
    items must be fewer than a third of `distinct`, the number of different texts.
    """
    if pc.mean(pc.count_substring(values, separator)).as_py() < 0.3:
        return False
    items = pc.unique(pc.split_pattern(values, separator).flatten())
    blanks = pc.any(pc.starts_with(items, " ")).as_py()
    return not blanks and len(items) * 3 < distinct


def _number_facts(values: pa.Array, common: dict[str, Any], stored: pa.Array) -> Facts:
    """Return the facts about numbers; `stored` are the texts or numbers that the column holds."""
    numbers = numbers_of(values).drop_null().to_numpy(zero_copy_only=False)
    numbers = numbers[~np.isnan(numbers)]
    epoch = _epoch_of(common, numbers, values.type)
    if epoch is not None:
        stored = f"{common['stored']}, {epoch} since 1970"
        times = times_of(values, epoch, None).drop_null()
        return Facts(
            kind="time", **{**common, "stored": stored}, **_counted(times), times=times, epoch=epoch
        )
    numbers = np.clip(numbers, -MOST, MOST)
    counted = _counted_whole(values, numbers, stored) or _counted(pa.array(numbers))
    facts = Facts(kind="number", **common, **counted, numbers=numbers)
    return replace(facts, pair=(), few=()) if facts.is_clipped else facts


def _counted_whole(values: pa.Array, numbers: Any, stored: pa.Array) -> dict[str, Any] | None:
    """Return counts of integers, none of which is rounded; `None` for other numbers.

    Large ones, such as hashes, have fewer distinct values as floats. Above 64 bits, they are only
    exact in `stored`, as in `_number_facts`.
    """
    if pa.types.is_integer(values.type):
        return _counted(values)
    if np.abs(numbers).max() > EXACT_DOUBLES and (numbers == np.floor(numbers)).all():
        counted = _counted(category_texts(stored))
        with suppress(ValueError):  # of amounts and infinities
            few = tuple(map(int, counted["few"]))
            pair = tuple(map(int, counted["pair"]))
            return counted | {"top": int(counted["top"]), "few": few, "pair": pair}
    return None


def _epoch_of(common: dict[str, Any], numbers: Any, dtype: pa.DataType) -> str | None:
    """Return the unit in which numbers count since 1970; `None` if they are not times.

    The column's name and the size of the numbers decide. `common` has the column's facts so far.
    Texts must be integers.
    """
    is_float = pa.types.is_floating(dtype) and common["stored"] == str(dtype)
    if not (is_float or pa.types.is_integer(dtype)) or not common["is_named_time"]:
        return None
    low, high = numbers.min(), numbers.max()
    return next(
        (
            epoch
            for epoch, factor in _EPOCHS.items()
            if _FIRST_SECOND * factor <= low and high < _LAST_SECOND * factor
        ),
        None,
    )


def _time_facts(values: pa.Array, pattern: str | None, common: dict[str, Any]) -> Facts:
    try:
        times = times_of(values, None, None).drop_null()
    except BadValues:  # outside the years of calendars
        return Facts(kind="other", **common)
    return Facts(kind="time", **common, **_counted(times), times=times, pattern=pattern)


def _list_facts(values: pa.Array, common: dict[str, Any]) -> Facts:
    items = Lists.of(values).items
    inner = facts_of(common["name"], items) if len(items) else None
    distinct = inner.distinct if inner else 0
    return Facts(kind="list", **common, distinct=distinct, items=inner)


def _counted(values: pa.Array) -> dict[str, Any]:
    values = values.drop_null()
    half = len(values) // 2
    first, second = pc.unique(values[:half]), pc.unique(values[half:])
    again = pc.sum(pc.is_in(second, value_set=first)).as_py() or 0
    counts = pc.value_counts(values)
    runs = 1 + (pc.sum(pc.not_equal(values[1:], values[:-1])).as_py() or 0)
    order = np.argsort(-counts.field("counts").to_numpy(), kind="stable")
    top = [counts[int(place)]["values"].as_py() for place in order[:FEW_VALUES]]
    return {
        "distinct": len(counts),
        "top": top[0],
        "pair": tuple(top) if len(counts) == 2 else (),
        "few": tuple(top) if len(counts) <= FEW_VALUES else (),
        "counts": tuple(counts.field("counts").to_numpy()[order[:FEW_VALUES]].tolist()),
        "is_sorted_by": runs == len(counts) and 1 < len(counts) <= len(values) // 2,
        "returning": again / max(1, len(second)),
    }
