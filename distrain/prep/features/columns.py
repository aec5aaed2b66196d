"""The settings of a column in a features document.

Field descriptions appear in the published JSON Schema.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, create_model, field_validator, model_validator

from distrain.jobs.spec.fields import PositiveInt, Real, Section, Whole
from distrain.prep.operators import DOCUMENT_KEYS
from distrain.prep.operators.buckets import Bucketize, HashBucket, QuantileBuckets
from distrain.prep.operators.categorify import Categorify
from distrain.prep.operators.history import MOST_KEPT, History
from distrain.prep.operators.operator import Operator, Takes, takes_of
from distrain.schema.column import Tags

As = Literal[
    "text",
    "integer",
    "number",
    "seconds",
    "minute",
    "hour",
    "weekday",
    "day",
    "month",
    "year",
]
_TAG = re.compile(r"[a-z][a-z0-9_]*")
# Tags that follow from the kind, the target, or the type of the prepared values.
_SAID_ELSEWHERE = (
    *(Tags.CATEGORICAL, Tags.CONTINUOUS, Tags.LIST, Tags.TARGET, Tags.WEIGHT, Tags.EMBEDDING),
    *(Tags.BINARY, Tags.BINARY_CLASSIFICATION, Tags.MULTI_CLASS_CLASSIFICATION, Tags.REGRESSION),
)
CALENDAR = ("seconds", "minute", "hour", "weekday", "day", "month", "year")
ColumnName = Annotated[str, Field(min_length=1)]


def _or_number(schema: dict[str, Any]) -> None:
    schema["anyOf"] = [{"type": "integer"}, *schema["anyOf"]]


class ListSliceSpec(Section):
    """A slice of each list, with Python's semantics."""

    start: Whole = Field(0, description="The first index; a negative one counts from the end.")
    end: Whole | None = Field(None, description="The index after the last item; null: to the end.")

    @model_validator(mode="before")
    @classmethod
    def _number_alone(cls, value: object) -> object:
        if not isinstance(value, int) or isinstance(value, bool):
            return value
        return {"start": value} if value < 0 else {"end": value}

    @model_validator(mode="after")
    def _keeps_something(self) -> ListSliceSpec:
        if self.start == 0 and self.end is None:
            raise ValueError("list_slice from 0 to the end keeps every item; remove it")
        if self.end == 0:
            raise ValueError("list_slice with end: 0 keeps no item")
        return self


class _ColumnSpec(Section):
    source: ColumnName | None = Field(
        None,
        alias="from",
        description="The input's column; null: the column of the same name. Several features "
        "may use one column.",
    )
    as_: As | None = Field(
        None,
        alias="as",
        description="A conversion before any other step: to text, to an integer or to a number; "
        "or of a time to seconds since 1970, minute, hour, weekday (Monday is 0), day, month or "
        "year, in UTC if it has a time zone. Times need a conversion; texts are used as written. "
        "Null: a text that spells a number or a boolean is the same category as that value.",
    )
    cross: tuple[ColumnName, ...] = Field(
        (),
        description="Two or more of the input's columns; each combination of their values is "
        "one category.",
    )
    hash_buckets: PositiveInt | None = Field(
        None,
        description="The number of buckets; each category is replaced by the bucket of its hash.",
    )
    epoch: Literal["s", "ms", "us", "ns"] | None = Field(
        None,
        description="The unit, if the column holds integers: the time since 1970 in this unit.",
    )
    separator: str | None = Field(
        None, min_length=1, description="The text between the items, if each text is a list."
    )
    list_slice: ListSliceSpec | None = Field(
        None,
        description="The part of each list to keep: 10 keeps the first ten items, -10 the last "
        "ten.",
        json_schema_extra=_or_number,
    )

    tags: tuple[str, ...] = Field(
        (),
        description="The column's role in models that need one, such as user_id, item_id, "
        "user, item, session_id; written to the schema.",
    )

    @field_validator("tags")
    @classmethod
    def _other_tags(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        for tag in tags:
            if tag in _SAID_ELSEWHERE or not _TAG.fullmatch(tag):
                raise ValueError(
                    f"{tag!r} is not a tag of a feature; use user_id, item_id, user ..."
                )
        return tags

    @model_validator(mode="after")
    def _cross_is_of_whole_values(self) -> _ColumnSpec:
        others = {"from": self.source, "as": self.as_, "separator": self.separator}
        given = [name for name, value in others.items() if value is not None]
        given += ["list_slice"] if self.list_slice else []
        if self.cross and given:
            raise ValueError(f"cross uses values unchanged; remove {', '.join(given)}")
        if "cross" in self.model_fields_set and len({*self.cross}) < 2:
            raise ValueError("cross needs two columns or more")
        return self

    def sources(self, name: str) -> tuple[str, ...]:
        """Return the input columns from which the feature called `name` is made."""
        return self.cross or (self.source or name,)

    @property
    def takes(self) -> Takes:
        return takes_of(self.operators)

    @property
    def operators(self) -> tuple[Operator, ...]:
        raise NotImplementedError

    @property
    def _hashing(self) -> tuple[Operator, ...]:
        return () if self.hash_buckets is None else (HashBucket(self.hash_buckets),)

    @model_validator(mode="after")
    def _epoch_needs_a_calendar(self) -> _ColumnSpec:
        if self.epoch and self.as_ not in CALENDAR:
            raise ValueError(f"epoch needs `as`, one of {', '.join(CALENDAR)}")
        return self


class QuantilesSpec(Section):
    """Buckets with about equal numbers of training rows."""

    quantiles: Whole = Field(ge=2, le=1_000_000, description="The number of buckets.")


class CategoricalSpec(_ColumnSpec):
    """Values that become ids, the most frequent first."""

    kind: Literal["categorical"] = Field(description="The kind of the feature.")
    freq_threshold: Whole = Field(
        0,
        ge=0,
        description="The minimum number of occurrences of a value that gets its own id; 0 "
        "keeps all values.",
    )
    max_size: Whole = Field(
        0,
        ge=0,
        description="The maximum number of values with their own id, the most frequent ones; "
        "0 keeps all values.",
    )
    num_buckets: Whole = Field(
        0,
        ge=0,
        description="The number of ids over which all other values are distributed by hash; 0: "
        "one id.",
    )
    buckets: QuantilesSpec | tuple[Real, ...] | Literal["log_square"] | None = Field(
        None,
        description="Treat values as numbers and give each bucket of numbers an id. Buckets are a "
        "list of lower bounds, quantiles, or log_square: floor(x) up to 2, and floor(log(x)^2) + 2 "
        "above; negative values mirror positive values.",
    )
    domain: ColumnName | None = Field(
        None,
        description="Columns of the same domain share one vocabulary, fitted on the values of all "
        "of them.",
    )

    @model_validator(mode="after")
    def _no_numbers(self) -> CategoricalSpec:
        if self.buckets is None and self.as_ == "number":
            raise ValueError("as: number makes no categories; use text or integer, or set buckets")
        if self.buckets is not None and (self.as_ == "text" or self.cross or self.hash_buckets):
            raise ValueError("buckets need numbers: not with as: text, cross or hash_buckets")
        return self

    @model_validator(mode="after")
    def _edges_rise(self) -> CategoricalSpec:
        if isinstance(self.buckets, tuple):
            pairs = zip(self.buckets, self.buckets[1:], strict=False)
            if not self.buckets or any(low >= high for low, high in pairs):
                raise ValueError("buckets needs one number or more, in ascending order")
        return self

    @property
    def vocabulary_options(self) -> tuple[int, int, int]:
        return (self.freq_threshold, self.max_size, self.num_buckets)

    @property
    def operators(self) -> tuple[Operator, ...]:
        return (
            *self._bucketing,
            *self._hashing,
            Categorify(*self.vocabulary_options, self.domain),
        )

    @property
    def _bucketing(self) -> tuple[Operator, ...]:
        match self.buckets:
            case None:
                return ()
            case QuantilesSpec(quantiles=number):
                return (QuantileBuckets(number),)
            case "log_square":
                return (Bucketize(log_square=True),)
        return (Bucketize(self.buckets),)


class _NumbersSpec(_ColumnSpec):
    kind: Literal["continuous"] = Field(description="The kind of the feature.")

    @property
    def operators(self) -> tuple[Operator, ...]:
        given = self._keys()
        keys = [key for key in DOCUMENT_KEYS if given[key.name] is not key.default]
        steps = [key.make(given[key.name]) for key in keys]
        return (*self._hashing, *steps)

    @property
    def with_gaps(self) -> Self:
        """The settings for later rows of a fitted workflow, in which values may be missing.

        With `normalize` and without `fill`, this is a copy with `fill: 0`, so that the check of
        these rows accepts missing values. Otherwise it is this object.
        """
        has_mean = self._keys()["normalize"] and self._keys()["fill"] is None
        return self.model_copy(update={"fill": 0.0}) if has_mean else self

    def _keys(self) -> dict[str, Any]:
        return {key.name: getattr(self, key.name, key.default) for key in DOCUMENT_KEYS}

    @model_validator(mode="after")
    def _no_text(self) -> _NumbersSpec:
        keys = self._keys()
        if keys["count"] or keys["target_mean"]:
            if self.as_ == "number":
                raise ValueError("as: number makes no categories; use text or integer")
        elif self.cross or self.hash_buckets:
            raise ValueError("cross and hash_buckets make categories: set count or target_mean")
        elif self.as_ == "text":
            raise ValueError("as: text makes no numbers; leave it out, or use number")
        return self

    @model_validator(mode="after")
    def _keys_fit(self) -> _NumbersSpec:
        for key in DOCUMENT_KEYS:
            if (mistake := key.mistake_in(self._keys())) is not None:
                raise ValueError(mistake)
        return self


if TYPE_CHECKING:

    class ContinuousSpec(_NumbersSpec):
        """A column of numbers; each key adds an operator."""

else:
    _ORDER = ", ".join(key.name for key in DOCUMENT_KEYS)
    _FIELDS = {
        key.name: (
            key.values if key.default is False else key.values | None,
            Field(key.default, description=key.description),
        )
        for key in DOCUMENT_KEYS
    }
    ContinuousSpec = create_model(
        "ContinuousSpec",
        __base__=_NumbersSpec,
        __module__=__name__,
        __doc__=f"Numbers, in the order: {_ORDER}.",
        **_FIELDS,
    )


class UnchangedSpec(_ColumnSpec):
    """A column whose values are staged unchanged, for a workflow without a features document.

    `holds` is what the workflow's operators take; `None` for a column of any type.
    """

    holds: Takes | None

    @property
    def takes(self) -> Takes:
        return self.holds or "presence"


ColumnSpec = CategoricalSpec | ContinuousSpec | UnchangedSpec
Column = Annotated[CategoricalSpec | ContinuousSpec, Field(discriminator="kind")]


KEYS_OF_HISTORY, TIMES_OF_HISTORY = "history.by", "history.order"
"""The names, in staged rows, of the columns that histories need."""
TIMES_OF_SPLIT = "split.time"
"""The name that the split's time column has in staged rows.

Operators that learn in time order need it.
"""


class HistorySpec(Section):
    """For each row the latest earlier events of the same key, oldest first, as aligned lists.

    The list of a column is written as `history_NAME`. Events at the row's own time are excluded.
    """

    by: ColumnName = Field(description="The input's column of keys, such as user ids.")
    order: ColumnName = Field(description="The input's column of times.")
    epoch: Literal["s", "ms", "us", "ns"] | None = Field(
        None, description="The unit, if `order` holds integers: the time since 1970 in this unit."
    )
    keep: Whole = Field(
        ge=1,
        le=MOST_KEPT,
        description="The maximum number of events of a history, the newest ones.",
    )
    of: tuple[ColumnName, ...] = Field(
        min_length=1,
        description="The columns whose values are listed: features, and `order` for the seconds "
        "between event and row.",
    )

    @property
    def operator(self) -> History:
        return History(self.by, self.order, self.keep, self.of)

    @property
    def staged(self) -> dict[str, ColumnSpec]:
        """The history's columns of keys and of times in staged rows, with their settings.

        Their values may be missing.
        """
        keys = CategoricalSpec.model_validate({"kind": "categorical", "from": self.by})
        times = ContinuousSpec.model_validate(
            {
                "kind": "continuous",
                "from": self.order,
                "as": "seconds",
                "epoch": self.epoch,
                "fill": 0,
            }
        )
        return {KEYS_OF_HISTORY: keys, TIMES_OF_HISTORY: times}


class UnchangedHistorySpec(HistorySpec):
    """The history of a workflow without a features document; keys and times are unchanged."""

    @property
    def staged(self) -> dict[str, ColumnSpec]:
        sources = {KEYS_OF_HISTORY: self.by, TIMES_OF_HISTORY: self.order}
        return {
            name: UnchangedSpec.model_validate({"from": source, "holds": None})
            for name, source in sources.items()
        }
